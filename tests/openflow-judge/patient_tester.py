"""os-ken's switch tester, which waits for what it depends on; `osken-manager` runs it.

It is the tester of the package with these changes:

- It waits until the caches of its own switch follow that switch's flow tables. A barrier of Open vSwitch does not.
- It waits for a packet that should match nothing until the switch has looked for it, rather than for a second.
- It sends packets at a rate by tcpreplay, counts when all of them have come, and tries again where the rate is wrong.
- SCTP checksums are right. os-ken 3.1.0 makes them of the text `b'...'` instead of the bytes.
"""

from __future__ import annotations

import os
import time
from typing import Any

from os_ken.lib.packet import sctp
from os_ken.tests.switch import tester
from ovs.unixctl.client import UnixctlClient

from frame_replay import replay

# The judge's settings of the test bed.
CONTROL_SOCKET = os.environ["JUDGE_OVS_CONTROL_SOCKET"]
SENDING_INTERFACE = os.environ["JUDGE_SENDING_INTERFACE"]

# Only a failure waits this long.
PATIENCE_S = 10.0
# A meter is measured for this long, so that its allowed burst does not matter.
METER_S = 5
# A process that takes the processors for a tenth of a second takes packets from a meter: a wrong rate has to repeat.
RATE_TRIES = 3
# A group does not depend on time: the frames of the case are sent this many times faster.
GROUP_HASTE = 10

# The tester would always wait this long for a packet that matches nothing.
tester.INTERVAL = 0
# It gives up a switch after this time.
tester.WAIT_TIMER = PATIENCE_S


def _crc32c_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [entry >> 1 ^ (0x82F63B78 if entry & 1 else 0) for entry in table]
    return table


_CRC32C = _crc32c_table()


def _sctp_checksum(_header: sctp.sctp, packet: bytes) -> int:
    """Return the checksum of RFC 9260, appendix A, as the number that os-ken writes in network order."""
    crc = 0xFFFF_FFFF
    for byte in packet:
        crc = crc >> 8 ^ _CRC32C[(crc ^ byte) & 0xFF]
    return int.from_bytes((crc ^ 0xFFFF_FFFF).to_bytes(4, "little"), "big")


sctp.sctp._checksum = _sctp_checksum


class PatientTester(tester.OfTester):
    """The tester, with those changes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (os-ken's own)
        """Connect to Open vSwitch's control socket."""
        problem, self._open_vswitch = UnixctlClient.create(CONTROL_SOCKET)
        assert not problem, f"{CONTROL_SOCKET}: {os.strerror(problem)}"
        self._case: Any = None
        # How long the last packets were sent, seconds as the case counts them.
        self._sent_s = 0.0
        super().__init__(*args, **kwargs)

    def _settle(self) -> None:
        """Wait until Open vSwitch has gone through all cached flows: they are as its tables are, and all is counted."""
        problem, error, _ = self._open_vswitch.transact("revalidator/wait", [])
        failure = error or (problem and os.strerror(problem))
        assert not failure, f"{CONTROL_SOCKET}: {failure}"

    def _test_execute(self, test: Any, description: str | None) -> Any:  # noqa: ANN401
        self._case = test
        has_rate = any(tester.KEY_PACKETS in packet for packet in test.tests)
        for _ in range(RATE_TRIES if has_rate else 1):
            result = self._tried(test, description)
            if result == tester.TEST_OK:
                break
        return result

    def _tried(self, test: Any, description: str | None) -> Any:  # noqa: ANN401
        try:
            return super()._test_execute(test, description)
        except AssertionError as problem:
            # The tester takes some wrong answers for its own fault, and would end.
            self.waiter = None
            self.logger.info("    %-100s %s", test.description, tester.TEST_ERROR)
            self.logger.info("        Unexpected messages: %r", problem)
            return "Unexpected messages"

    def _test(self, state: int, *args: Any) -> Any:  # noqa: ANN401
        if state in (tester.STATE_GET_MATCH_COUNT, tester.STATE_GET_THROUGHPUT):
            self._settle()
        return super()._test(state, *args)

    def _one_time_packet_send(self, pkt: dict[str, Any]) -> None:
        self._settle()
        super()._one_time_packet_send(pkt)

    def _test_flow_unmatching_check(self, before_stats: Any, pkt: dict[str, Any]) -> None:  # noqa: ANN401
        tables = pkt[tester.KEY_TBL_MISS]
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            counts = self._test_get_match_count()
            if any(counts[table]["lookup"] > before_stats[table]["lookup"] for table in tables):
                break
        super()._test_flow_unmatching_check(before_stats, pkt)

    def _continuous_packet_send(self, pkt: dict[str, Any]) -> None:
        packets = pkt[tester.KEY_PACKETS]
        is_metered = any(type(message).__name__ == "OFPMeterMod" for message in self._case.prerequisite)
        rate_fps = packets[tester.KEY_PKTPS]
        seconds, haste = (METER_S, 1) if is_metered else (packets[tester.KEY_DURATION_TIME], GROUP_HASTE)
        count = rate_fps * seconds
        if packets["randomize"]:
            frames, rounds = [self._made(packets["packet_text"]) for _ in range(count)], 1
        else:
            frames, rounds = [packets["packet_binary"]], count
        before = self._frame_counts()
        sent = replay(frames, rounds, rate_fps * haste, SENDING_INTERFACE)
        self._sent_s = sent.seconds * haste
        if self._sent_s > 1.02 * seconds:
            slow = f"tcpreplay took {self._sent_s:.2f} s to send what belongs into {seconds} s"
            raise tester.TestFailure(tester.STATE_THROUGHPUT_CHK, detail=slow)
        self._await_arrival(before, sent.frames)

    @staticmethod
    def _made(text: list[str]) -> bytes:
        """Make a packet by the case's text, in which each is another."""
        packet = eval("/".join(text), vars(tester))
        packet.serialize()
        return bytes(packet.data)

    def _frame_counts(self) -> list[int]:
        """Count frames: those that reached the judged switch, that it sent, and that the tester's switch processed."""
        target = self._test(tester.STATE_TARGET_PKT_COUNT, True)
        out = (self.target_send_port_1, self.target_send_port_2)
        self._settle()
        self.state = tester.STATE_GET_MATCH_COUNT
        self.send_msg_xids = [self.tester_sw.send_table_stats()]
        self._wait()
        seen = self.rcv_msgs[0].body[0].lookup_count
        return [target[self.target_recv_port]["rx"], sum(target[port]["tx"] for port in out), seen]

    def _await_arrival(self, before: list[int], frames: int) -> None:
        """Wait until the switch has received all frames, and the tester's switch has processed all that it sent."""
        end = time.monotonic() + PATIENCE_S
        while True:
            received, sent, seen = (now - then for now, then in zip(self._frame_counts(), before, strict=True))
            if received == frames and sent == seen:
                return
            if time.monotonic() > end:
                lost = f"of {frames} frames the switch received {received}, of its {sent} the tester received {seen}"
                raise tester.TestFailure(tester.STATE_THROUGHPUT_CHK, detail=lost)

    def _test_throughput_check(self, throughputs: Any, start: Any, end: Any) -> None:  # noqa: ANN401
        """Compare as the tester does, over the time in which packets were sent."""
        super()._test_throughput_check(throughputs, (0.0, start[1]), (self._sent_s, end[1]))
