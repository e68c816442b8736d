"""Test setups: cables, one device under test, guests and the generator."""
