"""In which order."""
