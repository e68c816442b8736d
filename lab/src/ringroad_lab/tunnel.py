"""The two ends of a VXLAN tunnel between the generator and a device, with the addresses that both must use (RFC 7348)."""

from __future__ import annotations

# Addresses in the network for benchmarks (RFC 2544, appendix C.2.2), different from the addresses of the inner frames.
DEVICE_ADDRESS = "198.18.254.1"
GENERATOR_ADDRESS = "198.18.254.2"
NETWORK_BITS = 24
# MAC addresses, locally administered.
DEVICE_STATION = "02:03:00:00:00:01"
GENERATOR_STATION = "02:03:00:00:00:02"
UDP_PORT = 4789
# Ethernet, IPv4, UDP and VXLAN headers.
OVERHEAD_BYTES = 50
