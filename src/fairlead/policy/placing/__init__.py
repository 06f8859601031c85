"""Which GPUs."""
