"""Flow sets: entries of flow tables, and the headers of frames that match them."""
