"""Machines of one job meet at numbered barriers. The server keeps its state on disk; members can lose their network or reboot."""
