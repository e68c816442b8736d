"""Sends CI messages about Koji builds to an AMQP broker, for the gates of Fedora and CentOS Stream.

Fields: https://pagure.io/fedora-ci/messages. Wire format: https://fedora-messaging.readthedocs.io/en/stable/api/wire-format.html.
"""

from __future__ import annotations

import asyncio
import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import aio_pika
from pydantic import Field, model_validator

from ringroad_lab.amqp_broker import Broker, BrokerError, BrokerSettings
from ringroad_lab.errors import LabError
from ringroad_lab.koji_hub import HubError, KojiHub
from ringroad_lab.notification.interface import Notifier, Sender, TemporaryError, UnsentError
from ringroad_lab.notification.message import Notice, Occasion, Stage
from ringroad_lab.request.message import NotJsonError, read_payload
from ringroad_lab.request.model import MEASURED
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.text_types import Word
from ringroad_lab.trial import Frozen

_KIND = "ci-message"
VERSION = "0.2.1"
"""Version of the message fields."""
_SEVERITY_INFO = 20
_INSPECTED = (Verdict.INCONCLUSIVE, Verdict.INVALID)
_MAX_REASON_CHARACTERS = 4000
Text = Annotated[Word, Field(min_length=1)]


class Contact(Frozen):
    """Contact for questions about the measurements."""

    name: Text = "Ringroad laboratory"
    team: Text
    email: Annotated[Word, Field(pattern=r"^[^\s@]+@[^\s@]+$")]
    docs: Annotated[Word, Field(pattern=r"^https?://\S+$")]
    url: Annotated[Word | None, Field(pattern=r"^https?://\S+$")] = None


