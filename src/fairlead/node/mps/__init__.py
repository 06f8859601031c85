"""NVIDIA MPS: its daemons, what they log, and how they are restarted after a fault."""
