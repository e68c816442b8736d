"""What carries out the jobs of requests; a file for each engine."""
