"""Facts of a run: the machines, their settings, and their load meanwhile."""
