"""Services kept safe: latencies in, launch rates and evictions out."""
