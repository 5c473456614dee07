"""Duties that the clock drives: firing schedules, releasing retries, taking care of what has lost its owner."""
