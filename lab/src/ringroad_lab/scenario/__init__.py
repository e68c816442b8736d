"""Scenarios: what is to be measured, made from layers and checked before anything starts."""
