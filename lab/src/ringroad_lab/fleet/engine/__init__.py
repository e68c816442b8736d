"""Engines, which run the jobs of requests; one module or package for each engine."""
