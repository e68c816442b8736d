"""Fifty beds, 2,000 requests a day, in simulated time: `python simulate.py [--picture FILE.html]` prints the tables of docs/lab/beds.md.

It compares two rules: the laboratory's rule, where a step of priority is worth some waiting time, and strict priorities.
"""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from simulated_fleet import HOUR_S, START, Course, Line, Owner, Plan, Simulation, make_beds, table, utilisation

from ringroad_lab.fleet import leases
from ringroad_lab.report.charts import COLOURS
from ringroad_lab.store.result_store import ResultStore

PLAN = Plan(
    beds=make_beds({"veth": 20, "nic25g": 20, "nic100g": 10}),
    owners=(
        Owner("release", 80, priority=10),
        Owner("alice", 60),
        Owner("bob", 60),
        # A build system requests its work of the whole day at once.
        Owner("bulk", 200, at_once_h=10.0),
        Owner("ci", 1100),
        Owner("nightly", 500, priority=-10, at_once_h=0.0),
    ),
    classes={"any": 0.5, "nic25g": 0.3, "nic100g": 0.2},
)
STRICT_S = 1e8
"""Waiting time that is worth a step of priority: too long to be reached."""


def main() -> None:
    """Simulate, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picture", type=Path, help="write a picture, HTML")
    arguments = parser.parse_args()
    usual_s = leases.AGING_S
    rules = {f"a step of priority is worth {usual_s / 60:g} min of a bed": usual_s, "strict priorities": STRICT_S}
    with ProcessPoolExecutor() as pool:
        courses = dict(zip(rules, pool.map(_simulate, rules.values()), strict=True))
    for name, course in courses.items():
        print(f"\n{name}: {len(course.asked)} requests a day, {len(PLAN.beds)} beds; jobs: {dict(course.jobs)}")
        print(f"utilisation {100 * utilisation(course, len(PLAN.beds), PLAN.days):.0f} %\n")
        _print(table(course))
    if arguments.picture:
        _draw(courses).write_html(arguments.picture, include_plotlyjs=True)


def _simulate(step_s: float) -> Course:
    leases.AGING_S = step_s
    shared_memory = Path("/dev/shm")
    where = shared_memory if shared_memory.is_dir() else None
    with tempfile.TemporaryDirectory(dir=where) as folder, ResultStore(str(Path(folder) / "results.db")) as store:
        return Simulation(store, PLAN).run()


def _print(lines: list[Line]) -> None:
    print("| owner | priority | requests | median wait | 95 % | longest | starved |\n|---|---|---|---|---|---|---|")
    for line in lines:
        times = " | ".join(f"{seconds / 60:.0f} min" for seconds in (line.median_s, line.high_s, line.longest_s))
        print(f"| {line.owner} | {line.priority} | {line.requests} | {times} | {line.starved} |")


def _draw(courses: dict[str, Course]) -> go.Figure:
    titles = [title for name in courses for title in (f"{name}: requests that wait", f"{name}: waiting time by hour of the request")]
    figure = make_subplots(rows=2 * len(courses), cols=1, subplot_titles=titles, vertical_spacing=0.07)
    for place, course in enumerate(courses.values()):
        hours = [(moment - START) / HOUR_S for moment, _ in course.waiting]
        row = 2 * place + 1
        for number, priority in enumerate(sorted({each.priority for each in course.asked.values()}, reverse=True)):
            counts = [waits.get(priority, 0) for _, waits in course.waiting]
            style = {"color": COLOURS[number]}
            figure.add_scatter(
                x=hours, y=counts, name=f"priority {priority}", line=style, legendgroup="waits", showlegend=not place, row=row, col=1
            )
        busy = [count for _, count in course.busy]
        grey = {"color": COLOURS[-1], "dash": "dot"}
        figure.add_scatter(x=hours, y=busy, name="beds that measure", line=grey, legendgroup="busy", showlegend=not place, row=row, col=1)
        for number, owner in enumerate(PLAN.owners):
            its = [each for each in course.asked.values() if each.owner == owner.name and each.begun_at is not None]
            figure.add_scatter(
                x=[(each.asked_at - START) / HOUR_S for each in its],
                y=[((each.begun_at or 0.0) - each.asked_at) / HOUR_S for each in its],
                mode="markers",
                marker={"color": COLOURS[number], "size": 4},
                name=owner.name,
                legendgroup="owners",
                showlegend=not place,
                row=row + 1,
                col=1,
            )
        figure.update_yaxes(title_text="requests, beds", row=row, col=1)
        figure.update_yaxes(title_text="h", row=row + 1, col=1)
        figure.update_xaxes(title_text="h", row=row + 1, col=1)
    return figure.update_layout(height=420 * 2 * len(courses), title="Fifty beds, 2,000 requests a day")


if __name__ == "__main__":
    main()
