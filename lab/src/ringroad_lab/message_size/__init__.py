"""Throughput and latency by message size between two stations, measured by NetPIPE and sockperf."""
