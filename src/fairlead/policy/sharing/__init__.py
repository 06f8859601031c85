"""With whom."""
