"""What the world is made of: jobs, profiles, clusters, placements, and the two equations of speed and power.

No behaviour beyond arithmetic: nothing here decides, reads a clock or does I/O other than parsing what it is given.
"""
