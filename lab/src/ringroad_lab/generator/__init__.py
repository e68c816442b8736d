"""What offers load and counts what comes back."""
