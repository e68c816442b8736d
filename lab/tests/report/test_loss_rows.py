"""Where frames were lost, in all forms of reports."""

from __future__ import annotations

import csv
import io

from fabricated_runs import HOSTILE, fabricated_run
from ringroad_lab.record import GeneratorCeiling, Measurement, RunRecord
from ringroad_lab.report.csv import CsvReporter
from ringroad_lab.report.html import HtmlReporter
from ringroad_lab.report.loss_rows import loss_rows, loss_sentences
from ringroad_lab.report.markdown import MarkdownReporter
from ringroad_lab.trial import LOSS_PLACES, LossByPlace

NOWHERE = LossByPlace(refused=0, before_device=0, in_device=0, in_guests=0, behind_device=0, at_receiver=0, unexplained=0)


def run_with_losses(losses: dict[str, LossByPlace], dut: str = "") -> RunRecord:
    """Return a run with one measurement for each device; one trial of each lost 100 frames in one direction."""
    record = fabricated_run(capacities_fps=dict.fromkeys(losses, 1000.0), frames=["64"], repetitions=1, spread=0, latency=False)

    def with_loss(measurement: Measurement) -> Measurement:
        trial = measurement.trials[0]
        left, right = trial.directions
        loss = losses[measurement.dut]
        lost = left.model_copy(update={"received_frames": left.sent_frames - 100, "loss": loss})
        # Counters and the emptying of the ring are the same in both directions.
        values = loss.model_dump()
        none = LossByPlace.model_validate({place: frames and 0 if place in LOSS_PLACES else frames for place, frames in values.items()})
        right = right.model_copy(update={"received_frames": right.sent_frames, "loss": none})
        counters = {f"device: {dut}1.rx_dropped": 100}
        trial = trial.model_copy(update={"directions": (lost, right), "drop_counters": counters})
        return measurement.model_copy(update={"trials": (trial,), "dut": dut or measurement.dut})

    return record.model_copy(update={"measurements": tuple(map(with_loss, record.measurements))})


def test_a_sentence_states_where_frames_were_lost_and_whose_loss_they_are() -> None:
    record = run_with_losses(
        {
            "bridge": NOWHERE.model_copy(update={"refused": 69, "at_receiver": 31}),
            "memory": NOWHERE.model_copy(update={"refused": 100, "is_refused_by_device": True}),
            "mixed": NOWHERE.model_copy(update={"in_device": 25, "at_receiver": 75}),
            "nearly": NOWHERE.model_copy(update={"in_device": 1, "at_receiver": 9_999}),
            "clean": NOWHERE,
        }
    )
    assert loss_sentences(loss_rows(record)) == [
        "bridge: of 100 frames lost in all trials, 69.0 % refused by the generator's full ring, "
        "31.0 % lost at the generator's receive side; none of them counts as the device's loss.",
        "memory: of 100 frames lost in all trials, all left waiting in the ring that the device empties; "
        "all of them count as the device's loss.",
        "mixed: of 100 frames lost in all trials, 25.0 % lost in the device, 75.0 % lost at the generator's receive side; "
        "25.0 % count as the device's loss.",
        "nearly: of 10\u202f000 frames lost in all trials, under 0.1 % lost in the device, "
        "over 99.9 % lost at the generator's receive side; under 0.1 % count as the device's loss.",
    ]


def test_a_run_without_recorded_places_reports_none() -> None:
    record = fabricated_run(frames=["64"], repetitions=1)
    assert loss_rows(record) == []
    assert 'id="loss"' not in HtmlReporter().render(record)
    assert "Where frames were lost" not in MarkdownReporter().render(record)
    (row, *_) = csv.DictReader(io.StringIO(CsvReporter().render(record)))
    assert (row["lost_frames"], row["lost_in_device"], row["lost_of_device"]) == ("", "", "")


def test_every_form_reports_the_places_and_an_unknown_place_is_not_0() -> None:
    unknown = NOWHERE.model_copy(update={"in_device": None, "behind_device": None, "refused": 40, "unexplained": 60})
    record = run_with_losses({"bridge": unknown})
    page, text = HtmlReporter().render(record), MarkdownReporter().render(record)
    assert 'id="loss"' in page
    assert "<small>60 not explained by any counter and 40 refused by the generator&#39;s full ring</small>" in page
    assert "counted as dropped: device: 1.rx_dropped 100" in page
    assert "| P2P | throughput | bridge | 64 | 100 | 40 | 0 | unknown | 0 | unknown | 0 | 60 | 60 |" in text
    assert "bridge: of 100 frames lost in all trials, 40.0 % refused" in text
    (row, *_) = csv.DictReader(io.StringIO(CsvReporter().render(record)))
    assert [row[f"lost_{name}"] for name in ("frames", "refused", "in_device", "unexplained", "of_device")] == [
        "100",
        "40",
        "unknown",
        "60",
        "60",
    ]
    assert RunRecord.model_validate_json(record.model_dump_json()) == record


def test_the_report_shows_both_ceilings_with_the_cause_and_hostile_names_as_text() -> None:
    record = run_with_losses({"x": NOWHERE.model_copy(update={"refused": 100})}, HOSTILE)
    frame = record.measurements[0].frame
    again = GeneratorCeiling(transport="veth", frame=frame, ceiling_fps=9e4, cause=f"{HOSTILE}: it offered less")
    dut = record.duts[0].model_copy(update={"work_of_sender": f"{HOSTILE} all"})
    record = record.model_copy(update={"ceilings": (*record.ceilings, again), "duts": (dut,)})
    page, text = HtmlReporter().render(record), MarkdownReporter().render(record)
    assert HOSTILE not in page
    assert HOSTILE not in text
    assert page.count(": it offered less") == 1
    assert ": it offered less" in text
    assert "work in the generator&#39;s thread" in page
