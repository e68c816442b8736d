"""A run: an outer process that keeps what is measured, and an inner one, in namespaces of its own, that measures."""
