"""Where messages about builds come from; a file for each kind of source."""
