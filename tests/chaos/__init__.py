"""Owners of work are killed, stopped and cut off at random; whatever happens, nothing may be lost or left behind."""
