"""The sandbox of a run: private namespaces, and memory lent for its length."""
