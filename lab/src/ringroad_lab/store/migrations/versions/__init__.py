"""Migrations from each schema of the store to the next."""
