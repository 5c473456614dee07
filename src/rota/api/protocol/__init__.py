"""The worker protocol: register, heartbeat, next, events, and the one-at-a-time log."""
