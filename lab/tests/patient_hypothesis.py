"""Hypothesis's settings for all tests, loaded by pytest's option `-p`: a busy machine fails none, and no database of examples is kept."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
