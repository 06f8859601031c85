"""What brings nodes and runs jobs on them: `local` is this machine."""
