"""`ringroad-lab request`, `requests`, `cancel`, `retry`, `replay`, `renotify`, `forget`: builds that are to be measured."""

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
from ringroad_lab.cli.scenario_options import AsJson, Assignments, LayerNames, complete_scenario, resolve_arguments
from ringroad_lab.cli.store_options import StoreOption
from ringroad_lab.errors import ScenarioError, StoreError, value_problems
from ringroad_lab.fleet.request import ANY_BED, Message, Name, Order, RequestState, Wanted
from ringroad_lab.report.plain_text import printable
from ringroad_lab.report.quantity import moment
from ringroad_lab.scenario.registries import Registries

if TYPE_CHECKING:
    from ringroad_lab.fleet.request import Request

COMMAND_LINE_SOURCE = "command-line"
ACTOR = "command line"

RequestId = Annotated[int, typer.Argument(metavar="ID", help="Number of a request, as `requests` shows it.", min=1, show_default=False)]


class _Source(BaseModel):
    source: Name


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command()(request)
    app.command()(requests)
    app.command()(cancel)
    app.command()(retry)
    app.command()(replay)
    app.command()(renotify)
    app.command()(forget)


def request(
    build: Annotated[str, typer.Argument(help="What is to be measured: openvswitch-3.5.0-1, repo@commit, ...", show_default=False)],
    scenario: Annotated[str, typer.Option(metavar="SCENARIO", help="Name of a scenario.", autocompletion=complete_scenario)],
    source: Annotated[str, typer.Option(metavar="NAME", help="Who asks: the same build of another source is another request.")] = (
        COMMAND_LINE_SOURCE
    ),
    bed_class: Annotated[str, typer.Option(metavar="NAME", help="Class of bed; `any` is every machine's.")] = ANY_BED,
    layer: LayerNames = None,
    set_: Assignments = None,
    label: Annotated[list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="Label of the run; may be repeated.")] = None,
    baseline: Annotated[str, typer.Option(metavar="NAME|RUN", help="Compare with a baseline, a run, or `last-stable`.")] = "",
    priority: Annotated[int, typer.Option(help="The greatest goes first.", min=-1000, max=1000)] = 0,
    owner: Annotated[str | None, typer.Option(metavar="NAME", help="Between owners turns are shared out.", show_default="you")] = None,
    package: Annotated[
        str, typer.Option(metavar="NAME", help="The newest build of this package, with --tag, takes the older ones' place.")
    ] = "",
    tag: Annotated[str, typer.Option(metavar="NAME", help="With --package.")] = "",
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Ask for a build to be measured by a scenario; `dispatch` does it. The same again is a duplicate, and is counted."""
    from ringroad_lab.fleet.requests import Requests
    from ringroad_lab.store.result_store import ResultStore

    # Now: a name that is wrong should not be told hours later.
    resolve_arguments(scenario, layer, set_, Registries())
    try:
        order = Order(layers=tuple(layer or ()), settings=tuple(set_ or ()), labels=_labels(label or ()), baseline=baseline)
        now = time.time()
        wanted = Wanted(
            build=build,
            scenario=scenario,
            bed_class=bed_class,
            order=order,
            priority=priority,
            owner=_user() if owner is None else owner,
            package=package,
            tag=tag,
            built_at=now,
        )
        _Source(source=source)
    except ValidationError as error:
        raise ScenarioError("; ".join(value_problems(error))) from error
    message = Message(source, wanted.model_dump_json().encode(), now)
    with ResultStore(store) as results:
        _, (added,) = Requests(results).add(message, [wanted])
    if as_json:
        typer.echo(json.dumps({"id": added.id, "state": added.state, "is_new": added.is_new}, indent=2))
    else:
        typer.echo(f"request {added.id}: {added.state}" + ("" if added.is_new else ", was there already"))


def requests(
    request_id: Annotated[int | None, typer.Argument(metavar="ID", help="All of this one alone.", min=1, show_default=False)] = None,
    state: Annotated[RequestState | None, typer.Option(help="Only those.")] = None,
    build: Annotated[str | None, typer.Option(metavar="TEXT", help="A part of the build's name.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="So many at most.")] = 20,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """List requests, the newest first, with how far each has come; or show one, what became of it, and who was told."""
    from ringroad_lab.fleet.requests import RequestFilter, Requests
    from ringroad_lab.store.result_store import ResultStore

    if request_id is not None:
        _show(request_id, store, as_json=as_json)
        return
    which = RequestFilter(state=state, build=build)
    with ResultStore(store) as results:
        found, count = Requests(results).find(which, limit=limit), Requests(results).count(which)
    if as_json:
        typer.echo(json.dumps([each.as_json() for each in found], indent=2))
    else:
        print_table([_row(each) for each in found])
    if count > len(found):
        print(f"and {count - len(found)} more: --limit", file=sys.stderr)


def cancel(request_id: RequestId, store: StoreOption = None) -> None:
    """Take a request back; its run is stopped if it is under way."""
    from ringroad_lab.fleet.requests import Requests
    from ringroad_lab.store.result_store import ResultStore

    with ResultStore(store) as results:
        Requests(results).cancel(request_id, ACTOR)
    typer.echo(f"request {request_id}: {RequestState.CANCELLED}")


def retry(request_id: RequestId, store: StoreOption = None) -> None:
    """Have a request measured that is dead, cancelled, superseded or not installed, by a new run."""
    from ringroad_lab.fleet.requests import Requests
    from ringroad_lab.store.result_store import ResultStore

    with ResultStore(store) as results:
        Requests(results).retry(request_id, ACTOR)
    typer.echo(f"request {request_id}: {RequestState.NEW}")


def replay(request_id: RequestId, fleet: FleetFile = None, store: StoreOption = None, as_json: AsJson = False) -> None:
    """Read the message of a request again, by the rules of today; what was given up of it, and what is new, gets what they say."""
    from ringroad_lab.fleet.requests import Requests
    from ringroad_lab.fleet.rules import apply_rules
    from ringroad_lab.fleet.settings import load_fleet
    from ringroad_lab.store.result_store import ResultStore

    rules = load_fleet(fleet).rules
    with ResultStore(store) as results:
        kept = Requests(results)
        old = kept.get(request_id)
        if old.source == COMMAND_LINE_SOURCE:
            raise StoreError(f"request {request_id} came of no message: `ringroad-lab retry` has it measured, `request` makes another")
        wanted = apply_rules(rules, Message(old.source, kept.payload(request_id), old.built_at, old.event, old.delivery))
        if not wanted:
            raise StoreError(f"no rule matches the message of request {request_id}: `ringroad-lab rules check` tells what rules make of it")
        added = kept.replay(request_id, wanted, ACTOR)
    if as_json:
        typer.echo(json.dumps([{"id": each.id, "state": each.state, "is_new": each.is_new} for each in added], indent=2))
    else:
        for each in added:
            typer.echo(f"request {each.id}: {each.state}" + ("" if each.is_new else ", was there already"))


def renotify(
    request_id: RequestId,
    to_all: Annotated[bool, typer.Option("--all", help="Also those who were told, as something new.")] = False,
    store: StoreOption = None,
) -> None:
    """Have others told of a request at once who were not; `dispatch` does it."""
    from ringroad_lab.fleet.outbox import Outbox
    from ringroad_lab.store.result_store import ResultStore

    with ResultStore(store) as results:
        count = Outbox(results).send_again(request_id, ACTOR, to_all=to_all)
    typer.echo(f"request {request_id}: {count} to be told" + (", and who is new in the settings" if to_all else ""))


def forget(
    days: Annotated[float, typer.Option(min=1, max=36_500, help="Requests that ended longer ago are removed.", show_default=False)],
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove requests that ended long ago, with their messages and what was told, and who had the beds then; runs stay.

    A message that comes again afterwards makes another request. What is still to be told stays until it is.
    """
    from ringroad_lab.fleet.retention import forget
    from ringroad_lab.store.result_store import ResultStore

    with ResultStore(store) as results:
        gone = forget(results, time.time() - days * 86_400)
    told = f"{gone.requests} requests and {gone.occupancies} entries of beds' histories are removed"
    typer.echo(json.dumps(asdict(gone), indent=2) if as_json else told)


def _show(request_id: int, store: str | None, *, as_json: bool) -> None:
    from ringroad_lab.fleet.outbox import Outbox
    from ringroad_lab.fleet.requests import Requests
    from ringroad_lab.store.result_store import ResultStore

    with ResultStore(store) as results:
        found, changes = Requests(results).get(request_id), Requests(results).changes(request_id)
        told = Outbox(results).of_request(request_id)
    if as_json:
        more = {"changes": [asdict(each) for each in changes], "told": [each.as_json() for each in told]}
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
    if told:
        typer.echo("")
        print_table(
            [
                {
                    "told": each.target,
                    "of": each.stage,
                    "state": each.state,
                    "when": moment(each.changed_at),
                    "attempts": str(each.attempts),
                    "error": _last_line(each.last_error),
                }
                for each in told
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


def _labels(said: list[str] | tuple[str, ...]) -> dict[str, str]:
    labels = {}
    for text in said:
        name, is_pair, value = text.partition("=")
        if not is_pair or not name.strip():
            raise ScenarioError(f"label {text!r}: write NAME=VALUE")
        labels[name.strip()] = value.strip()
    return labels


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
