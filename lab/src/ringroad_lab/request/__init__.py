"""Requests: messages about builds, and the measurements that they lead to."""
