"""Ringroad's laboratory: one scenario name in, a measured, compared and explained result out."""

__version__ = "0.1.0"
