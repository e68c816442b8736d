"""A double of a Koji hub: it answers for the tagged builds that a test gives, as a hub does (hub's source: kojihub.py, query_history).

It has the calls that the laboratory makes, and the real `koji` client reads it (test_bus_judges.py).
"""

from __future__ import annotations

import threading
import time
import xmlrpc.client
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TAGS = {"f43-updates-candidate": 42, "c10s-gate": 43}
TAGGER = "bodhi"


class KojiHubDouble:
    """The data of the hub, and the calls it received."""

    def __init__(self) -> None:
        self.events: list[tuple[int, float]] = [(1000, time.time() - 86_400)]
        self.rows: list[dict[str, Any]] = []
        self.builds: dict[int, dict[str, Any]] = {}
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.status = 200
        self.answer: bytes | None = None
        """The answer to send instead of the right one."""
        self.url = ""

    def event(self, ago_s: float = 0.0, number: int | None = None) -> int:
        """Make an event that happened `ago_s` seconds ago."""
        self.events.append((number or self.events[-1][0] + 1, time.time() - ago_s))
        self.events.sort()
        return self.events[-1][0] if number is None else number

    def tag(self, name: str, release: str, tag: str = "f43-updates-candidate", *, ago_s: float = 0.0, number: int | None = None) -> int:
        """Give a new build a tag; return the event."""
        event = self.event(ago_s, number)
        build_id = 2_800_000 + event
        self.builds[build_id] = {
            **{"id": build_id, "build_id": build_id, "name": name, "version": "3.5.0", "release": release, "epoch": None, "state": 1},
            **{"nvr": f"{name}-3.5.0-{release}", "owner_name": "jdoe", "task_id": 90_000_000 + event, "completion_ts": time.time()},
        }
        self.rows.append(
            {
                **{"active": True, "create_event": event, "revoke_event": None, "creator_id": 7, "revoker_id": None},
                **{"creator_name": TAGGER, "revoker_name": None, "create_ts": dict(self.events)[event], "revoke_ts": None},
                **{"build_id": build_id, "tag_id": TAGS[tag], "tag.name": tag, "name": name, "version": "3.5.0", "release": release},
                **{"epoch": None, "build.state": 1},
            }
        )
        return event

    def untag(self, event: int) -> None:
        """Remove the tag that an event gave."""
        (row,) = (each for each in self.rows if each["create_event"] == event)
        revoked = self.event()
        row.update(active=None, revoke_event=revoked, revoker_id=7, revoker_name=TAGGER, revoke_ts=dict(self.events)[revoked])

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:  # noqa: ANN401
        """Answer a call."""
        named: dict[str, Any] = {}
        if arguments and isinstance(arguments[-1], dict) and arguments[-1].get("__starstar"):
            named = {name: value for name, value in arguments[-1].items() if name != "__starstar"}
            arguments = arguments[:-1]
        self.asked.append((method, arguments, named))
        if method not in ("getAPIVersion", "getLastEvent", "queryHistory", "getBuild"):
            raise xmlrpc.client.Fault(1000, f"Invalid method: {method}")
        return getattr(self, f"_{method}")(*arguments, **named)

    def _getAPIVersion(self) -> int:  # noqa: N802
        return 1

    def _getLastEvent(self, before: float | None = None) -> dict[str, Any] | None:  # noqa: N802
        found = [each for each in self.events if before is None or each[1] < before]
        return {"id": found[-1][0], "ts": found[-1][1]} if found else None

    def _queryHistory(  # noqa: N802
        self,
        tables: list[str],
        tag: str,
        afterEvent: int,  # noqa: N803
        beforeEvent: int = 2**31 - 1,  # noqa: N803
    ) -> dict[str, list[dict[str, Any]]]:
        assert tables == ["tag_listing"]
        if tag not in TAGS:
            raise xmlrpc.client.Fault(1000, f"No such tag: {tag}")
        found = []
        for row in self.rows:
            created, revoked = row["create_event"], row["revoke_event"]
            after = {"_created_after_event": created > afterEvent, "_revoked_after_event": revoked and revoked > afterEvent}
            before = {"_created_before_event": created < beforeEvent, "_revoked_before_event": revoked and revoked < beforeEvent}
            if row["tag.name"] == tag and any(after.values()) and any(before.values()):
                found.append({**row, **after, **before})
        # A hub's database guarantees no order.
        return {"tag_listing": found[::-1]}

    def _getBuild(self, build: int) -> dict[str, Any] | None:  # noqa: N802
        return self.builds.get(build)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: KojiHubDouble

    def do_POST(self) -> None:
        arguments, method = xmlrpc.client.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer: tuple[Any, ...] | xmlrpc.client.Fault
        try:
            answer = (self.hub.call(str(method), arguments),)
        except xmlrpc.client.Fault as fault:
            answer = fault
        body = self.hub.answer
        if body is None:
            body = xmlrpc.client.dumps(answer, methodresponse=True, allow_none=True).encode()
        self.send_response(self.hub.status)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def koji_hub(hub: KojiHubDouble | None = None, port: int = 0) -> Iterator[KojiHubDouble]:
    """Serve the double at its URL."""
    made = hub or KojiHubDouble()
    server = ThreadingHTTPServer(("127.0.0.1", port), type("Handler", (_Handler,), {"hub": made}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_address[1]}/kojihub"
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
