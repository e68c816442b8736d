"""Guests: each forwards between two ports of the device under test, like a virtual network function."""
