"""Tables of the result store.

The raw JSON of a run's heads and measurements is the run; it is kept for ever and never edited. All other columns of a run are an index for
queries. Only migrations (`migrations/versions`) change tables; a test compares their result with these models.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Double, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    """Base class of all tables of the store, including the tables of the web page."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Run(Base):
    """A run."""

    __tablename__ = "run"

    run_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(Text, index=True)
    state: Mapped[str] = mapped_column(String(16))
    """A `RunState`; while the run is not ended, the state that it has if nothing more is written."""
    is_ended: Mapped[bool] = mapped_column(Boolean)
    """False while the run is active; stays False if it was killed."""
    started_at: Mapped[float] = mapped_column(Double, index=True)
    ended_at: Mapped[float] = mapped_column(Double)
    lab_version: Mapped[str] = mapped_column(Text)
    generator_version: Mapped[str] = mapped_column(Text)
    supersedes: Mapped[str | None] = mapped_column(String(64), index=True)
    """Not a foreign key: a run can be imported without the run that it supersedes."""

    heads: Mapped[list[RunHead]] = relationship(order_by="RunHead.sequence")
    labels: Mapped[list[RunLabel]] = relationship(cascade="all, delete-orphan", order_by="RunLabel.name")
    duts: Mapped[list[RunDut]] = relationship(cascade="all, delete-orphan", order_by="RunDut.position")


