//! The loops of the roles, over the public crate, like a user's program.

use ringroad::{Port, PortError};

use super::WorkerCounts;
use super::frame::{HEADER_BYTES, sequence, set_sequence, template};

/// One turn of a role; [`super::run`] has the loop around it.
pub trait RoleStep {
    /// Does one burst in each of the role's directions and counts the received frames.
    ///
    /// # Errors
    /// [`PortError`]: the port has stopped working.
    fn turn(&mut self, tally: &mut WorkerCounts) -> Result<(), PortError>;
}

/// Sender of numbered whole frames, as fast as the ring takes bursts.
pub(super) struct Source {
    port: Port,
    frame: Vec<u8>,
    burst_frames: u32,
    next: u64,
}

impl Source {
    pub(super) fn new(port: Port, slot_bytes: u32, burst_frames: u32) -> Self {
        Self { port, frame: template(1, 2, slot_bytes), burst_frames, next: 0 }
    }
}

impl RoleStep for Source {
    fn turn(&mut self, _: &mut WorkerCounts) -> Result<(), PortError> {
        let tx = self.port.tx();
        // Whole bursts only: handing over a few slots that were just returned would make both sides wait for each
        // other's cache lines all the time.
        if tx.available() < self.burst_frames {
            tx.sync()?;
            return Ok(());
        }
        let (frame, mut next) = (self.frame.as_mut_slice(), self.next);
        tx.push_each::<true>(self.burst_frames, |mut slot| {
            set_sequence(frame, next);
            next += 1;
            Some(slot.bytes.write(frame) as u16)
        });
        self.next = next;
        tx.sync()?;
        Ok(())
    }
}

/// Number of pauses of a receiver that found less than a burst: about a microsecond.
pub(super) const GATHER_SPINS: u32 = 32;

/// State of checking the numbers of arriving frames.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Gaps {
    expected: Option<u64>,
}

impl Gaps {
    /// Checks the number of a frame. Counts the frames missing before it, or the frame itself if it is out of order.
    #[inline]
    pub(super) fn check(&mut self, frame: &[u8], tally: &mut WorkerCounts) {
        // The fence makes the compiler keep the read of every byte.
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        let number = sequence(frame).unwrap_or_default();
        let expected = self.expected.unwrap_or(number);
        if number != expected {
            tally.lost_or_reordered_frames += number.checked_sub(expected).unwrap_or(1);
        }
        self.expected = Some(number.wrapping_add(1));
    }
}

/// Receiver that reads every byte and checks for gaps in the numbers.
pub(super) struct Sink {
    port: Port,
    frame: Vec<u8>,
    burst_frames: u32,
    gaps: Gaps,
}

impl Sink {
    pub(super) fn new(port: Port, slot_bytes: u32, burst_frames: u32) -> Self {
        Self { port, frame: template(2, 1, slot_bytes), burst_frames, gaps: Gaps::default() }
    }
}

impl RoleStep for Sink {
    fn turn(&mut self, tally: &mut WorkerCounts) -> Result<(), PortError> {
        let rx = self.port.rx();
        rx.sync()?;
        if rx.available() < self.burst_frames {
            // A receiver close behind its sender reads cache lines that are still being written, and both slow down. So
            // it waits for a burst, then takes the available frames.
            for _ in 0..GATHER_SPINS {
                std::hint::spin_loop();
            }
            rx.sync()?;
        }
        let (frame, mut gaps) = (self.frame.as_mut_slice(), self.gaps);
        let arrived = rx.pop_each(self.burst_frames, |_, bytes| {
            let length = bytes.read(frame);
            gaps.check(frame.get(..length).unwrap_or_default(), tally);
            true
        });
        self.gaps = gaps;
        let [received, _] = &mut tally.directions_frames;
        *received += u64::from(arrived);
        Ok(())
    }
}

/// Sender to one port of a switch and receiver from another.
pub(super) struct OneWay {
    source: Source,
    sink: Sink,
}

impl OneWay {
    pub(super) fn new([from, to]: [Port; 2], slot_bytes: u32, burst_frames: u32) -> Result<Self, PortError> {
        let mut sink = Sink::new(to, slot_bytes, burst_frames);
        // A first frame teaches the switch the receiver's port.
        let tx = sink.port.tx();
        let length = tx.buffer(0).write(&sink.frame);
        tx.set(0, u16::try_from(length).unwrap_or(u16::MAX), 0);
        tx.advance(1);
        tx.sync()?;
        Ok(Self { source: Source::new(from, slot_bytes, burst_frames), sink })
    }
}

impl RoleStep for OneWay {
    fn turn(&mut self, tally: &mut WorkerCounts) -> Result<(), PortError> {
        self.source.turn(tally)?;
        self.sink.turn(tally)
    }
}

/// Sender to both ports of a switch, which drops the frames received from them.
pub(super) struct SwitchLoop {
    ends: [Station; 2],
    burst_frames: u32,
}

struct Station {
    port: Port,
    frame: Vec<u8>,
    /// Number of buffers that have not been filled with a whole frame yet. Later sends keep the payload.
    unfilled: u32,
}

