"""Measurement methods. Each runs trials and returns one measurement. One file per method."""
