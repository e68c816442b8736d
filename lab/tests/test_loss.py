"""Loss by place, from fabricated counters: each lost frame is attributed to its place, and the sum is always the loss."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringroad_lab.loss import EndCounts, FramePath, HopCounters, book, drop_counters, loss_text, paths
from ringroad_lab.trial import LOSS_PLACES, DirectionCounts, LossByPlace, sum_losses

LEARNING = 4
VETH = paths(("1", "2"), (1, 2), has_interfaces=True)["1"]
MEMORY = paths(("1", "2"), (1, 2), has_interfaces=False)["1"]
PVP = paths(("1", "2"), (1, 3, 4, 2), has_interfaces=True)["1"]


def way(*, sent: int = 1000, refused: int = 0, received: int = 1000, taken: int | None = None) -> DirectionCounts:
    """Return a direction whose ports also counted learning frames; `taken` is the number of trial frames at the receiving port."""
    return DirectionCounts(
        sender="1",
        receiver="2",
        intended_frames=sent,
        sent_frames=sent,
        refused_frames=refused,
        received_frames=received,
        transmit_s=1.0,
        port_sent_frames=sent - refused + LEARNING,
        port_received_frames=(received if taken is None else taken) + LEARNING,
    )


def hops(
    device: dict[int, tuple[int | None, int | None]], arrived: int | None = 1000, no_room: dict[int, int] | None = None
) -> HopCounters:
    """Return counters including the learning frames: frames in and out by port of the device, and frames at the generator's end."""
    counts = {
        port: EndCounts(
            received=None if came is None else came + LEARNING,
            sent=None if went is None else went + LEARNING,
            no_room=(no_room or {}).get(port),
        )
        for port, (came, went) in device.items()
    }
    generator = {} if arrived is None else {"2": EndCounts(received=arrived + LEARNING, sent=0)}
    return HopCounters(device=counts, generator=generator)


def booked(loss: LossByPlace) -> dict[str, int | None]:
    """Return only the places with loss, or without a counter."""
    return {place: frames for place in LOSS_PLACES if (frames := getattr(loss, place)) != 0}


@pytest.mark.parametrize(
    ("counts", "counted", "place"),
    [
        pytest.param(way(refused=30, received=970), hops({1: (970, 0), 2: (0, 970)}, 970), "refused", id="refused"),
        pytest.param(way(received=970), hops({1: (970, 0), 2: (0, 970)}, 970), "before_device", id="before"),
        pytest.param(way(received=970), hops({1: (1000, 0), 2: (0, 970)}, 970), "in_device", id="in"),
        pytest.param(way(received=970), hops({1: (1000, 0), 2: (0, 1000)}, 970), "behind_device", id="behind"),
        pytest.param(way(received=970), hops({1: (1000, 0), 2: (0, 970)}, 970, {2: 30}), "behind_device", id="queue-of-the-cable-full"),
        pytest.param(way(received=970), hops({1: (1000, 0), 2: (0, 1000)}, 1000), "at_receiver", id="receiver"),
        # All hops saw the frames: they arrived damaged.
        pytest.param(way(received=970, taken=1000), hops({1: (1000, 0), 2: (0, 1000)}, 1000), "unexplained", id="unexplained"),
    ],
)
def test_a_loss_is_attributed_to_its_place(counts: DirectionCounts, counted: HopCounters, place: str) -> None:
    assert booked(book(counts, VETH, counted)) == {place: 30}


def test_losses_at_several_places_are_separated() -> None:
    loss = book(way(refused=1, received=969), VETH, hops({1: (997, 0), 2: (0, 989)}, 980, {2: 4}))
    assert booked(loss) == {"refused": 1, "before_device": 2, "in_device": 4, "behind_device": 13, "at_receiver": 11}
    assert loss.frames == 31
    assert (loss.of_device, loss.ahead_of_device) == (4, 3)


