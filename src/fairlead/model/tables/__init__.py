"""Interference tables that are shipped, the script that derives them, and the rules of their format."""
