"""Tables of the result store.

The raw JSON of a run's heads and measurements is the run; it is kept for ever and never edited. All other columns of a run are an index for
queries. Only migrations (`migrations/versions`) change tables; a test compares their result with these models.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Boolean, Double, ForeignKey, Index, Integer, MetaData, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from ringroad_lab.record import Better, MeasurementStatus, RunState
from ringroad_lab.statistics.verdict import Verdict
from ringroad_lab.store.column_types import enum_text
from ringroad_lab.store.queries import TesterVerdict


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

    def values(self, *left_out: str) -> dict[str, Any]:
        """Return the columns of a row by name, except those left out."""
        names = [column.key for column in self.__table__.columns]
        return {name: getattr(self, name) for name in names if name not in left_out}


class Run(Base):
    """A run."""

    __tablename__ = "run"

    run_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(Text, index=True)
    state: Mapped[RunState] = mapped_column(enum_text(RunState, 16))
    """A `RunState`; while the run is not ended, the state that it has if nothing more is written."""
    is_ended: Mapped[bool] = mapped_column(Boolean)
    """False while the run is active; stays False if it was killed."""
    started_at: Mapped[float] = mapped_column(Double, index=True)
    ended_at: Mapped[float] = mapped_column(Double)
    lab_version: Mapped[str] = mapped_column(Text)
    generator_version: Mapped[str] = mapped_column(Text)
    supersedes: Mapped[str | None] = mapped_column(String(64), index=True)
    """No foreign key: a run can be imported without the run that it supersedes."""

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
    status: Mapped[MeasurementStatus] = mapped_column(enum_text(MeasurementStatus, 16))
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
    better: Mapped[Better] = mapped_column(enum_text(Better, 16))


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
    verdict: Mapped[Verdict] = mapped_column(enum_text(Verdict, 16))
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
    verdict: Mapped[Verdict] = mapped_column(enum_text(Verdict, 16))
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
    verdict: Mapped[TesterVerdict] = mapped_column(enum_text(TesterVerdict, 16))
    """A `TesterVerdict`."""
    tester: Mapped[str] = mapped_column(Text)
    judged_at: Mapped[float] = mapped_column(Double)
