"""A simulated server of the Open Traffic Generator model: gives the responses that a test sets, and records the requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]


class SimulatedServer:
    """Counts nothing by itself: `flows` and `ports` are the metrics that it reports."""

    def __init__(self) -> None:
        """Serve every request, and report no flows and no ports."""
        self.url = ""
        self.asked: list[tuple[str, Any]] = []
        self.flows: list[dict[str, Any]] = []
        self.ports: list[dict[str, Any]] = []
        self.answers: dict[str, Callable[[Any], Answer]] = {
            "/config": lambda _: (200, {"warnings": []}),
            "/control/state": lambda _: (200, {"warnings": []}),
            "/monitor/metrics": self._metrics,
            "/capabilities/version": lambda _: (200, {"api_spec_version": "1.62.0", "app_version": "7"}),
        }

    def _metrics(self, request: Any) -> Answer:  # noqa: ANN401
        if request["choice"] == "port":
            return 200, {"choice": "port_metrics", "port_metrics": self.ports}
        return 200, {"choice": "flow_metrics", "flow_metrics": self.flows}

    def bodies(self, path: str) -> list[Any]:
        """Return the bodies of the requests to a path, the latest last."""
        return [body for asked_path, body in self.asked if asked_path == path]


@contextmanager
def simulated_server() -> Iterator[SimulatedServer]:
    simulated = SimulatedServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = json.loads(text) if text else None
            simulated.asked.append((self.path, body))
            answer = simulated.answers.get(self.path)
            status, response = answer(body) if answer else (404, {"errors": ["no such path"]})
            content = response.encode() if isinstance(response, str) else json.dumps(response).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    simulated.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield simulated
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
