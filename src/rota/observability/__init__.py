"""Seeing what goes on: logs, metrics, health."""