def test_over_shared_memory_refused_frames_are_the_devices_loss_and_a_full_receive_ring_is_the_generators() -> None:
    loss = book(way(refused=100, received=880), MEMORY, hops({1: (900, 0), 2: (0, 890)}, None, {2: 6}))
    assert booked(loss) == {"refused": 100, "in_device": 4, "at_receiver": 16}
    assert (loss.of_device, loss.ahead_of_device) == (104, 0)


def test_a_sender_that_forwards_for_the_device_is_held_up_only_if_all_loss_is_at_its_ring() -> None:
    path = paths(("1", "2"), (1, 2), has_interfaces=True, is_forwarded_by_sender=True)["1"]
    for device, received, is_held_up in (((700, 700), 700, True), ((700, 600), 600, False)):
        loss = book(way(refused=300, received=received), path, hops({1: (device[0], 0), 2: (0, device[1])}, arrived=received))
        assert (loss.refused, loss.is_held_up) == (300, is_held_up)
    assert not book(way(), path, hops({1: (1000, 0), 2: (0, 1000)})).is_held_up


def test_loss_in_guests_is_separate_and_counts_as_the_devices() -> None:
    counted = hops({1: (1000, 0), 3: (0, 950), 4: (920, 0), 2: (0, 915)}, 915, {3: 40})
    loss = book(way(received=915), PVP, counted)
    # 50 frames did not go to the guest, which had no room for 40 of them. 30 did not come back. 5 were lost on the second pass.
    assert booked(loss) == {"in_device": 15, "in_guests": 70}
    assert loss.of_device == 85


def test_the_reverse_path_passes_the_device_in_reverse_order() -> None:
    back = paths(("1", "2"), (1, 3, 4, 2), has_interfaces=True)["2"]
    assert (back.receiver, back.passes) == ("1", ((2, 4), (3, 1)))


def test_a_device_without_counters_is_unknown_and_never_0() -> None:
    loss = book(way(refused=10, received=960), VETH, hops({}, 980))
    assert booked(loss) == {"refused": 10, "before_device": None, "in_device": None, "behind_device": None, "at_receiver": 20} | {
        "unexplained": 10
    }
    # Unexplained loss may be the device's.
    assert loss.of_device == 10


def test_an_end_without_counters_is_unknown() -> None:
    loss = book(way(received=970), VETH, hops({1: (1000, 0), 2: (0, 1000)}, None))
    assert booked(loss) == {"behind_device": None, "at_receiver": None, "unexplained": 30}


def test_a_generator_without_port_counters_is_unknown() -> None:
    silent = way(received=970).model_copy(update={"port_sent_frames": None, "port_received_frames": None})
    loss = book(silent, VETH, hops({1: (1000, 0), 2: (0, 990)}, 990))
    assert booked(loss) == {"before_device": None, "in_device": 10, "at_receiver": None, "unexplained": 20}


def test_a_counter_that_went_back_is_unknown() -> None:
    before = HopCounters(device={1: EndCounts(5000, 0), 2: EndCounts(0, 2**32 - 10)}, generator={"2": EndCounts(7, 0)}, drops={"a": 5})
    # The second port's counter has wrapped; the first port's is right.
    after = HopCounters(device={1: EndCounts(6004, 0), 2: EndCounts(0, 960)}, generator={"2": EndCounts(977, 0)}, drops={"a": 2})
    counted = after.since(before)
    assert counted.device == {1: EndCounts(1004, 0), 2: EndCounts(0, None)}
    assert counted.drops == {}
    loss = book(way(received=966), VETH, counted)
    assert booked(loss) == {"in_device": None, "behind_device": None, "unexplained": 34}


def test_more_frames_out_than_in_do_not_compensate_for_loss() -> None:
    # The device sent 40 twice and lost 30, which only the receiver can detect.
    counted = hops({1: (1000, 0), 2: (0, 1010)}, 1010)
    assert booked(book(way(received=970, taken=1010), VETH, counted)) == {"unexplained": 30}


