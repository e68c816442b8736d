"""The experiments of the documents that Ringroad began with: the command that repeats each, and their figures beside ours."""
