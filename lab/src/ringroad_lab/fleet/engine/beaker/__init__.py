"""Beaker as an engine: job XML, the hub's XML-RPC, and what a job left behind."""
