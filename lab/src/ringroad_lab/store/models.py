"""Tables of the result store.

What a run is lies in the raw JSON of its heads and measurements, kept for ever and never edited. All other columns are an index of it for
queries. Tables change by a migration (`migrations/versions`) alone, which a test compares with what is here.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Double, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class Base(DeclarativeBase):
    """Of all tables of the store, those of the web page as well."""

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
    """A `RunState`; what it would be if nothing more came, while the run is not ended."""
    is_ended: Mapped[bool] = mapped_column(Boolean)
    """False while it runs, and for ever where it was killed."""
    started_at: Mapped[float] = mapped_column(Double, index=True)
    ended_at: Mapped[float] = mapped_column(Double)
    lab_version: Mapped[str] = mapped_column(Text)
    generator_version: Mapped[str] = mapped_column(Text)
    supersedes: Mapped[str | None] = mapped_column(String(64), index=True)
    """Not a foreign key: a run can be imported without the one before it."""

    heads: Mapped[list[RunHead]] = relationship(order_by="RunHead.sequence")
    labels: Mapped[list[RunLabel]] = relationship(cascade="all, delete-orphan", order_by="RunLabel.name")
    duts: Mapped[list[RunDut]] = relationship(cascade="all, delete-orphan", order_by="RunDut.position")


class RunHead(Base):
    """A run without its measurements, raw: one is written when it begins, one whenever it ends; the last counts."""

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
    """A figure of a measurement."""

    __tablename__ = "metric"

    measurement_id: Mapped[int] = mapped_column(ForeignKey("measurement.id"), primary_key=True)
    name: Mapped[str] = mapped_column(Text, primary_key=True, index=True)
    value: Mapped[float] = mapped_column(Double)
    unit: Mapped[str] = mapped_column(Text)
    better: Mapped[str] = mapped_column(String(16))


class Comparison(Base):
    """What came of comparing a run with another, or two devices of one run. One of the same sides takes its place."""

    __tablename__ = "comparison"
    __table_args__ = (Index("uq_comparison_sides", "run_id", "baseline_run_id", "dut", "baseline_dut", unique=True),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.run_id", ondelete="CASCADE"))
    """The candidate."""
    baseline_run_id: Mapped[str] = mapped_column(ForeignKey("run.run_id", ondelete="CASCADE"), index=True)
    dut: Mapped[str] = mapped_column(Text)
    """Label of the candidate where both are devices of one run, else empty."""
    baseline_dut: Mapped[str] = mapped_column(Text)
    verdict: Mapped[str] = mapped_column(String(16))
    """A `Verdict`, of the whole."""
    compared_at: Mapped[float] = mapped_column(Double)

    findings: Mapped[list[Finding]] = relationship(order_by="Finding.id")


class Finding(Base):
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
    """A name given to a run. Giving it to another adds a row; the last counts."""

    __tablename__ = "baseline"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    name: Mapped[str] = mapped_column(Text, index=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.run_id"))
    set_at: Mapped[float] = mapped_column(Double)


class Judgement(Base):
    """What a tester said of a run. Saying something else adds a row; the last counts."""

    __tablename__ = "judgement"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("run.run_id"), index=True)
    verdict: Mapped[str] = mapped_column(String(16))
    """A `TesterVerdict`."""
    tester: Mapped[str] = mapped_column(Text)
    judged_at: Mapped[float] = mapped_column(Double)


class Request(Base):
    """A build that is to be measured by a scenario: the one truth about what is to be done, under way and done."""

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
    """Of whose builds with the same tag the newest wins; empty: there is no such choice."""
    tag: Mapped[str] = mapped_column(Text)
    built_at: Mapped[float] = mapped_column(Double)
    """When the build was made, by its message; else when that came."""
    priority: Mapped[int] = mapped_column(Integer)
    owner: Mapped[str] = mapped_column(Text)
    attempts: Mapped[int] = mapped_column(Integer)
    duplicates: Mapped[int] = mapped_column(Integer)
    """How often the same came again."""
    last_error: Mapped[str] = mapped_column(Text)
    event: Mapped[str] = mapped_column(Text)
    """What the source calls the kind of message."""
    delivery: Mapped[str] = mapped_column(Text)
    """By what the source knows its message; empty where it has no such name."""
    payload: Mapped[bytes] = mapped_column(LargeBinary)
    """The message as it was received."""
    superseded_by: Mapped[int | None] = mapped_column(ForeignKey("request.id"))
    engine: Mapped[str] = mapped_column(String(64))
    job_key: Mapped[str] = mapped_column(Text)
    """By what the engine knows its job."""
    lease_holder: Mapped[str] = mapped_column(Text)
    """The dispatcher that sees to it; empty: none."""
    lease_until: Mapped[float] = mapped_column(Double)
    not_before: Mapped[float] = mapped_column(Double)
    """It is not tried again sooner."""
    run_id: Mapped[str | None] = mapped_column(String(64), index=True)
    """Not a foreign key: the id is there before the run."""
    verdict: Mapped[str] = mapped_column(String(32))
    created_at: Mapped[float] = mapped_column(Double)
    changed_at: Mapped[float] = mapped_column(Double)
    served_at: Mapped[float] = mapped_column(Double)
    """When a dispatcher took it last; 0: never."""
    beds: Mapped[str] = mapped_column(Text, server_default="")
    """Names of the beds of which its job may have one, in words; empty: the fleet has no beds, or there is no job."""


class RequestChange(Base):
    """A change of a request's state: when, by whom, why. Rows are added."""

    __tablename__ = "request_change"

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    request_id: Mapped[int] = mapped_column(ForeignKey("request.id"), index=True)
    changed_at: Mapped[float] = mapped_column(Double)
    old: Mapped[str] = mapped_column(String(16))
    """Empty where it was made."""
    new: Mapped[str] = mapped_column(String(16))
    actor: Mapped[str] = mapped_column(Text)
    why: Mapped[str] = mapped_column(Text)


