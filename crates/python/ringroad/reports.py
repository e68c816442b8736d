"""The daemon's reports, as they come: what ``ringroad status --json`` prints, field by field.

Counters run from the making of the thing counted and never go back. Frames that the datapath took from a port are its
``received``, those that it put into the port its ``delivered``.
"""

from typing import Literal, NotRequired, TypedDict


class CounterReport(TypedDict):
    """What went through a port, and what did not."""

    drops: dict[str, int]
    """Frames dropped, by cause."""
    # The statistics, written by `make docs`.
    received_frames: int
    """Frames that the datapath took from the port."""
    received_bytes: int
    """Bytes of the received frames, without FCS."""
    delivered_frames: int
    """Frames that the datapath put into the port."""
    delivered_bytes: int
    """Bytes of the delivered frames, without FCS."""
    violations: int
    """Times that the program broke a rule of shared memory; each stopped a ring."""
    wakeups: int
    """Times that the datapath woke the program."""
    uncopied_frames: int
    """Frames put into the port without a copy of their bytes: by exchange of buffers, or from where they lay."""
    waiting_frames: int
    """Frames put into an interface's ring that its driver has not taken; not among the delivered frames."""
    hidden_frames: int
    """Frames that the kernel holds for an interface's port; not among the received frames."""
    # End of the statistics.


class Owner(TypedDict):
    """The program that has a port open."""

    pid: int | None
    uid: int
    program: str


class LinkReport(TypedDict):
    """The network interface behind a port."""

    interface: str
    netns: str | None
    up: bool
    running: bool
    speed_bps: int | None
    mac: str
    mtu: int


class PeerReport(TypedDict):
    """A guest or another foreign program at the other side of a port's socket."""

    connected: bool
    connections: int
    agreed: str
    active_queues: int
    address: str | None
    last_error: str | None


class PortReport(TypedDict):
    """A port."""

    name: str
    kind: str
    mode: str
    switch: str | None
    index: int | None
    persistent: bool
    bound: bool
    owner: Owner | None
    queues: int
    slots: int
    buffer_bytes: int
    counters: CounterReport
    queue_counters: NotRequired[list[CounterReport]]
    error: str | None
    notes: list[str]
    link: LinkReport | None
    peer: PeerReport | None


class SwitchReport(TypedDict):
    """A switch."""

    name: str
    ports: int
    macs: int
    evictions: int
    refused_moves: int
    replicated_frames: int
    totals: CounterReport


class WorkerReport(TypedDict):
    """A thread that moves frames."""

    index: int
    cpu: int | None
    loops: int
    busy_loops: int
    busy_ns: int
    frames: int
    turn_frames: list[int]
    sleeps: int
    kicks_received: int
    cpu_time_ns: int
    state: Literal["running", "sleeping", "stopped"]


class StatusReport(TypedDict):
    """The whole daemon."""

    version: str
    pid: int
    uptime_s: int
    socket: str
    config: str | None
    started: Literal["on_demand", "command", "service_manager"]
    workers: list[WorkerReport]
    switches: list[SwitchReport]
    ports: list[PortReport]
    next: NotRequired[str]
    shared_memory_bytes: int
    shared_memory_by_user: dict[str, int]
    huge_page_bytes: int
    waiting: dict[str, str]
    rejected_requests: int


class AttachedPort(TypedDict):
    """A port that stays until it is detached."""

    name: str
    driver: str
    mode: str
    notes: list[str]
    number: int


class MacEntryReport(TypedDict):
    """An address that a switch has learned, or that was put there."""

    mac: str
    port: str
    age_s: int
    static: bool