def test_drops_of_foreign_frames_explain_no_more_than_the_loss() -> None:
    # The device received 100 foreign frames, and forwarded none of them.
    counted = hops({1: (1100, 0), 2: (0, 998)}, 998)
    assert booked(book(way(received=998), VETH, counted)) == {"in_device": 2}


def test_a_counter_that_saw_fewer_frames_than_arrived_is_ignored() -> None:
    # The card at the device's first port forwards most frames in hardware, and the generator's card does not count frames for AF_XDP.
    counted = hops({1: (100, 0), 2: (0, 980)}, 0)
    loss = book(way(received=970), VETH, counted)
    assert booked(loss) == {"before_device": None, "in_device": None, "behind_device": None, "at_receiver": None, "unexplained": 30}


def test_only_drop_counters_that_grew_are_reported() -> None:
    before = HopCounters(drops={"device: 1.rx_dropped": 5, "device: 2.rx_dropped": 3})
    after = HopCounters(drops={"device: 1.rx_dropped": 5, "device: 2.rx_dropped": 10, "device: 1.dropped_no_space": 2})
    # Some devices report a cause only after its first frame.
    assert after.since(before).drops == {"device: 2.rx_dropped": 7, "device: 1.dropped_no_space": 2}
    assert after.since(HopCounters()).drops == {}


def test_drop_counters_are_selected_by_name() -> None:
    counters = {"1.rx_frames": 1, "1.rx_missed": 1, "2.dropped_no_space": 1, "2.ovs_tx_failure_drops": 1, "cpu1.idle_cycles": 1}
    assert list(drop_counters(counters)) == ["1.rx_missed", "2.dropped_no_space", "2.ovs_tx_failure_drops"]


def test_sums_have_known_places_and_keep_the_total() -> None:
    known = book(way(received=970), VETH, hops({1: (1000, 0), 2: (0, 970)}, 970))
    unknown = book(way(received=990), VETH, hops({}, 990))
    both = sum_losses([known, unknown])
    assert both is not None
    assert (both.in_device, both.unexplained, both.frames) == (30, 10, 40)
    alone = sum_losses([unknown, unknown])
    assert alone is not None
    assert (alone.in_device, alone.unexplained) == (None, 20)
    assert sum_losses([]) is None


def test_places_are_described_in_descending_order() -> None:
    loss = LossByPlace(refused=3, before_device=0, in_device=12, in_guests=0, behind_device=None, at_receiver=0, unexplained=0)
    assert loss_text(loss) == "12 lost in the device and 3 refused by the generator's full ring"
    assert loss_text(loss.model_copy(update={"refused": 0, "in_device": 0})) == "no frame was lost"
    assert "which the device" not in loss_text(loss)
    held_up = loss.model_copy(update={"is_refused_by_device": True})
    assert loss_text(held_up) == "12 lost in the device and 3 left waiting in the ring that the device empties"


def test_loss_without_a_place_counts_as_the_devices() -> None:
    assert way(received=990).device_lost_frames == 10


@given(
    data=st.data(),
    path=st.sampled_from([VETH, MEMORY, PVP]),
    sent=st.integers(0, 1000),
    received=st.integers(0, 1100),
    refused=st.integers(0, 1200),
)
def test_the_sum_is_the_loss_for_any_counters(data: st.DataObject, path: FramePath, sent: int, received: int, refused: int) -> None:
    counter = st.none() | st.integers(0, 2000)
    ports = [port for passed in path.passes for port in passed]
    counted = HopCounters(
        device={port: EndCounts(*(data.draw(counter) for _ in range(3))) for port in ports if data.draw(st.booleans())},
        generator={"2": EndCounts(received=data.draw(counter))},
    )
    counts = way(sent=sent, received=received).model_copy(
        update={"refused_frames": refused, "port_sent_frames": data.draw(counter), "port_received_frames": data.draw(counter)}
    )
    loss = book(counts, path, counted)
    assert loss.frames == max(0, sent - received)
    assert 0 <= loss.of_device <= loss.frames
    assert all(frames is None or frames >= 0 for frames in booked(loss).values())
