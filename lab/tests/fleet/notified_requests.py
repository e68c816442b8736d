"""Requests with notifications, without measuring: unusable messages, and requests that are moved by hand."""

from __future__ import annotations

from ringroad_lab.fleet.leases import Leases
from ringroad_lab.fleet.requests import Requests
from ringroad_lab.request.message import Message
from ringroad_lab.request.model import Order, RequestState, Wanted
from ringroad_lab.store.result_store import ResultStore

COMMIT = "c0ffee00" * 5


def ask(store: ResultStore, build: str = "ovs-3.5", **labels: str) -> int:
    """Make a request; return its id."""
    wanted = Wanted(build=build, scenario="BRIDGE_VETH", order=Order(labels=labels), built_at=0.0)
    return Requests(store).add(Message("forge", b'{"a": 1}', 0.0), [wanted])[1][0].id


def make_dead(store: ResultStore, number: int = 0) -> int:
    """Keep an unusable message; return the id of its request."""
    added = Requests(store).add_dead(Message("forge", f"poison {number}".encode(), 0.0), "invalid JSON")[1]
    assert added
    return added.id


def have_run(store: ResultStore) -> Leases:
    """Take the next request, and let it run."""
    leases = Leases(store, "local")
    taken = leases.claim(lambda _key: False, str)
    assert taken
    assert leases.move(taken, RequestState.RUNNING)
    return leases
