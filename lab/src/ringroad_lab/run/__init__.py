"""A run: an outer process that keeps measurements, and an inner one that measures, in its own namespaces."""
