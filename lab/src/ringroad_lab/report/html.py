"""A report as one HTML file, which opens from disk and fetches nothing."""

from __future__ import annotations

import statistics
from functools import cache

import plotly.offline
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ringroad_lab.comparison import RunComparison
from ringroad_lab.record import RunRecord
from ringroad_lab.report import quantity
from ringroad_lab.report.findings import frames_text, headline_metric, metric_title, sentence_case
from ringroad_lab.report.view import dut_facts, make_view


def report_environment() -> Environment:
    """Return the templates of reports, with the functions they use; the web page shows runs with the same."""
    environment = Environment(
        loader=PackageLoader("ringroad_lab.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    add_report_functions(environment)
    return environment


def add_report_functions(environment: Environment) -> None:
    """Give an environment what `sections.html.j2` calls."""
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
    }
    environment.globals |= {"headline_metric": headline_metric, "dut_facts": dut_facts, "scale_for": quantity.scale_for}


def render_html(record: RunRecord, comparison: RunComparison | None = None) -> str:
    """Render a report: everything it needs is inside."""
    environment = report_environment()
    return environment.get_template("report.html.j2").render(
        view=make_view(record, comparison),
        style=_own_file("report.css"),
        script=_own_file("report.js"),
        plotly=_plotly(),
    )


@cache
def _own_file(name: str) -> Markup:
    loader = PackageLoader("ringroad_lab.report")
    source, _, _ = loader.get_source(Environment(loader=loader, autoescape=True), name)
    return Markup(source)


@cache
def _plotly() -> Markup:
    # Nothing in it may end the element that it stands in.
    source: str = plotly.offline.get_plotlyjs()
    return Markup(source.replace("</script", "<\\/script").replace("<!--", "<\\!--"))
