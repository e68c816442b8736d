"""A Koji hub as a source: polled for tagged builds, in the order of its events, so that none is missed.

A message has the fields that the hub's plug-in sends to the bus for the same event, so that the same rules serve both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ringroad_lab.errors import LabError, StoreError
from ringroad_lab.fleet.positions import Positions
from ringroad_lab.fleet.sources.interface import Intake, Source, Watcher
from ringroad_lab.fleet.sources.own_thread import OwnThreadWatcher, Patience
from ringroad_lab.koji_hub import HubError, HubEvent, KojiHub
from ringroad_lab.request.message import Message
from ringroad_lab.text_types import Name, Word

# An event gets its number when its transaction begins, and becomes visible when that ends: an event with a greater number can be visible
# earlier. So the events of the last ten minutes are queried again.
SETTLED_AFTER_S = 600.0


class KojiSource(Source):
    """A hub that is polled regularly."""

    title = "A Koji hub, polled for tagged builds"

    hub: Word
    """URL of the hub: `https://koji.fedoraproject.org/kojihub`."""
    ca_file: Path | None = None
    """CA certificates for the hub's certificate; default: the system's."""
    tags: Annotated[tuple[Annotated[Word, Field(min_length=1)], ...], Field(min_length=1, max_length=100)]
    every_s: Annotated[float, Field(ge=1, le=86400)] = 60.0
    topic: Word = "org.fedoraproject.prod.buildsys.tag"
    """The `@event` of its messages: the topic of the same messages on the bus."""
    instance: Word = "primary"
    """The field `instance` of its messages."""
    kept_as: Annotated[Name | None, Field(alias="as")] = None
    """Source name under which its requests are kept; its own name if not given."""

    def watcher(self, name: str, intake: Intake) -> Watcher:
        """Return the watcher that polls the hub."""
        return KojiWatcher(name, self, intake)


class KojiWatcher(OwnThreadWatcher[KojiSource]):
    """Queries the builds tagged since a stored event, and stores the next event when all these builds are stored."""

    def __init__(self, name: str, source: KojiSource, intake: Intake, patience: Patience | None = None) -> None:
        """Take the source's name and settings, and the intake of its messages.

        Raises:
            ScenarioError: a setting is invalid.
        """
        super().__init__(name, source, intake, patience)
        self._hub = KojiHub(source.hub, source.ca_file, self.patience.answer_s)
        self._positions = Positions(intake.requests.store)
        self._seen: dict[str, set[tuple[int, str]]] = {tag: set() for tag in source.tags}
        """Events and builds that were taken, and will be queried again."""

    def work(self) -> float:
        """Query each tag once."""
        last = self._hub.last_event()
        if last is None:
            raise HubError(f"{self._hub.name} has no event yet")
        problems = []
        for tag in self.source.tags:
            # A missing tag must not block the others.
            try:
                self._query(tag, last)
            except StoreError:
                raise
            except LabError as error:
                problems.append(f"tag {tag}: {error}")
        if problems:
            raise LabError("; ".join(problems))
        return self.source.every_s

    def close(self) -> None:
        """Stop, and close the connection."""
        super().close()
        self._hub.close()

    def _query(self, tag: str, last: HubEvent) -> None:
        position = self._positions.get(self.name, tag)
        if position is None or position > last.id:
            if position is not None:
                self.intake.say(
                    f"source '{self.name}': {self._hub.name} had an event {position}, but its last event is now {last.id}: "
                    "the hub was reset. Builds tagged from now on are taken"
                )
            self._positions.remember(self.name, tag, last.id)
            return
        seen = self._seen[tag]
        for row in self._hub.tagged(tag, position, last.id):
            mark = (row["create_event"], str(row.get("build_id")))
            if self.stopping.is_set():
                return
            if mark not in seen:
                self._take(row)
                seen.add(mark)
        settled = self._hub.last_event(before=last.at - SETTLED_AFTER_S)
        if settled is not None and position < settled.id <= last.id:
            self._positions.remember(self.name, tag, settled.id)
            self._seen[tag] = {mark for mark in seen if mark[0] > settled.id}

    def _take(self, row: dict[str, Any]) -> None:
        body = {name: row.get(name) for name in ("build_id", "name", "version", "release", "tag_id")}
        body |= {"tag": row.get("tag.name"), "user": row.get("creator_name"), "instance": self.source.instance}
        body["owner"] = self._hub.build(row.get("build_id")).get("owner_name")
        at, now = row.get("create_ts"), self.intake.clock()
        # The time of the tagging: a build that the bus missed must be older than builds tagged after it.
        when = float(at) if isinstance(at, int | float) and 0 <= at <= now else now
        message = Message(self.source.kept_as or self.name, json.dumps(body, default=str).encode(), when, self.source.topic)
        self.take(message, f"build {row.get('build_id')}")