class CiMessage(Notifier, BrokerSettings):
    """Sends messages about requests for Koji builds to a message bus; ignores other requests."""

    title = "Sends CI messages about Koji builds to an AMQP broker"

    stages: Annotated[tuple[Stage, ...], Field(min_length=1)] = tuple(Stage)
    on: Annotated[tuple[Occasion, ...], Field(min_length=1)] = (Occasion.ALWAYS,)
    exchange: Text = "amq.topic"
    topic_prefix: Text = "org.centos.prod"
    artifact: Literal["koji-build", "brew-build"] = "koji-build"
    hub: Word = ""
    """URL of the Koji hub, which is queried for the task of a build: messages about tagged builds do not contain it."""
    hub_ca_file: Path | None = None
    contact: Contact
    namespace: Text = "ringroad-lab"
    """Namespace of the test, whose type is the scenario."""
    provider: Text = "ringroad-lab"
    architecture: Text = platform.machine()
    """Provider and architecture of the measuring machines."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.web_url:
            raise ValueError("set web_url: these messages must link to the run")
        return self

    def make_sender(self) -> Sender:
        """Read the files that the settings name.

        Raises:
            ScenarioError: a file is missing, or a setting is invalid.
        """
        return _CiMessageSender(self)

    def concerns(self, notice: Notice) -> bool:
        """Return whether the notice is about a Koji build."""
        fields = _fields(notice)
        is_build = any(isinstance(fields.get(name), int) for name in ("task_id", "build_id"))
        return is_build and super().concerns(notice)


class _CiMessageSender(Sender):
    def __init__(self, settings: CiMessage) -> None:
        self._settings = settings
        self._broker = Broker.of(settings, _KIND)
        self.address = f"{_KIND} {self._broker.name}"
        if settings.hub:
            KojiHub(settings.hub, settings.hub_ca_file).close()

    def deliver(self, notice: Notice, delivery: str, within_s: float) -> None:
        try:
            body = message_body(self._settings, notice, self._build(notice, within_s / 2))
            asyncio.run(self._publish(notice.stage, body, delivery, within_s / 2))
        except (BrokerError, HubError) as error:
            raise TemporaryError(str(error)) from error
        except LabError as error:
            raise UnsentError(str(error)) from error

    def _build(self, notice: Notice, within_s: float) -> dict[str, Any]:
        """Return the fields of the build from its message and from the hub."""
        fields, settings = _fields(notice), self._settings
        if not settings.hub or not isinstance(fields.get("build_id"), int):
            return fields
        hub = KojiHub(settings.hub, settings.hub_ca_file, within_s)
        try:
            known = hub.build(fields["build_id"])
        finally:
            hub.close()
        return {**fields, **{name: known[name] for name in ("task_id", "nvr", "name") if known.get(name) is not None}}

    async def _publish(self, stage: Stage, body: dict[str, Any], delivery: str, within_s: float) -> None:
        settings = self._settings
        message = aio_pika.Message(
            json.dumps(body).encode(),
            content_type="application/json",
            content_encoding="utf-8",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            # The same at each try, so that receivers can detect duplicates.
            message_id=delivery,
            headers={
                "fedora_messaging_schema": "base.message",
                "fedora_messaging_severity": _SEVERITY_INFO,
                "sent-at": datetime.now(UTC).isoformat(timespec="seconds"),
            },
        )
        async with self._broker.connected(within_s) as connection:
            async with asyncio.timeout(within_s):
                channel = await connection.channel()
                exchange = await channel.get_exchange(settings.exchange, ensure=False)
                # The broker confirms the message; it is no error if there are no subscribers.
                await exchange.publish(message, f"{settings.topic_prefix}.ci.{settings.artifact}.test.{stage}", mandatory=False)


def message_body(settings: CiMessage, notice: Notice, build: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a message; equal notices give equal fields.

    Raises:
        UnsentError: the build's task is unknown.
    """
    task, request = build.get("task_id"), notice.request
    if not isinstance(task, int) or request is None:
        how = "the hub has none" if settings.hub else "its message does not contain it: set hub"
        raise UnsentError(f"these messages need the task of the build, which is unknown: {how}")
    nvr = build.get("nvr") or "-".join(str(build.get(name)) for name in ("name", "version", "release"))
    page, scenario = settings.link(notice), request.scenario
    test: dict[str, Any] = {"category": "performance", "namespace": settings.namespace, "type": scenario, "scenario": request.bed_class}
    body: dict[str, Any] = {
        "contact": settings.contact.model_dump(exclude_none=True),
        "run": {"url": page, "log": page},
        "artifact": {
            "type": settings.artifact,
            "id": task,
            "component": str(build.get("name")),
            "issuer": str(build.get("owner") or build.get("user") or "unknown"),
            "scratch": False,
            "nvr": nvr,
        },
        "pipeline": {"id": f"{settings.namespace}-{request.id}", "name": f"{settings.namespace}: {scenario}"},
        "test": test,
        "generated_at": datetime.fromtimestamp(notice.happened_at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "version": VERSION,
    }
    if notice.stage is Stage.ERROR:
        body["error"] = {"reason": (notice.reason or notice.outcome or "there is no verdict")[-_MAX_REASON_CHARACTERS:]}
    elif notice.stage is Stage.COMPLETE:
        test["result"] = result_of(notice.verdict)
        if notice.record:
            test["runtime"] = round(notice.record.ended_at - notice.record.started_at)
        system = notice.record.facts.get("system", {}).get("name") if notice.record else None
        body["system"] = [{"os": system or "unknown", "provider": settings.provider, "architecture": settings.architecture}]
    return body


def result_of(verdict: str) -> str:
    """Return the CI result for a verdict."""
    if verdict == Verdict.REGRESSION:
        return "failed"
    if verdict in _INSPECTED:
        return "needs_inspection"
    # The first build has no baseline, so it did not pass a comparison.
    return "info" if verdict == MEASURED else "passed"


def _fields(notice: Notice) -> dict[str, Any]:
    """Return the fields of the message that caused the request; empty if it is not JSON."""
    if notice.request is None:
        return {}
    try:
        return read_payload(notice.payload)
    except NotJsonError:
        return {}