class Notification(Base):
    """What is to be told of a request to one, and how far that has come. Made in the transaction in which the request changes."""

    __tablename__ = "notification"
    __table_args__ = (
        Index("uq_notification_key", "request_id", "round", "stage", "target", unique=True),
        Index(None, "state", "target"),
    )

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    request_id: Mapped[int] = mapped_column(ForeignKey("request.id", ondelete="CASCADE"))
    round: Mapped[int] = mapped_column(Integer)
    """How often the request was begun anew before."""
    stage: Mapped[str] = mapped_column(String(16))
    target: Mapped[str] = mapped_column(Text)
    """Who is told, by name; empty: everybody, for whom a dispatcher puts a row for each who is concerned in its place."""
    state: Mapped[str] = mapped_column(String(16))
    """A `DeliveryState`."""
    run_id: Mapped[str | None] = mapped_column(String(64))
    outcome: Mapped[str] = mapped_column(String(32))
    """Verdict, or the state in which the request ended without one; empty before its end."""
    reason: Mapped[str] = mapped_column(Text)
    happened_at: Mapped[float] = mapped_column(Double)
    delivery: Mapped[str] = mapped_column(String(36))
    """By which whoever is told knows it again: the same at each attempt."""
    attempts: Mapped[int] = mapped_column(Integer)
    last_error: Mapped[str] = mapped_column(Text)
    asked_at: Mapped[float] = mapped_column(Double)
    """Since when it is tried."""
    not_before: Mapped[float] = mapped_column(Double)
    """It is not tried again sooner."""
    changed_at: Mapped[float] = mapped_column(Double)
    """When it was delivered, given up, or tried last."""
    holder: Mapped[str] = mapped_column(Text)
    """The dispatcher that tries now; empty: none."""
    held_until: Mapped[float] = mapped_column(Double)


class SourceCount(Base):
    """How many messages of a source came to what."""

    __tablename__ = "source_count"

    source: Mapped[str] = mapped_column(String(64), primary_key=True)
    outcome: Mapped[str] = mapped_column(String(32), primary_key=True)
    messages: Mapped[int] = mapped_column(Integer)
    last_at: Mapped[float] = mapped_column(Double)


class SourcePosition(Base):
    """How far a source that is asked has been read: all up to there came to what it came to."""

    __tablename__ = "source_position"

    source: Mapped[str] = mapped_column(String(64), primary_key=True)
    part: Mapped[str] = mapped_column(Text, primary_key=True)
    """Of the source, which is read by itself: a tag of a Koji hub."""
    position: Mapped[int] = mapped_column(BigInteger)
    """A number of the source's own that grows: an event of a Koji hub."""
    changed_at: Mapped[float] = mapped_column(Double)


class Bed(Base):
    """A bed of `fleet.toml`, as far as the file cannot know it: who has it, and whether it may be had."""

    __tablename__ = "bed"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    token: Mapped[int] = mapped_column(Integer)
    """Grows each time it is taken; who took it with a smaller one has it no more."""
    holder: Mapped[str] = mapped_column(Text)
    """The process of the run that has it; empty: none."""
    lease_until: Mapped[float] = mapped_column(Double)
    quarantine: Mapped[str] = mapped_column(Text)
    """Why it is in quarantine; empty: it is not."""
    quarantined_at: Mapped[float] = mapped_column(Double)
    quarantined_by: Mapped[str] = mapped_column(Text)


class BedOccupancy(Base):
    """A taking of a bed: which run had it, from when to when."""

    __tablename__ = "bed_occupancy"
    __table_args__ = (Index("uq_bed_occupancy_bed_token", "bed", "token", unique=True),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    bed: Mapped[str] = mapped_column(ForeignKey("bed.name"))
    token: Mapped[int] = mapped_column(Integer)
    run_id: Mapped[str] = mapped_column(String(64), index=True)
    """Not a foreign key: the bed is taken before the run begins."""
    request_id: Mapped[int | None] = mapped_column(ForeignKey("request.id"))
    holder: Mapped[str] = mapped_column(Text)
    taken_at: Mapped[float] = mapped_column(Double, index=True)
    waited_s: Mapped[float | None] = mapped_column(Double)
    """How long its request had waited; None without one."""
    ended_at: Mapped[float | None] = mapped_column(Double)
    """None while it has it, and where nobody has seen yet that it lost it."""
    outcome: Mapped[str] = mapped_column(Text)


class BedCalibration(Base):
    """What the generator of a bed carried by itself before a run."""

    __tablename__ = "bed_calibration"
    __table_args__ = (Index(None, "bed", "load_digest", "transport", "frame"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    bed: Mapped[str] = mapped_column(ForeignKey("bed.name"))
    run_id: Mapped[str] = mapped_column(String(64))
    load_digest: Mapped[str] = mapped_column(String(64))
    """Of the generator's settings and what else of the scenario its ceiling depends on: only like is compared with like."""
    transport: Mapped[str] = mapped_column(Text)
    frame: Mapped[str] = mapped_column(Text)
    """Name of the frame mix."""
    ceiling_fps: Mapped[float] = mapped_column(Double)
    measured_at: Mapped[float] = mapped_column(Double)
    is_good: Mapped[bool] = mapped_column(Boolean)
    """Whether later ones are compared with it."""
