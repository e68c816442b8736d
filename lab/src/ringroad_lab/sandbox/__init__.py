"""Where a run happens: private namespaces, and memory lent for its length."""
