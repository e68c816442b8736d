"""Sources of messages about builds; a file for each kind of source."""
