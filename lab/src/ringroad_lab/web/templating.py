"""Templates of pages, and the format of values."""

from __future__ import annotations

from pathlib import Path
from shlex import join
from statistics import median

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ringroad_lab.report.figures import metric_title, sentence_case
from ringroad_lab.report.quantity import duration, percent_change, quantity, utc_text
from ringroad_lab.web.reviews import is_web_link

STATIC_FOLDER = Path(__file__).parent / "static"


def format_time(seconds: float | None) -> str:
    """Write a time, seconds since 1970, in UTC."""
    return "" if seconds is None else utc_text(seconds, "%Y-%m-%d %H:%M", "invalid time")


def iso_time(seconds: float) -> str:
    """Write a time, seconds since 1970, for machines (ISO 8601); empty if it is invalid."""
    text = format_time(seconds)
    return text.replace(" ", "T") + "Z" if ":" in text else ""


def format_change(change: float | None) -> str:
    """Write a relative change: +5.0 %; empty if there is none."""
    return "" if change is None else percent_change(1 + change)


def _environment() -> Environment:
    # Values are all escaped: names, comments and logs are untrusted.
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        time=format_time,
        iso_time=iso_time,
        duration=duration,
        quantity=quantity,
        change=format_change,
        shell=join,
        sentence_case=sentence_case,
        metric_title=metric_title,
        median=median,
    )
    environment.tests.update(web_link=is_web_link)
    return environment


ENVIRONMENT = _environment()
