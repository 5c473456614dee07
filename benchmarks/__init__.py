"""Measurements of Rota, each beside what the machine itself can do in the same run."""
