"""The engine: a closed list of verbs, each one module and one transaction."""
