"""Message sizes: throughput and latency of a byte stream between two guests, block by block, as NetPIPE measures them."""
