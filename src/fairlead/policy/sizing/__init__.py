"""How many GPUs."""
