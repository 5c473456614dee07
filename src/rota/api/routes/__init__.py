"""One module of endpoints for each kind of resource."""
