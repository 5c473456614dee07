"""Reads for people: lists and details, apart from the statements that change state."""
