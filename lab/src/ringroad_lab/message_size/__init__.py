"""Message sizes: throughput and latency of messages between two stations, size by size, by NetPIPE and sockperf."""
