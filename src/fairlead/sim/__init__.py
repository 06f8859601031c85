"""A world that obeys the two equations: an event loop, meters of energy and money, results."""
