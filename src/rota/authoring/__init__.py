"""Definitions as people write them."""
