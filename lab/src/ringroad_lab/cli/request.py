"""`ringroad-lab request`, `requests`, `cancel`, `retry`, `replay`, `renotify`, `forget`: builds to measure."""

from __future__ import annotations

import getpass
import json
import os
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel, ValidationError

from ringroad_lab.cli.list_scenarios import print_table
from ringroad_lab.cli.rules import FleetFile
from ringroad_lab.cli.scenario_options import AsJson, Assignments, LayerNames, complete_scenario, read_labels, resolve_arguments
from ringroad_lab.cli.store_options import StoreOption, open_store
from ringroad_lab.errors import ScenarioError, StoreError, value_problems
from ringroad_lab.report.plain_text import printable
from ringroad_lab.report.quantity import moment
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import ANY_BED, Order, RequestState, Wanted
from ringroad_lab.text_types import Name

if TYPE_CHECKING:
    from ringroad_lab.request.table import Request

COMMAND_LINE_SOURCE = "command-line"
ACTOR = "command line"

RequestId = Annotated[int, typer.Argument(metavar="ID", help="Number of a request, as `requests` shows it.", min=1, show_default=False)]


class _Source(BaseModel):
    source: Name


def request(
    build: Annotated[str, typer.Argument(help="Build to measure: openvswitch-3.5.0-1, repo@commit, ...", show_default=False)],
    scenario: Annotated[str, typer.Option(metavar="SCENARIO", help="Name of a scenario.", autocompletion=complete_scenario)],
    source: Annotated[
        str, typer.Option(metavar="NAME", help="Source of the request: the same build from another source is another request.")
    ] = COMMAND_LINE_SOURCE,
    bed_class: Annotated[str, typer.Option(metavar="NAME", help="Class of bed; every machine has class `any`.")] = ANY_BED,
    layer: LayerNames = None,
    set_: Assignments = None,
    label: Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Label of the run; can be repeated.")] = None,
    baseline: Annotated[str, typer.Option(metavar="NAME|RUN", help="Compare with a baseline, a run, or `last-stable`.")] = "",
    priority: Annotated[int, typer.Option(help="The request with the highest priority runs first.", min=-1000, max=1000)] = 0,
    owner: Annotated[str | None, typer.Option(metavar="NAME", help="Owner of the request; owners take turns.", show_default="you")] = None,
    package: Annotated[str, typer.Option(metavar="NAME", help="The newest build with this package and --tag supersedes older ones.")] = "",
    tag: Annotated[str, typer.Option(metavar="NAME", help="See --package.")] = "",
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Request the measurement of a build by a scenario; `dispatch` carries it out. A repeated request is counted as a duplicate."""
    from ringroad_lab.fleet.requests import Requests

    # Checked now, so that a wrong name is not reported hours later.
    resolve_arguments(scenario, layer, set_)
    try:
        order = Order(layers=tuple(layer or ()), settings=tuple(set_ or ()), labels=read_labels(label), baseline=baseline)
        now = time.time()
        wanted = Wanted(
            build=build,
            scenario=scenario,
            bed_class=bed_class,
            order=order,
            priority=priority,
            owner=user_name() if owner is None else owner,
            package=package,
            tag=tag,
            built_at=now,
        )
        _Source(source=source)
    except ValidationError as error:
        raise ScenarioError("; ".join(value_problems(error))) from error
    message = Message(source, wanted.model_dump_json().encode(), now)
    with open_store(store) as results:
        _, (added,) = Requests(results).add(message, [wanted])
    if as_json:
        typer.echo(json.dumps({"id": added.id, "state": added.state, "is_new": added.is_new}, indent=2))
    else:
        typer.echo(f"request {added.id}: {added.state}" + ("" if added.is_new else ", already exists"))


def requests(
    request_id: Annotated[
        int | None, typer.Argument(metavar="ID", help="Show all details of this request only.", min=1, show_default=False)
    ] = None,
    state: Annotated[RequestState | None, typer.Option(help="Only requests in this state.")] = None,
    build: Annotated[str | None, typer.Option(metavar="TEXT", help="Part of the build's name.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of requests.")] = 20,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """List requests, newest first, with their states; or show one request with its history and its notifications."""
    from ringroad_lab.fleet.requests import RequestFilter, Requests

    if request_id is not None:
        _show(request_id, store, as_json=as_json)
        return
    which = RequestFilter(state=state, build=build)
    with open_store(store) as results:
        found, count = Requests(results).find(which, limit=limit), Requests(results).count(which)
    if as_json:
        typer.echo(json.dumps([each.as_json() for each in found], indent=2))
    else:
        print_table([_row(each) for each in found])
    if count > len(found):
        print(f"and {count - len(found)} more: --limit", file=sys.stderr)


def cancel(request_id: RequestId, store: StoreOption = None) -> None:
    """Cancel a request; if it is running, its run is stopped."""
    from ringroad_lab.fleet.requests import Requests

    with open_store(store) as results:
        Requests(results).cancel(request_id, ACTOR)
    typer.echo(f"request {request_id}: {RequestState.CANCELLED}")


def retry(request_id: RequestId, store: StoreOption = None) -> None:
    """Queue a request again that has ended; a new run measures it, and supersedes the run of a done request."""
    from ringroad_lab.fleet.requests import Requests

    with open_store(store) as results:
        Requests(results).retry(request_id, ACTOR)
    typer.echo(f"request {request_id}: {RequestState.NEW}")


def replay(request_id: RequestId, fleet: FleetFile = None, store: StoreOption = None, as_json: AsJson = False) -> None:
    """Apply the current rules to a request's message again: add missing requests, and update requests that are new or were given up."""
    from ringroad_lab.fleet.requests import Requests
    from ringroad_lab.fleet.rules import apply_rules
    from ringroad_lab.fleet.settings import load_fleet

    rules = load_fleet(fleet).rules
    with open_store(store) as results:
        kept = Requests(results)
        old = kept.get(request_id)
        if old.source == COMMAND_LINE_SOURCE:
            raise StoreError(f"request {request_id} is not from a message: `ringroad-lab retry` queues it again, `request` makes another")
        wanted = apply_rules(rules, Message(old.source, old.payload, old.built_at, old.event, old.delivery))
        if not wanted:
            raise StoreError(f"no rule matches the message of request {request_id}: `ringroad-lab rules check` tests the rules")
        added = kept.replay(request_id, wanted, ACTOR)
    if as_json:
        typer.echo(json.dumps([{"id": each.id, "state": each.state, "is_new": each.is_new} for each in added], indent=2))
    else:
        for each in added:
            typer.echo(f"request {each.id}: {each.state}" + ("" if each.is_new else ", already exists"))


def renotify(
    request_id: RequestId,
    to_all: Annotated[
        bool, typer.Option("--all", help="Also notify recipients that were notified already, as a new notification.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Retry undelivered notifications of a request at once; `dispatch` sends them."""
    from ringroad_lab.fleet.outbox import Outbox

    with open_store(store) as results:
        count = Outbox(results).send_again(request_id, ACTOR, to_all=to_all)
    typer.echo(f"request {request_id}: {count} notifications to send" + (", and those to new recipients in the settings" if to_all else ""))


def forget(
    days: Annotated[
        float, typer.Option(min=1, max=36_500, help="Remove requests that ended more than this many days ago.", show_default=False)
    ],
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove requests that ended long ago, their messages and notifications, and the bed histories of that time; runs stay.

    A message that arrives again later makes another request. A request with undelivered notifications stays until they are delivered.
    """
    from ringroad_lab.fleet.retention import forget

    with open_store(store) as results:
        gone = forget(results, time.time() - days * 86_400)
    text = f"{gone.requests} requests and {gone.occupancies} entries of bed histories removed"
    typer.echo(json.dumps(asdict(gone), indent=2) if as_json else text)


def _show(request_id: int, store: str | None, *, as_json: bool) -> None:
    from ringroad_lab.fleet.outbox import Outbox
    from ringroad_lab.fleet.requests import Requests

    with open_store(store) as results:
        found, changes = Requests(results).get(request_id), Requests(results).changes(request_id)
        notifications = Outbox(results).of_request(request_id)
    if as_json:
        more = {"changes": [each.as_json() for each in changes], "notifications": [each.as_json() for each in notifications]}
        typer.echo(json.dumps(found.as_json() | more, indent=2))
        return
    for name, value in _row(found).items():
        typer.echo(printable(f"{name}: {value}"))
    typer.echo("")
    print_table(
        [
            {"when": moment(each.changed_at), "from": each.old, "to": each.new, "who": each.actor, "why": _last_line(each.why)}
            for each in changes
        ]
    )
    if notifications:
        typer.echo("")
        print_table(
            [
                {
                    "recipient": each.target,
                    "stage": each.stage,
                    "state": each.state,
                    "when": moment(each.changed_at),
                    "attempts": str(each.attempts),
                    "error": _last_line(each.last_error),
                }
                for each in notifications
            ]
        )


def _row(each: Request) -> dict[str, str]:
    return {
        "id": str(each.id),
        "made": moment(each.created_at),
        "source": each.source,
        "build": each.build,
        "scenario": each.scenario,
        "bed": each.bed_class,
        "owner": each.owner,
        "priority": str(each.priority),
        "state": each.state,
        "attempts": str(each.attempts),
        "run": (each.run_id or "")[:8],
        "verdict": each.verdict,
        "error": _last_line(each.last_error),
    }


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2][:200]


def user_name() -> str:
    """Return the name of the user who runs the program, or its number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
