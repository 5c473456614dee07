"""The database's leader is killed under load, again and again: what was acknowledged stays, what is due happens."""
