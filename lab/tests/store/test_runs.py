"""Runs are stored and read back unchanged."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from pathlib import Path

import pytest
from sqlalchemy import select, text

from fabricated_runs import HOSTILE, fabricated_run, fabricated_throughput
from faulty_proxy import FaultyProxy, to_unix
from own_postgresql import make_user
from ringroad_lab.errors import StoreError
from ringroad_lab.frame_size import IMIX
from ringroad_lab.record import LogExcerpt, MeasurementStatus, RunState
from ringroad_lab.store.models import StoredMeasurement
from ringroad_lab.store.queries import RunFilter
from ringroad_lab.store.result_store import ResultStore
from ringroad_lab.store.rows import indexed
from store_writers import append, head_of, measure_until_killed


def test_a_whole_run_is_read_back_unchanged(store: ResultStore) -> None:
    record = fabricated_run(
        name=HOSTILE, logs=[LogExcerpt(source="x\0y", text="a\0b\udcff".encode(errors="replace").decode() + "é\x1b[0m")]
    )
    assert store.add_run(record)
    assert store.get_run(record.run_id) == record


def test_adding_the_same_run_again_is_allowed_and_other_content_is_an_error(store: ResultStore) -> None:
    record = fabricated_run()
    assert store.add_run(record)
    assert not store.add_run(record)
    other = record.model_copy(update={"name": "other"})
    with pytest.raises(StoreError, match="never edited"):
        store.add_run(other)
    fewer = record.model_copy(update={"measurements": record.measurements[1:]})
    with pytest.raises(StoreError, match="never edited"):
        store.add_run(fewer)
    assert store.get_run(record.run_id) == record


def test_several_runs_are_added_all_or_none(store: ResultStore) -> None:
    first, second = fabricated_run(seed=1), fabricated_run(seed=2)
    store.add_run(second)
    with pytest.raises(StoreError, match="never edited"):
        store.add_runs([first, second.model_copy(update={"name": "other"})])
    assert store.count() == 1


def test_a_run_grows_measurement_by_measurement(store: ResultStore) -> None:
    record = fabricated_run()
    store.begin_run(head_of(record))
    for measurement in record.measurements:
        store.add_measurement(record.run_id, measurement)
    (summary,) = store.summaries()
    assert not summary.is_ended
    assert summary.statuses == {MeasurementStatus.OK: len(record.measurements)}
    store.end_run(record.model_copy(update={"measurements": ()}))
    assert store.get_run(record.run_id) == record
    assert store.summaries()[0].is_ended


def test_a_stopped_run_can_resume_and_a_finished_run_cannot(store: ResultStore) -> None:
    record = fabricated_run()
    first, second, *_ = record.measurements
    store.begin_run(head_of(record))
    store.add_measurement(record.run_id, first)
    store.end_run(head_of(record))
    assert store.get_run(record.run_id).state is RunState.STOPPED
    assert store.summaries()[0].is_ended
    store.add_measurement(record.run_id, second)
    assert not store.summaries()[0].is_ended
    finished = record.model_copy(update={"measurements": (first, second)})
    store.end_run(finished)
    assert store.get_run(record.run_id) == finished
    with pytest.raises(StoreError, match="is finished"):
        store.add_measurement(record.run_id, record.measurements[2])
    with pytest.raises(StoreError, match="is finished"):
        store.end_run(finished)


def test_measurements_that_do_not_fit_a_run_are_rejected(store: ResultStore) -> None:
    record = fabricated_run()
    with pytest.raises(StoreError, match="no run"):
        store.add_measurement(record.run_id, record.measurements[0])
    with pytest.raises(StoreError, match="before it begins"):
        store.begin_run(record)
    store.begin_run(head_of(record))
    with pytest.raises(StoreError, match="already"):
        store.begin_run(head_of(record))
    store.add_measurement(record.run_id, record.measurements[0])
    with pytest.raises(StoreError, match="already has a measurement 0"):
        store.add_measurement(record.run_id, record.measurements[0])
    with pytest.raises(StoreError, match="other measurements"):
        store.end_run(record)
    with pytest.raises(StoreError, match="cannot be the id"):
        store.add_run(record.model_copy(update={"run_id": "../../etc"}))
    twice = record.model_copy(update={"run_id": "twice", "measurements": record.measurements[:1] * 2})
    with pytest.raises(StoreError, match="with the same number"):
        store.add_run(twice)


@pytest.mark.parametrize("field", ["number", "repetition"])
@pytest.mark.parametrize("value", [2**31, 10**30])
def test_a_number_beyond_the_range_of_databases_is_rejected(store: ResultStore, field: str, value: int) -> None:
    record = fabricated_run()
    measurement = record.measurements[0].model_copy(update={field: value})
    with pytest.raises(StoreError, match=str(2**31 - 1)):
        store.add_run(record.model_copy(update={"measurements": (measurement,)}))
    assert store.count() == 0


def test_hostile_texts_of_any_length_are_found_by_their_beginning(store: ResultStore) -> None:
    for seed, (label, driver) in enumerate((("x" * 300, "long"), ("nul", "nul\0" * 100))):
        record = fabricated_run(capacities_fps={label: 1e6}, latency=False, seed=seed)
        record = record.model_copy(update={"duts": tuple(dut.model_copy(update={"driver": driver}) for dut in record.duts)})
        store.add_run(record)
        assert store.get_run(record.run_id) == record
        assert store.count(RunFilter(dut=label)) == store.count(RunFilter(dut=driver)) == 1
        with store.reading() as session:
            drivers = session.scalars(select(StoredMeasurement.driver).filter_by(run_id=record.run_id))
            assert set(drivers) == {indexed(driver)}


def test_text_that_is_not_unicode_is_reported(store: ResultStore) -> None:
    with pytest.raises(StoreError, match="surrogates"):
        store.resolve("\udcff" * 4)


def test_the_store_reconnects_after_a_restart_of_the_database(location: str, store: ResultStore) -> None:
    assert store.count() == 0
    if location.startswith("postgresql"):
        with ResultStore(location) as other, contextlib.suppress(StoreError), other.reading() as session:
            # Ends the connections of both.
            session.execute(text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = current_user"))
    assert store.add_run(fabricated_run())


def test_the_store_reconnects_if_its_connection_is_reset(postgres_socket: Path) -> None:
    with FaultyProxy("127.0.0.1", to_unix(postgres_socket)) as proxy:
        with ResultStore(f"postgresql://{make_user(postgres_socket)}@127.0.0.1:{proxy.port}/postgres") as store:
            assert store.count() == 0
            proxy.cut_at(b"begin transaction", resets=True)
            assert store.add_run(fabricated_run())
        assert proxy.met.is_set()


def test_a_killed_run_keeps_its_measurements(location: str) -> None:
    record = fabricated_run()
    process = multiprocessing.get_context("spawn").Process(target=measure_until_killed, args=(location, record))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    with ResultStore(location) as store:
        kept = store.get_run(record.run_id)
        assert kept.measurements == record.measurements[:5]
        assert kept.state is RunState.STOPPED
        store.add_measurement(record.run_id, record.measurements[5])
        store.end_run(record.model_copy(update={"measurements": record.measurements[:6]}))


def test_concurrent_processes_create_and_fill_a_store(location: str) -> None:
    records = [fabricated_run(seed=seed) for seed in range(3)]
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=append, args=(location, record)) for record in records]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    with ResultStore(location) as store:
        assert [store.get_run(record.run_id) for record in records] == records


def test_a_rejected_measurement_leaves_nothing(store: ResultStore) -> None:
    record = fabricated_run()
    store.add_run(record)
    extra = fabricated_throughput(len(record.measurements), "ovs", IMIX, 1.0)
    with pytest.raises(StoreError):
        store.add_measurement(record.run_id, extra)
    assert store.get_run(record.run_id) == record
