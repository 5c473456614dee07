"""Live events: the history, relayed to whoever follows it."""
