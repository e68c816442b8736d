"""Tables of the fleet in the result store, besides the tables of requests."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import BigInteger, Boolean, Double, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from ringroad_lab.notification.message import Stage
from ringroad_lab.request.table import Request
from ringroad_lab.store.column_types import enum_text
from ringroad_lab.store.models import Base


class DeliveryState(StrEnum):
    """The state of a delivery."""

    WAITING = "waiting"
    """Waits to be sent, or to be sent again after a failure."""
    DELIVERED = "delivered"
    UNDELIVERED = "undelivered"
    """Rejected permanently, or given up; `last_error` has the reason."""


class Notification(Base):
    """A notification about a request to one recipient, and its delivery state. Created in the transaction that changes the request."""

    __tablename__ = "notification"
    __table_args__ = (
        Index("uq_notification_key", "request_id", "round", "stage", "target", unique=True),
        Index(None, "state", "target"),
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    request_id: Mapped[int] = mapped_column(ForeignKey(Request.id, ondelete="CASCADE"))
    round: Mapped[int] = mapped_column(Integer)
    """Number of times that the request was restarted before."""
    stage: Mapped[Stage] = mapped_column(enum_text(Stage, 16))
    target: Mapped[str] = mapped_column(Text)
    """Name of the recipient; empty: not yet addressed; a dispatcher replaces the row with one row for each recipient."""
    state: Mapped[DeliveryState] = mapped_column(enum_text(DeliveryState, 16), default=DeliveryState.WAITING)
    run_id: Mapped[str | None] = mapped_column(String(64))
    outcome: Mapped[str] = mapped_column(String(32))
    """The verdict, or the final state of a request without a verdict; empty before its end."""
    reason: Mapped[str] = mapped_column(Text)
    happened_at: Mapped[float] = mapped_column(Double)
    delivery: Mapped[str] = mapped_column(String(36), default="")
    """The recipient can recognize duplicates by this id: it is the same at each attempt."""
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    last_error: Mapped[str] = mapped_column(Text, default="")
    asked_at: Mapped[float] = mapped_column(Double)
    """Time at which delivery was requested, at first or again."""
    not_before: Mapped[float] = mapped_column(Double, default=0.0)
    """Earliest time of the next attempt."""
    changed_at: Mapped[float] = mapped_column(Double)
    """Time of the delivery, of giving up, or of the last attempt."""
    holder: Mapped[str] = mapped_column(Text, default="")
    """The dispatcher that is sending now; empty: none."""
    held_until: Mapped[float] = mapped_column(Double, default=0.0)

    def as_json(self) -> dict[str, Any]:
        """Return the notification for programs (JSON)."""
        return self.values("id", "request_id", "round", "reason", "asked_at", "holder", "held_until")


class SourceCount(Base):
    """Number of messages of a source by outcome."""

    __tablename__ = "source_count"

    source: Mapped[str] = mapped_column(String(64), primary_key=True)
    outcome: Mapped[str] = mapped_column(String(32), primary_key=True)
    messages: Mapped[int] = mapped_column(Integer)
    last_at: Mapped[float] = mapped_column(Double)


class SourcePosition(Base):
    """Position up to which a polled source has been read and processed."""

    __tablename__ = "source_position"

    source: Mapped[str] = mapped_column(String(64), primary_key=True)
    part: Mapped[str] = mapped_column(Text, primary_key=True)
    """A part of the source that is read separately: a tag of a Koji hub."""
    position: Mapped[int] = mapped_column(BigInteger)
    """An increasing number of the source: an event of a Koji hub."""
    changed_at: Mapped[float] = mapped_column(Double)


class StoredBed(Base):
    """State of a bed of `fleet.toml`: its current holder, and whether it is in quarantine."""

    __tablename__ = "bed"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    token: Mapped[int] = mapped_column(Integer, default=0)
    """Incremented each time the bed is taken; a holder with a smaller token has lost the bed."""
    holder: Mapped[str] = mapped_column(Text, default="")
    """The process of the run that holds the bed; empty: none."""
    lease_until: Mapped[float] = mapped_column(Double, default=0.0)
    quarantine: Mapped[str] = mapped_column(Text, default="")
    """Reason of the quarantine; empty: not in quarantine."""
    quarantined_at: Mapped[float] = mapped_column(Double, default=0.0)
    quarantined_by: Mapped[str] = mapped_column(Text, default="")


class BedOccupancy(Base):
    """An occupancy of a bed: the run that held it, from start to end."""

    __tablename__ = "bed_occupancy"
    __table_args__ = (Index("uq_bed_occupancy_bed_token", "bed", "token", unique=True),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    bed: Mapped[str] = mapped_column(ForeignKey("bed.name"))
    token: Mapped[int] = mapped_column(Integer)
    run_id: Mapped[str] = mapped_column(String(64), index=True)
    """No foreign key: the bed is taken before the run starts."""
    request_id: Mapped[int | None] = mapped_column(ForeignKey(Request.id))
    holder: Mapped[str] = mapped_column(Text)
    taken_at: Mapped[float] = mapped_column(Double, index=True)
    waited_s: Mapped[float | None] = mapped_column(Double)
    """Time that its request waited; None without a request."""
    ended_at: Mapped[float | None] = mapped_column(Double)
    """None while the run holds the bed, and until another process detects that the run lost it."""
    outcome: Mapped[str] = mapped_column(Text, default="")


class BedCalibration(Base):
    """The rate that the generator of a bed reached without a device, before a run."""

    __tablename__ = "bed_calibration"
    __table_args__ = (Index(None, "bed", "load_digest", "transport", "frame"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    bed: Mapped[str] = mapped_column(ForeignKey("bed.name"))
    run_id: Mapped[str] = mapped_column(String(64))
    load_digest: Mapped[str] = mapped_column(String(64))
    """Digest of the generator's settings and the scenario settings that affect its ceiling: only equal digests are compared."""
    transport: Mapped[str] = mapped_column(Text)
    frame: Mapped[str] = mapped_column(Text)
    """Name of the frame mix."""
    ceiling_fps: Mapped[float] = mapped_column(Double)
    measured_at: Mapped[float] = mapped_column(Double)
    is_good: Mapped[bool] = mapped_column(Boolean)
    """Whether later calibrations are compared with this one."""
