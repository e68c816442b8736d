"""The sandbox of a run: private namespaces, and huge pages reserved for the duration of the run."""
