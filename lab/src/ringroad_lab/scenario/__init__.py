"""Scenarios: the settings of a run, merged from layers and checked before any program starts."""
