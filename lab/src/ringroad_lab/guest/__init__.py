"""Guests: they forward between two ports of the device under test, as a virtual network function would."""
