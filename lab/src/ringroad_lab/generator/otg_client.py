"""Client of any server of the Open Traffic Generator model.

snappi has the model's types. This module sends the requests itself, because snappi's own transport waits for a response without a limit.
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

# Limit of an answer: the metrics of all flows and Ringroad's latency distributions fit.
_MAX_ANSWER_BYTES = 64 << 20


class _Answer(BaseModel):
    """A server's response, validated as far as it is used here."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class PortMetric(_Answer):
    """Counters of a port."""

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
    """Counters, loss and latency of a flow."""

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
    """Time that frames were in flight."""

    latency_ns: Distribution | None = None


class Arrival(_Answer):
    """Frames of a flow that arrived at one port."""

    port: str
    received: int
    distinct: int
    excess: int
    duplicates: int
    reordered: int
    corrupted: int
    delay: Delay


class Offered(_Answer):
    """The load that a flow actually offered."""

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
    """Frames that arrived at a port and belong to none of its flows."""

    foreign_frames: int
    corrupted_unattributed: int
    unknown_stream_frames: int


class PortDetail(_Answer):
    """A port, as Ringroad's generator measured it."""

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
    """Comparison of the generator's clock with the system's."""

    source: str
    comparisons: int
    max_ns: int


class TrialDetail(_Answer):
    """Details beyond the model: the response to Ringroad's `GET /ringroad/flows`."""

    failure: PortFailure | None = None
    clock: ClockDetail
    flows: tuple[FlowDetail, ...]
    ports: tuple[PortDetail, ...]


class OtgClient:
    """Sends requests to one server."""

    def __init__(
        self, url: str, *, token: str | None = None, verify: bool | str = True, timeout_s: float = 30.0, has_details: bool = True
    ) -> None:
        """Take the URL of the server, as `https://HOST:PORT`, and the token that the server requires.

        With `verify`, its certificate must be trusted: by the system, or by a file of that name. With `has_details`, the client requests
        details beyond the model.
        """
        self._has_details = has_details
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._session = requests.Session()
        self._session.verify = verify
        # Proxies of the environment are for the Internet, not for a test setup.
        self._session.trust_env = False
        if token is not None:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def version(self) -> str:
        """Return name and version of the server, and of the model that it serves.

        Raises:
            GeneratorError: the server is unreachable, or does not serve the model.
        """
        versions = self._call("GET", "/capabilities/version")
        parts = {"api_spec_version": "OTG", "sdk_version": "SDK", "app_version": "server"}
        return ", ".join(f"{title} {versions[key]}" for key, title in parts.items() if versions.get(key)) or "unknown"

    def set_config(self, config: snappi.Config) -> None:
        """Apply a configuration.

        Raises:
            GeneratorError: the server rejected it, for example because a port cannot be opened.
        """
        self._call("POST", "/config", config.serialize("json"))

    def close_ports(self) -> None:
        """Make the server close all ports.

        Raises:
            GeneratorError: the server does not respond.
        """
        self.set_config(snappi.Config())

    def transmit(self, state: str, flow_names: Sequence[str] = ()) -> None:
        """Start or stop flows; all flows if none are named.

        Raises:
            GeneratorError: the server rejected the request.
        """
        control = snappi.ControlState()
        control.traffic.flow_transmit.state = state
        if flow_names:
            control.traffic.flow_transmit.flow_names = list(flow_names)
        self._call("POST", "/control/state", control.serialize("json"))

    def port_metrics(self) -> tuple[PortMetric, ...]:
        """Return the counters of the ports; cheap for the server.

        Raises:
            GeneratorError: a port failed.
        """
        request = snappi.MetricsRequest()
        request.port.port_names = []
        return self._metrics(request).port_metrics

    def flow_metrics(self) -> tuple[FlowMetric, ...]:
        """Return the metrics of the flows.

        Raises:
            GeneratorError: a port failed.
        """
        request = snappi.MetricsRequest()
        request.flow.flow_names = []
        return self._metrics(request).flow_metrics

    def detail(self) -> TrialDetail | None:
        """Return the details beyond the model; None if the server has none.

        Raises:
            GeneratorError: the response is invalid.
        """
        if not self._has_details:
            return None
        response, body = self._send("GET", "/ringroad/flows", None)
        if response.status_code in (404, 405, 501):
            return None
        try:
            return TrialDetail.model_validate(self._content(response, body, "/ringroad/flows"))
        except ValidationError as error:
            raise self._invalid("/ringroad/flows", error) from error

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def _metrics(self, request: snappi.MetricsRequest) -> _Metrics:
        try:
            return _Metrics.model_validate(self._call("POST", "/monitor/metrics", request.serialize("json")))
        except ValidationError as error:
            raise self._invalid("/monitor/metrics", error) from error

    def _call(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        return self._content(*self._send(method, path, body), path)

    def _send(self, method: str, path: str, body: str | None) -> tuple[requests.Response, bytes]:
        headers = {"Content-Type": "application/json", **IDENTITY}
        try:
            with self._session.request(
                method, self.url + path, data=body, headers=headers, timeout=self._timeout_s, stream=True
            ) as response:
                return response, read_answer(response, within_s=self._timeout_s, most_bytes=_MAX_ANSWER_BYTES)
        except (AnswerTooLongError, requests.RequestException) as error:
            raise GeneratorError(f"the generator at {self.url} does not answer {path}: {error}") from error

    def _content(self, response: requests.Response, body: bytes, path: str) -> dict[str, Any]:
        text = body.decode(errors="replace")
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        if not response.ok:
            errors = content.get("errors") if isinstance(content, dict) else None
            reasons = "; ".join(str(each) for each in errors) if isinstance(errors, list) else text[:500]
            raise GeneratorError(f"the generator at {self.url} refused {path}: {reasons or response.reason}")
        if not isinstance(content, dict):
            raise GeneratorError(f"the generator at {self.url} returned no JSON object for {path}: {text[:200]!r}")
        return content

    def _invalid(self, path: str, error: ValidationError) -> GeneratorError:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return GeneratorError(f"the generator at {self.url} returned an invalid response for {path}: {place}: {first['msg']}")
