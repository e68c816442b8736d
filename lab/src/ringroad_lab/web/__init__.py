"""The web page of a result store, and its JSON API."""
