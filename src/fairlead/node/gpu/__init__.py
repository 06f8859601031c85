"""The GPUs of this machine: meters, joules, memory quotas, and who is on which."""
