"""Experiments on real GPUs that fill profiles."""
