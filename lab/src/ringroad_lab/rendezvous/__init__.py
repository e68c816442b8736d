"""Machines of one job meet at numbered barriers: a server with its state on disk, and members that may lose their network or reboot."""
