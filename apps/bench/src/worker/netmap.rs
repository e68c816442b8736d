//! Small program written for netmap, like users' programs: it uses `/dev/netmap` and has no code for Ringroad. The
//! frames and the work on each frame are the same as in the native workers.

mod device;

use ringroad::{PortError, prefetch_read, prefetch_write};

use super::frame::{set_sequence, template};
use super::roles::{GATHER_SPINS, Gaps, RoleStep};
use super::{BenchWorkerError, WorkerCounts};
use device::{BoundDevice, poll};

/// Method by which the program requests syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetmapCalls {
    /// NIOCTXSYNC and NIOCRXSYNC in a loop: the native workers' loops with netmap's calls.
    Sync,
    /// `poll`, which sleeps without frames, as in most netmap programs.
    Poll,
}

fn open(name: &str) -> Result<BoundDevice, BenchWorkerError> {
    BoundDevice::open(name).map_err(|(call, source)| BenchWorkerError::Netmap {
        name: name.into(),
        call,
        source,
    })
}

/// Sender of numbered whole frames, in whole bursts.
pub(super) struct NetmapSource {
    device: BoundDevice,
    calls: NetmapCalls,
    frame: Vec<u8>,
    burst_frames: u32,
    next: u64,
}

impl NetmapSource {
    pub(super) fn open(
        name: &str,
        calls: NetmapCalls,
        slot_bytes: u32,
        burst_frames: u32,
    ) -> Result<Self, BenchWorkerError> {
        let frame = template(1, 2, slot_bytes);
        Ok(Self { device: open(name)?, calls, frame, burst_frames, next: 0 })
    }

    /// Fills the slots of a burst, if enough slots are free.
    fn fill(&mut self) {
        let ring = &mut self.device.tx;
        if ring.space() < self.burst_frames {
            return;
        }
        let mut slot = ring.head();
        for _ in 0..self.burst_frames {
            prefetch_write(ring.buffer(slot).as_ptr());
            slot = ring.next(slot);
        }
        let mut slot = ring.head();
        for _ in 0..self.burst_frames {
            set_sequence(&mut self.frame, self.next);
            self.next += 1;
            ring.write(slot, &self.frame);
            slot = ring.next(slot);
        }
        ring.give(slot);
    }
}

impl RoleStep for NetmapSource {
    fn turn(&mut self, _: &mut WorkerCounts) -> Result<(), PortError> {
        match self.calls {
            NetmapCalls::Sync => {
                self.fill();
                self.device.tx_sync()
            }
            NetmapCalls::Poll => {
                poll([self.device.awaited(libc::POLLOUT)])?;
                self.fill();
                Ok(())
            }
        }
    }
}

/// Receiver that reads every byte and checks for gaps in the numbers.
pub(super) struct NetmapSink {
    device: BoundDevice,
    calls: NetmapCalls,
    frame: Vec<u8>,
    burst_frames: u32,
    gaps: Gaps,
}

impl NetmapSink {
    pub(super) fn open(
        name: &str,
        calls: NetmapCalls,
        slot_bytes: u32,
        burst_frames: u32,
    ) -> Result<Self, BenchWorkerError> {
        let frame = template(2, 1, slot_bytes);
        Ok(Self { device: open(name)?, calls, frame, burst_frames, gaps: Gaps::default() })
    }

    /// Syncs, and syncs again a little later if less than a burst has arrived, as the native worker does.
    fn gather(&mut self) -> Result<(), PortError> {
        self.device.rx_sync()?;
        if self.device.rx.space() < self.burst_frames {
            for _ in 0..GATHER_SPINS {
                std::hint::spin_loop();
            }
            self.device.rx_sync()?;
        }
        Ok(())
    }

    /// Reads and releases the available frames, at most a burst.
    fn take(&mut self, tally: &mut WorkerCounts) {
        let ring = &mut self.device.rx;
        let arrived = ring.space().min(self.burst_frames);
        let mut slot = ring.head();
        for _ in 0..arrived {
            prefetch_read(ring.buffer(slot).as_ptr());
            slot = ring.next(slot);
        }
        let mut slot = ring.head();
        for _ in 0..arrived {
            let length = ring.read(slot, &mut self.frame);
            self.gaps.check(self.frame.get(..length).unwrap_or_default(), tally);
            slot = ring.next(slot);
        }
        ring.give(slot);
        let [received, _] = &mut tally.directions_frames;
        *received += u64::from(arrived);
    }
}

impl RoleStep for NetmapSink {
    fn turn(&mut self, tally: &mut WorkerCounts) -> Result<(), PortError> {
        match self.calls {
            NetmapCalls::Sync => self.gather()?,
            NetmapCalls::Poll => poll([self.device.awaited(libc::POLLIN)])?,
        }
        self.take(tally);
        Ok(())
    }
}

/// Sender to one port of a switch and receiver from another.
pub(super) struct NetmapOneWay {
    source: NetmapSource,
    sink: NetmapSink,
}

impl NetmapOneWay {
    pub(super) fn open(
        [from, to]: [&str; 2],
        calls: NetmapCalls,
        slot_bytes: u32,
        burst_frames: u32,
    ) -> Result<Self, BenchWorkerError> {
        let source = NetmapSource::open(from, calls, slot_bytes, burst_frames)?;
        let mut sink = NetmapSink::open(to, calls, slot_bytes, burst_frames)?;
        // A first frame teaches the switch the receiver's port.
        let ring = &mut sink.device.tx;
        let slot = ring.head();
        ring.write(slot, &sink.frame);
        ring.give(ring.next(slot));
        sink.device.tx_sync()?;
        Ok(Self { source, sink })
    }
}

impl RoleStep for NetmapOneWay {
    fn turn(&mut self, tally: &mut WorkerCounts) -> Result<(), PortError> {
        match self.source.calls {
            NetmapCalls::Sync => {
                self.source.turn(tally)?;
                self.sink.turn(tally)
            }
            NetmapCalls::Poll => {
                poll([self.source.device.awaited(libc::POLLOUT), self.sink.device.awaited(libc::POLLIN)])?;
                self.source.fill();
                self.sink.take(tally);
                Ok(())
            }
        }
    }
}
