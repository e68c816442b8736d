"""A run: an outer process stores the measurements, and an inner process measures in its own namespaces."""
