"""Which nodes are on."""