class RunHead(Base):
    """A run without its measurements, raw: one row is written when the run starts and one at each end; the last row counts."""

    __tablename__ = "run_head"

    run_id: Mapped[str] = mapped_column(ForeignKey("run.run_id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    raw: Mapped[str] = mapped_column(Text)


class RunLabel(Base):
    """A label of a run: version under test, build, branch, ..."""

    __tablename__ = "run_label"
    __table_args__ = (Index(None, "name", "value"),)

    run_id: Mapped[str] = mapped_column(ForeignKey("run.run_id"), primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class RunDut(Base):
    """A device under test of a run."""

    __tablename__ = "run_dut"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.run_id"), index=True)
    position: Mapped[int] = mapped_column(Integer)
    label: Mapped[str] = mapped_column(Text, index=True)
    driver: Mapped[str] = mapped_column(Text, index=True)

    versions: Mapped[list[DutVersion]] = relationship(cascade="all, delete-orphan")


class DutVersion(Base):
    """The version of a program of a device under test."""

    __tablename__ = "dut_version"

    dut_id: Mapped[int] = mapped_column(ForeignKey("run_dut.id"), primary_key=True)
    program: Mapped[str] = mapped_column(Text, primary_key=True)
    version: Mapped[str] = mapped_column(Text, index=True)


class StoredMeasurement(Base):
    """A measurement of a run."""

    __tablename__ = "measurement"
    __table_args__ = (Index("uq_measurement_run_id_number", "run_id", "number", unique=True),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.run_id"))
    number: Mapped[int] = mapped_column(Integer)
    dut: Mapped[str] = mapped_column(Text, index=True)
    driver: Mapped[str] = mapped_column(Text)
    topology: Mapped[str] = mapped_column(Text)
    method: Mapped[str] = mapped_column(Text)
    frame: Mapped[str] = mapped_column(Text)
    """Name of the frame mix."""
    repetition: Mapped[int] = mapped_column(Integer)
    started_at: Mapped[float] = mapped_column(Double)
    elapsed_s: Mapped[float] = mapped_column(Double)
    status: Mapped[str] = mapped_column(String(16))
    headline: Mapped[str] = mapped_column(Text)
    raw: Mapped[str] = mapped_column(Text)

    metrics: Mapped[list[StoredMetric]] = relationship()


class StoredMetric(Base):
    """A metric of a measurement."""

    __tablename__ = "metric"

    measurement_id: Mapped[int] = mapped_column(ForeignKey("measurement.id"), primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True, index=True)
    value: Mapped[float] = mapped_column(Double)
    unit: Mapped[str] = mapped_column(Text)
    better: Mapped[str] = mapped_column(String(16))


class Comparison(Base):
    """The result of comparing two runs, or two devices of one run. A new comparison of the same sides replaces it."""

    __tablename__ = "comparison"
    __table_args__ = (Index("uq_comparison_sides", "run_id", "baseline_run_id", "dut", "baseline_dut", unique=True),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.run_id", ondelete="CASCADE"))
    """The candidate."""
    baseline_run_id: Mapped[str] = mapped_column(ForeignKey("run.run_id", ondelete="CASCADE"), index=True)
    dut: Mapped[str] = mapped_column(Text)
    """Label of the candidate if both sides are devices of one run, else empty."""
    baseline_dut: Mapped[str] = mapped_column(Text)
    verdict: Mapped[str] = mapped_column(String(16))
    """The overall `Verdict`."""
    compared_at: Mapped[float] = mapped_column(Double)

    findings: Mapped[list[StoredFinding]] = relationship(order_by="StoredFinding.id")


class StoredFinding(Base):
    """The verdict of a comparison on one headline metric."""

    __tablename__ = "finding"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    comparison_id: Mapped[int] = mapped_column(ForeignKey("comparison.id", ondelete="CASCADE"), index=True)
    topology: Mapped[str] = mapped_column(Text)
    dut: Mapped[str] = mapped_column(Text)
    method: Mapped[str] = mapped_column(Text)
    frame: Mapped[str] = mapped_column(Text)
    metric: Mapped[str] = mapped_column(Text)
    verdict: Mapped[str] = mapped_column(String(16))
    ratio: Mapped[float | None] = mapped_column(Double)


class Baseline(Base):
    """A name of a run. Moving the name to another run adds a row; the last row counts."""

    __tablename__ = "baseline"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(Text, index=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.run_id"))
    set_at: Mapped[float] = mapped_column(Double)


class StoredVerdict(Base):
    """A tester's verdict on a run. A new verdict adds a row; the last row counts."""

    __tablename__ = "judgement"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.run_id"), index=True)
    verdict: Mapped[str] = mapped_column(String(16))
    """A `TesterVerdict`."""
    tester: Mapped[str] = mapped_column(Text)
    judged_at: Mapped[float] = mapped_column(Double)


class Request(Base):
    """A request to measure a build with a scenario. This table is the authoritative state of queued, active and finished work."""

    __tablename__ = "request"
    __table_args__ = (
        Index("uq_request_key", "source", "build", "scenario", "bed_class", unique=True),
        Index(None, "state", "bed_class"),
        Index(None, "package", "tag"),
        Index(None, "source", "delivery"),
        Index(None, "owner", "priority", "served_at"),
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    source: Mapped[str] = mapped_column(String(64))
    build: Mapped[str] = mapped_column(Text)
    scenario: Mapped[str] = mapped_column(Text)
    bed_class: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))
    """A `RequestState`."""
    order: Mapped[str] = mapped_column(Text)
    """Layers, settings, labels and baseline of the run, JSON."""
    package: Mapped[str] = mapped_column(Text)
    """The newest build of this package and tag supersedes the others; empty: no build supersedes another."""
    tag: Mapped[str] = mapped_column(Text)
    built_at: Mapped[float] = mapped_column(Double)
    """Build time from the message; else the time at which the message was received."""
    priority: Mapped[int] = mapped_column(Integer)
    owner: Mapped[str] = mapped_column(Text)
    attempts: Mapped[int] = mapped_column(Integer)
    duplicates: Mapped[int] = mapped_column(Integer)
    """How often the same request was received again."""
    last_error: Mapped[str] = mapped_column(Text)
    event: Mapped[str] = mapped_column(Text)
    """The source's name for the kind of message."""
    delivery: Mapped[str] = mapped_column(Text)
    """The source's id of the message; empty if it has none."""
    payload: Mapped[bytes] = mapped_column(LargeBinary)
    """The message as it was received."""
    superseded_by: Mapped[int | None] = mapped_column(ForeignKey("request.id"))
    engine: Mapped[str] = mapped_column(String(64))
    job_key: Mapped[str] = mapped_column(Text)
    """The engine's id of the job."""
    lease_holder: Mapped[str] = mapped_column(Text)
    """The dispatcher that handles the request; empty: none."""
    lease_until: Mapped[float] = mapped_column(Double)
    not_before: Mapped[float] = mapped_column(Double)
    """Earliest time of the next attempt."""
    run_id: Mapped[str | None] = mapped_column(String(64), index=True)
    """Not a foreign key: the id is assigned before the run is stored."""
    verdict: Mapped[str] = mapped_column(String(32))
    created_at: Mapped[float] = mapped_column(Double)
    changed_at: Mapped[float] = mapped_column(Double)
    served_at: Mapped[float] = mapped_column(Double)
    """When a dispatcher last claimed the request; 0: never."""
    beds: Mapped[str] = mapped_column(Text, server_default="")
    """Names of the beds that the job can take, separated by spaces; empty: the fleet has no beds, or there is no job."""


class RequestChange(Base):
    """A change of a request's state: time, actor and reason. Rows are only added."""

    __tablename__ = "request_change"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    request_id: Mapped[int] = mapped_column(ForeignKey("request.id"), index=True)
    changed_at: Mapped[float] = mapped_column(Double)
    old: Mapped[str] = mapped_column(String(16))
    """Empty at the creation of the request."""
    new: Mapped[str] = mapped_column(String(16))
    actor: Mapped[str] = mapped_column(Text)
    why: Mapped[str] = mapped_column(Text)


class Notification(Base):
    """A notification about a request to one recipient, and its delivery state. Created in the transaction that changes the request."""

    __tablename__ = "notification"
    __table_args__ = (
        Index("uq_notification_key", "request_id", "round", "stage", "target", unique=True),
        Index(None, "state", "target"),
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    request_id: Mapped[int] = mapped_column(ForeignKey("request.id", ondelete="CASCADE"))
    round: Mapped[int] = mapped_column(Integer)
    """How often the request was restarted before."""
    stage: Mapped[str] = mapped_column(String(16))
    target: Mapped[str] = mapped_column(Text)
    """Name of the recipient; empty: not yet addressed; a dispatcher replaces the row with one row for each recipient."""
    state: Mapped[str] = mapped_column(String(16))
    """A `DeliveryState`."""
    run_id: Mapped[str | None] = mapped_column(String(64))
    outcome: Mapped[str] = mapped_column(String(32))
    """The verdict, or the final state of a request without a verdict; empty before its end."""
    reason: Mapped[str] = mapped_column(Text)
    happened_at: Mapped[float] = mapped_column(Double)
    delivery: Mapped[str] = mapped_column(String(36))
    """The recipient can recognize duplicates by this id: it is the same at each attempt."""
    attempts: Mapped[int] = mapped_column(Integer)
    last_error: Mapped[str] = mapped_column(Text)
    asked_at: Mapped[float] = mapped_column(Double)
    """When delivery was requested, at first or again."""
    not_before: Mapped[float] = mapped_column(Double)
    """Earliest time of the next attempt."""
    changed_at: Mapped[float] = mapped_column(Double)
    """Time of the delivery, of giving up, or of the last attempt."""
    holder: Mapped[str] = mapped_column(Text)
    """The dispatcher that is sending now; empty: none."""
    held_until: Mapped[float] = mapped_column(Double)


class SourceCount(Base):
    """Number of messages of a source by outcome."""

    __tablename__ = "source_count"

    source: Mapped[str] = mapped_column(String(64), primary_key=True)
    outcome: Mapped[str] = mapped_column(String(32), primary_key=True)
    messages: Mapped[int] = mapped_column(Integer)
    last_at: Mapped[float] = mapped_column(Double)


class SourcePosition(Base):
    """How far a polled source has been read: everything up to this position is processed."""

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
    token: Mapped[int] = mapped_column(Integer)
    """Incremented each time the bed is taken; a holder with a smaller token has lost the bed."""
    holder: Mapped[str] = mapped_column(Text)
    """The process of the run that holds the bed; empty: none."""
    lease_until: Mapped[float] = mapped_column(Double)
    quarantine: Mapped[str] = mapped_column(Text)
    """Reason of the quarantine; empty: not in quarantine."""
    quarantined_at: Mapped[float] = mapped_column(Double)
    quarantined_by: Mapped[str] = mapped_column(Text)


class BedOccupancy(Base):
    """An occupancy of a bed: the run that held it, from start to end."""

    __tablename__ = "bed_occupancy"
    __table_args__ = (Index("uq_bed_occupancy_bed_token", "bed", "token", unique=True),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    bed: Mapped[str] = mapped_column(ForeignKey("bed.name"))
    token: Mapped[int] = mapped_column(Integer)
    run_id: Mapped[str] = mapped_column(String(64), index=True)
    """Not a foreign key: the bed is taken before the run starts."""
    request_id: Mapped[int | None] = mapped_column(ForeignKey("request.id"))
    holder: Mapped[str] = mapped_column(Text)
    taken_at: Mapped[float] = mapped_column(Double, index=True)
    waited_s: Mapped[float | None] = mapped_column(Double)
    """How long its request waited; None without a request."""
    ended_at: Mapped[float | None] = mapped_column(Double)
    """None while the run holds the bed, and until another process detects that the run lost it."""
    outcome: Mapped[str] = mapped_column(Text)


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
