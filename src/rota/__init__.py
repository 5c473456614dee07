"""Rota: workflows and jobs that run on time."""

__version__ = "0.1.0"
