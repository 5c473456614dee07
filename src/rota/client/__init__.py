"""Talking to a Rota server."""
