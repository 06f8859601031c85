"""Jobs of a live cluster: what was asked for, which states they go through, and what an end means."""
