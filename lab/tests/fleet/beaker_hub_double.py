"""A DOUBLE of Beaker's hub, for tests: it accepts jobs by XML-RPC and reports their state, but schedules and runs nothing.

Beaker's server needs Python 2 and cannot run here. The answers of this double have the format of Beaker 29's XML-RPC methods and results
XML (documentation, "XML-RPC methods"; `complete-job-results.xml` of its integration tests); the real `bkr` client verifies them. The tests
set the state of a job.
"""

from __future__ import annotations

import secrets
import threading
import xmlrpc.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from xml.etree import ElementTree

USER, PASSWORD = "lab", "secret"
FINISHED = ("Completed", "Cancelled", "Aborted")


@dataclass
class BeakerJob:
    """A job on the hub."""

    number: int
    xml: str
    status: str = "Queued"
    result: str = "New"
    results: dict[str, list[tuple[str, str, int, str]]] = field(default_factory=dict)
    """By role, the results of the last task: path, result, score, message."""
    logs: dict[str, bytes] = field(default_factory=dict)

    @property
    def whiteboard(self) -> str:
        return ElementTree.fromstring(self.xml).findtext("whiteboard") or ""

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED

    def as_results(self) -> str:
        root = ElementTree.fromstring(self.xml)
        state = {"status": self.status, "result": self.result}
        root.attrib.update({"id": str(self.number), "owner": f"{USER}@example.org", **state})
        for number, recipe in enumerate(root.iter("recipe"), 1):
            recipe.attrib.update({"id": str(number), "system": f"machine-{number}.example", **state})
            for task in recipe.findall("task"):
                task.attrib.update(state)
            results = ElementTree.SubElement(recipe.findall("task")[-1], "results")
            for path, result, score, message in self.results.get(recipe.get("role", ""), []):
                ElementTree.SubElement(results, "result", {"path": path, "result": result, "score": str(score)}).text = message
        return ElementTree.tostring(root, encoding="unicode")


class BeakerHubDouble:
    """The hub with its jobs; tests can make it fail in several ways."""

    def __init__(self) -> None:
        self.jobs: dict[int, BeakerJob] = {}
        self.sessions: set[str] = set()
        self.logins = 0
        self.asked: list[str] = []
        self.loses_answers_to: set[str] = set()
        """Methods that are executed, but whose answer is lost: the connection closes."""
        self.answers_with: bytes | None = None
        """Body that replaces the XML-RPC answer."""
        self.waits: threading.Event | None = None
        """Answers wait for this event."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def handle(self, method: str, arguments: tuple[Any, ...], session: str) -> tuple[Any, str]:
        """Execute a method; return its result and the session's cookie."""
        with self._lock:
            self.asked.append(method)
            if method == "auth.login_password":
                self.logins += 1
                if arguments[:2] != (USER, PASSWORD):
                    raise xmlrpc.client.Fault(1, "<class 'bkr.common.bexceptions.BX'>:Invalid username or password")
                session = secrets.token_hex(8)
                self.sessions.add(session)
                return USER, session
            needs_login = method in ("jobs.upload", "taskactions.stop")
            if needs_login and session not in self.sessions:
                raise xmlrpc.client.Fault(1, "bkr.server.identity.IdentityException:Please log in first")
            methods: dict[str, Callable[..., Any]] = {
                "jobs.upload": self._upload,
                "jobs.filter": self._filter,
                "taskactions.task_info": self._task_info,
                "taskactions.to_xml": lambda task, *_options: self._job(task).as_results(),
                "taskactions.files": self._files,
                "taskactions.stop": self._stop,
            }
            if method not in methods:
                raise xmlrpc.client.Fault(1, f"no such method: {method}")
            return methods[method](*arguments), session

    def _upload(self, xml: str, _ignore_missing_tasks: bool = False) -> str:
        root = ElementTree.fromstring(xml)
        if root.tag != "job" or root.find("recipeSet/recipe/task") is None:
            raise xmlrpc.client.Fault(1, "<class 'bkr.common.bexceptions.BX'>:No tasks in the job")
        number = len(self.jobs) + 1
        self.jobs[number] = BeakerJob(number, xml)
        return f"J:{number}"

    def _filter(self, criteria: dict[str, Any]) -> list[str]:
        found = []
        for number, job in sorted(self.jobs.items(), reverse=True):
            wants = criteria.get("is_finished")
            if not (criteria.get("minid") or 0) <= number <= (criteria.get("maxid") or number):
                continue
            is_owner = criteria.get("owner") in (None, USER)
            if is_owner and (criteria.get("whiteboard") or "") in job.whiteboard and wants in (None, job.is_finished):
                found.append(f"J:{number}")
        return found[: int(criteria.get("limit") or len(found))]

    def _task_info(self, task: str, _flat: bool = True) -> dict[str, Any]:
        job = self._job(task)
        return {
            "id": task,
            "method": job.whiteboard,
            "state": job.status,
            "state_label": job.status,
            "result": job.result,
            "is_finished": job.is_finished,
            "is_failed": job.result in ("Fail", "Warn", "Panic"),
        }

    def _files(self, task: str) -> list[dict[str, Any]]:
        number = self._job(task).number
        return [{"filename": name, "url": f"{self.url}/logs/{number}/{name}", "tid": "T:1"} for name in self._job(task).logs]

    def _stop(self, task: str, stop_type: str, _message: str | None) -> None:
        job = self._job(task)
        if stop_type != "cancel" or job.is_finished:
            raise xmlrpc.client.Fault(1, f"Could not cancel job id {job.number}. Please try later")
        job.status, job.result = "Cancelled", "Warn"

    def _job(self, task: str) -> BeakerJob:
        kind, _, number = task.partition(":")
        if kind != "J" or int(number) not in self.jobs:
            raise xmlrpc.client.Fault(1, f"Invalid {kind} {number}")
        return self.jobs[int(number)]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                if self.path != "/client/":
                    self.send_error(404)
                    return
                body = self.rfile.read(int(self.headers["Content-Length"]))
                arguments, method = xmlrpc.client.loads(body)
                session = self.headers.get("Cookie", "").partition("beaker_auth_token=")[2].partition(";")[0]
                try:
                    result, session = hub.handle(str(method), arguments, session)
                    answer = xmlrpc.client.dumps((result,), methodresponse=True, allow_none=True).encode()
                except xmlrpc.client.Fault as fault:
                    answer = xmlrpc.client.dumps(fault, methodresponse=True).encode()
                if hub.waits is not None:
                    hub.waits.wait(60)
                if method in hub.loses_answers_to:
                    self.close_connection = True
                    return
                answer = hub.answers_with if hub.answers_with is not None else answer
                self.send_response(200)
                self.send_header("Content-Type", "text/xml")
                self.send_header("Content-Length", str(len(answer)))
                if session:
                    self.send_header("Set-Cookie", f"beaker_auth_token={session}; Path=/")
                self.end_headers()
                self.wfile.write(answer)

            def do_GET(self) -> None:
                _, _, number, name = self.path.split("/")
                content = hub.jobs[int(number)].logs[name]
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *_: object) -> None:  # noqa: A002
                return

        return Handler

    def __enter__(self) -> BeakerHubDouble:
        """Start to listen."""
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        if self.waits:
            self.waits.set()
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def is_down(self) -> Iterator[None]:
        """Stop listening on the port for a while."""
        port = self._server.server_port
        self._server.shutdown()
        self._server.server_close()
        try:
            yield
        finally:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
            self.__enter__()