impl Station {
    fn new(mut port: Port, own: u8, other: u8, slot_bytes: u32) -> Self {
        Self { unfilled: port.tx().slot_count(), port, frame: template(own, other, slot_bytes) }
    }

    /// Drops received frames. Returns their number.
    fn receive(&mut self, burst_frames: u32) -> Result<u64, PortError> {
        let rx = self.port.rx();
        rx.sync()?;
        let arrived = rx.available().min(burst_frames);
        rx.release(arrived);
        Ok(u64::from(arrived))
    }

    /// Sends a burst if it has room. Returns the number of frames.
    fn send(&mut self, burst_frames: u32) -> Result<u64, PortError> {
        let tx = self.port.tx();
        let has_room = tx.available() >= burst_frames;
        if has_room {
            let (header, _) = self.frame.split_at(HEADER_BYTES.min(self.frame.len()));
            let length = u16::try_from(self.frame.len()).unwrap_or(u16::MAX);
            tx.push_each::<true>(burst_frames, |mut slot| {
                if self.unfilled > 0 {
                    self.unfilled -= 1;
                    slot.bytes.write(&self.frame);
                } else {
                    slot.bytes.write(header);
                }
                Some(length)
            });
        }
        tx.sync()?;
        Ok(if has_room { burst_frames.into() } else { 0 })
    }
}

impl SwitchLoop {
    pub(super) fn new([a, b]: [Port; 2], slot_bytes: u32, burst_frames: u32) -> Self {
        Self { ends: [Station::new(a, 1, 2, slot_bytes), Station::new(b, 2, 1, slot_bytes)], burst_frames }
    }
}

impl RoleStep for SwitchLoop {
    fn turn(&mut self, tally: &mut WorkerCounts) -> Result<(), PortError> {
        for (station, received) in self.ends.iter_mut().zip(&mut tally.directions_frames) {
            *received += station.receive(self.burst_frames)?;
            station.send(self.burst_frames)?;
        }
        Ok(())
    }
}

/// Sender to one port.
pub(super) struct Sender(Station, u32);

impl Sender {
    pub(super) fn new(port: Port, slot_bytes: u32, burst_frames: u32) -> Self {
        Self(Station::new(port, 1, 2, slot_bytes), burst_frames)
    }
}

impl RoleStep for Sender {
    fn turn(&mut self, tally: &mut WorkerCounts) -> Result<(), PortError> {
        let [sent, _] = &mut tally.directions_frames;
        *sent += self.0.send(self.1)?;
        Ok(())
    }
}

/// Writer of frames into the slots of one port, which it keeps.
pub(super) struct Fill {
    station: Station,
    burst_frames: u32,
    /// Next slot, from the first free one on.
    next: u32,
}

impl Fill {
    pub(super) fn new(port: Port, slot_bytes: u32, burst_frames: u32) -> Self {
        Self { station: Station::new(port, 1, 2, slot_bytes), burst_frames, next: 0 }
    }
}

impl RoleStep for Fill {
    fn turn(&mut self, tally: &mut WorkerCounts) -> Result<(), PortError> {
        let Station { port, frame, .. } = &mut self.station;
        let (header, _) = frame.split_at(HEADER_BYTES.min(frame.len()));
        let length = u16::try_from(frame.len()).unwrap_or(u16::MAX);
        let tx = port.tx();
        let free = tx.available();
        for _ in 0..self.burst_frames {
            tx.buffer(self.next).write(header);
            tx.set(self.next, length, 0);
            self.next = if self.next + 1 < free { self.next + 1 } else { 0 };
        }
        let [written, _] = &mut tally.directions_frames;
        *written += u64::from(self.burst_frames);
        Ok(())
    }
}

/// Receiver from one port, which drops the frames.
pub(super) struct Receiver(Station, u32);

impl Receiver {
    pub(super) fn new(port: Port, slot_bytes: u32, burst_frames: u32) -> Self {
        Self(Station::new(port, 2, 1, slot_bytes), burst_frames)
    }
}

impl RoleStep for Receiver {
    fn turn(&mut self, tally: &mut WorkerCounts) -> Result<(), PortError> {
        let [received, _] = &mut tally.directions_frames;
        *received += self.0.receive(self.1)?;
        Ok(())
    }
}

/// Forwarder in both directions between two ports.
pub(super) struct Forwarder {
    ports: [Port; 2],
    burst_frames: u32,
}

impl Forwarder {
    pub(super) fn new(ports: [Port; 2], burst_frames: u32) -> Self {
        Self { ports, burst_frames }
    }
}

impl RoleStep for Forwarder {
    fn turn(&mut self, tally: &mut WorkerCounts) -> Result<(), PortError> {
        let [a, b] = &mut self.ports;
        a.queue().sync()?;
        b.queue().sync()?;
        let (a_tx, a_rx) = a.queue().split();
        let (b_tx, b_rx) = b.queue().split();
        let [forth, back] = &mut tally.directions_frames;
        *forth += u64::from(a_rx.forward(b_tx, self.burst_frames).frames);
        *back += u64::from(b_rx.forward(a_tx, self.burst_frames).frames);
        Ok(())
    }
}
