"""What runs beside the GPUs: agent, meter, MPS, launcher."""
