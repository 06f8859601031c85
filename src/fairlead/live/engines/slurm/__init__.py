"""Slurm: pilot jobs bring nodes with their agents (`engine.py`); `steer.py` leaves users their sbatch."""
