"""What joins two parts of a test bed."""
