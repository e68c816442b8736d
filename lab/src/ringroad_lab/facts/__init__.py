"""Facts of a run: what the machines are, how they are set up, and what they did meanwhile."""
