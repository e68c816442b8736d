"""A report as one HTML file, which opens from disk and loads nothing else."""

from __future__ import annotations

import statistics
from functools import cache
from typing import ClassVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ringroad_lab.comparison import RunComparison
from ringroad_lab.loss import loss_text
from ringroad_lab.record import RunRecord
from ringroad_lab.report import quantity
from ringroad_lab.report.figures import frames_text, headline_metric, metric_title, sentence_case
from ringroad_lab.report.interface import Reporter
from ringroad_lab.report.loss_rows import PLACE_HEADS
from ringroad_lab.report.view import dut_facts, make_view

_LONGEST_TEXT = 1000


class HtmlReporter(Reporter):
    """Renders a run."""

    title: ClassVar[str] = "a file for the browser, with charts"
    suffix: ClassVar[str] = ".html"
    media_type: ClassVar[str] = "text/html"
    is_for_files: ClassVar[bool] = True
    compares: ClassVar[bool] = True

    def render(self, record: RunRecord, comparison: RunComparison | None = None) -> str:
        """Render a self-contained report."""
        return render_template("report.html.j2", view=make_view(record, comparison))


def render_template(name: str, **content: object) -> str:
    """Render a template of a whole page, which holds its style and script."""
    style, script = _own_file("report.css"), _own_file("report.js")
    return _environment().get_template(name).render(**content, style=style, script=script)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("ringroad_lab.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shortened,
    )
    environment.filters |= {
        "quantity": quantity.quantity,
        "count_text": quantity.count,
        "change": quantity.percent_change,
        "duration": quantity.duration,
        "moment": quantity.moment,
        "figure": quantity.round_figure,
        "median_of": statistics.median,
        "frames_text": frames_text,
        "metric_title": metric_title,
        "sentence_case": sentence_case,
        "loss_text": loss_text,
    }
    environment.globals |= {
        "headline_metric": headline_metric,
        "dut_facts": dut_facts,
        "scale_for": quantity.scale_for,
        "place_heads": PLACE_HEADS,
    }
    return environment


def _shortened(value: object) -> object:
    """Shorten a text that would hide the rest of the page; escaped texts, such as logs, stay whole."""
    is_long = isinstance(value, str) and not isinstance(value, Markup) and len(value) > _LONGEST_TEXT
    return f"{str(value)[:_LONGEST_TEXT]}\u2026" if is_long else value


@cache
def _own_file(name: str) -> Markup:
    loader = PackageLoader("ringroad_lab.report")
    source, _, _ = loader.get_source(Environment(loader=loader, autoescape=True), name)
    return Markup(source)
