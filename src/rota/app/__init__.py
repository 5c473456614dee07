"""The composition root: from settings to running processes."""
