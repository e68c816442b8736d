"""Scenarios: the settings of a run, made from layers and checked before any program starts."""
