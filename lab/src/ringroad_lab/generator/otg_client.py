"""Client of any server of the Open Traffic Generator model.

snappi has the model's types; the requests are made here, since snappi's own transport waits for an answer without end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import requests
import snappi
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ringroad_lab.errors import GeneratorError
from ringroad_lab.http_answer import IDENTITY, AnswerTooLongError, read_answer

# Metrics of all flows, and Ringroad's distributions of their latencies.
_MAX_ANSWER_BYTES = 64 << 20


class _Answer(BaseModel):
    """What a server says: checked as far as it is used here."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class PortMetric(_Answer):
    """What a port counted."""

    name: str
    frames_tx: int = Field(0, ge=0)
    frames_rx: int = Field(0, ge=0)
    transmit: str = "stopped"


class LatencyMetric(_Answer):
    """Latency of a flow, ns."""

    minimum_ns: float = 0
    maximum_ns: float = 0
    average_ns: float = 0


class FlowMetric(_Answer):
    """What came of a flow."""

    name: str
    frames_tx: int = Field(0, ge=0)
    frames_rx: int = Field(0, ge=0)
    loss: float | None = None
    """Percent."""
    latency: LatencyMetric | None = None
    transmit: str = "stopped"


class _Metrics(_Answer):
    port_metrics: tuple[PortMetric, ...] = ()
    flow_metrics: tuple[FlowMetric, ...] = ()


class Distribution(_Answer):
    """Latencies, ns. Percentiles are at most 0.1 % too high."""

    count: int
    min: float
    mean: float
    max: float
    p50: float
    p90: float
    p99: float
    p99_9: float
    p99_99: float
    p99_999: float


class Delay(_Answer):
    """How long frames were under way."""

    latency_ns: Distribution | None = None


class Arrival(_Answer):
    """What came of a flow at one port."""

    port: str
    received: int
    distinct: int
    excess: int
    duplicates: int
    reordered: int
    corrupted: int
    delay: Delay


class Offered(_Answer):
    """What a flow really offered."""

    elapsed_ns: int
    intended_frames: int
    sent_frames: int


class FlowDetail(_Answer):
    """A flow, as Ringroad's generator measured it."""

    load: str
    offered: Offered
    unsent_frames: int
    arrivals: tuple[Arrival, ...] = ()


class ReceivedDetail(_Answer):
    """What came at a port apart from its flows."""

    foreign_frames: int
    corrupted_unattributed: int
    unknown_stream_frames: int


class PortDetail(_Answer):
    """A port, as Ringroad's generator saw it."""

    port: str
    mode: str
    unsent_slots: int
    blocked_ns: int
    received: ReceivedDetail


class PortFailure(_Answer):
    """A port that failed."""

    port: str | None = None
    reason: str


class ClockDetail(_Answer):
    """How the generator's clock compares with the system's."""

    source: str
    comparisons: int
    max_ns: int


class TrialDetail(_Answer):
    """What the model cannot say: the answer of Ringroad's `GET /ringroad/flows`."""

    failure: PortFailure | None = None
    clock: ClockDetail
    flows: tuple[FlowDetail, ...]
    ports: tuple[PortDetail, ...]


class OtgClient:
    """Requests to one server."""

    def __init__(
        self, url: str, *, token: str | None = None, verify: bool | str = True, timeout_s: float = 30.0, has_details: bool = True
    ) -> None:
        """Name the server, as `https://HOST:PORT`, and what it asks its clients for.

        With `verify`, its certificate has to be known: to the system, or in a file of that name. With `has_details`, the server is asked
        for what the model cannot say.
        """
        self._has_details = has_details
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.verify = verify
        # Proxies of the environment are for the world outside, not for a test bed.
        self._session.trust_env = False
        if token is not None:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def version(self) -> str:
        """Name and version of the server, and of the model that it serves.

        Raises:
            GeneratorError: it cannot be reached, or is none.
        """
        told = self._ask("GET", "/capabilities/version")
        parts = {"api_spec_version": "OTG", "sdk_version": "SDK", "app_version": "server"}
        return ", ".join(f"{title} {told[key]}" for key, title in parts.items() if told.get(key)) or "unknown"

    def set_config(self, config: snappi.Config) -> None:
        """Take a configuration into force.

        Raises:
            GeneratorError: it was refused, for example because a port cannot be opened.
        """
        self._ask("POST", "/config", config.serialize("json"))

    def close_ports(self) -> None:
        """Have the server close all ports.

        Raises:
            GeneratorError: it does not answer.
        """
        self.set_config(snappi.Config())

    def transmit(self, state: str, flow_names: Sequence[str] = ()) -> None:
        """Start or stop flows; all where none are named.

        Raises:
            GeneratorError: refused.
        """
        control = snappi.ControlState()
        control.traffic.flow_transmit.state = state
        if flow_names:
            control.traffic.flow_transmit.flow_names = list(flow_names)
        self._ask("POST", "/control/state", control.serialize("json"))

    def port_metrics(self) -> tuple[PortMetric, ...]:
        """Return what the ports counted; cheap for the server.

        Raises:
            GeneratorError: a port failed.
        """
        request = snappi.MetricsRequest()
        request.port.port_names = []
        return self._metrics(request).port_metrics

    def flow_metrics(self) -> tuple[FlowMetric, ...]:
        """Return what came of the flows.

        Raises:
            GeneratorError: a port failed.
        """
        request = snappi.MetricsRequest()
        request.flow.flow_names = []
        return self._metrics(request).flow_metrics

    def detail(self) -> TrialDetail | None:
        """Return what the model cannot say; None of a server that has no more to say.

        Raises:
            GeneratorError: it makes no sense.
        """
        if not self._has_details:
            return None
        response, body = self._send("GET", "/ringroad/flows", None)
        if response.status_code in (404, 405, 501):
            return None
        try:
            return TrialDetail.model_validate(self._answer(response, body, "/ringroad/flows"))
        except ValidationError as error:
            raise self._nonsense("/ringroad/flows", error) from error

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _metrics(self, request: snappi.MetricsRequest) -> _Metrics:
        try:
            return _Metrics.model_validate(self._ask("POST", "/monitor/metrics", request.serialize("json")))
        except ValidationError as error:
            raise self._nonsense("/monitor/metrics", error) from error

    def _ask(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        return self._answer(*self._send(method, path, body), path)

    def _send(self, method: str, path: str, body: str | None) -> tuple[requests.Response, bytes]:
        headers = {"Content-Type": "application/json", **IDENTITY}
        try:
            with self._session.request(
                method, self.url + path, data=body, headers=headers, timeout=self._timeout_s, stream=True
            ) as response:
                return response, read_answer(response, within_s=self._timeout_s, most_bytes=_MAX_ANSWER_BYTES)
        except (AnswerTooLongError, requests.RequestException) as error:
            raise GeneratorError(f"the generator at {self.url} does not answer {path}: {error}") from error

    def _answer(self, response: requests.Response, body: bytes, path: str) -> dict[str, Any]:
        text = body.decode(errors="replace")
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            told = None
        if not response.ok:
            errors = told.get("errors") if isinstance(told, dict) else None
            reasons = "; ".join(str(each) for each in errors) if isinstance(errors, list) else text[:500]
            raise GeneratorError(f"the generator at {self.url} refused {path}: {reasons or response.reason}")
        if not isinstance(told, dict):
            raise GeneratorError(f"the generator at {self.url} answered {path} with no object: {text[:200]!r}")
        return told

    def _nonsense(self, path: str, error: ValidationError) -> GeneratorError:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return GeneratorError(f"the generator at {self.url} answered {path} with what makes no sense: {place}: {first['msg']}")
