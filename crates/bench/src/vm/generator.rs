//! The generator around a switch: one thread on one core that sends on each of two ports, receives on the other, and knows what was lost and how long it took.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ringroad::{Clock, Embedded, Port};
use ringroad_netdev::{Namespace, in_namespace};

use crate::error::BenchError;
use crate::plan::FCS_BYTES;
use crate::stop::StopFlag;

/// Frames sent on a port before the other's turn.
const BURST_FRAMES: u32 = 64;
/// Where the number of the trial, the frame's number and its time lie: behind Ethernet, IPv4 and UDP.
const SIGNATURE_OFFSET: usize = 42;
/// Their length, bytes: what the shortest frame has left.
const SIGNATURE_BYTES: usize = 18;
/// How many frames ahead the next signature is fetched.
const PREFETCH_FRAMES: u32 = 4;
/// Between the last frame that came and the end of a trial in which not all did.
const DRAIN_NS: u64 = 50_000_000;
/// Longest wait for the first frames to pass.
const CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// Longest latency told apart, ns.
const LONGEST_NS: u64 = 10_000_000_000;
/// Less than this share of what was due, with room for all, is the sender's own failure.
const SENDER_SHARE: f64 = 0.98;

/// What a trial is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Trial {
    /// Frames per second, both directions together; `None` sends as much as there is room for.
    pub(super) rate_fps: Option<f64>,
    /// Frame size in bytes, FCS included.
    pub(super) frame_bytes: u32,
    pub(super) duration: Duration,
    /// Whether each frame's time under way is recorded, which the generator has to do beside all else.
    pub(super) measures_latency: bool,
}

/// What a trial came to, both directions together.
#[derive(Clone, Debug, Default)]
pub(super) struct TrialOutcome {
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Frames that were due and for which the switch had made no room.
    pub(super) refused: u64,
    /// Time in which frames were sent, seconds.
    pub(super) seconds: f64,
    /// Share of the time in which there was nothing to do: where it is near 0 the generator was the limit, not the switch.
    pub(super) idle_share: f64,
    /// Time from a frame's way into the ring to its arrival, ns, where it was measured.
    pub(super) latency_ns: Option<Histogram<u64>>,
}

impl TrialOutcome {
    /// Frames lost, or not taken, of those due.
    pub(super) fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received) + self.refused
    }

    /// The share of that.
    pub(super) fn loss_ratio(&self) -> f64 {
        self.lost() as f64 / (self.sent + self.refused).max(1) as f64
    }

    /// Frames per second that arrived.
    pub(super) fn rate_fps(&self) -> f64 {
        self.received as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }
}

/// The thread.
#[derive(Debug)]
pub(super) struct Generator {
    orders: Option<Sender<Trial>>,
    outcomes: Receiver<Result<TrialOutcome, BenchError>>,
    thread: Option<JoinHandle<()>>,
    /// Frames that came, in all trials.
    received: Cell<u64>,
}

fn failed(what: &'static str) -> impl Fn(String) -> BenchError {
    move |message| BenchError::Generator { what, message }
}

impl Generator {
    /// Opens the two ports, in `namespace`, on a thread on `cpu`, and waits until frames pass both ways.
    pub(super) fn start(
        ports: [String; 2],
        namespace: Namespace,
        cpu: usize,
        stop: &StopFlag,
    ) -> Result<Self, BenchError> {
        let (orders, to_do) = channel::<Trial>();
        let (results, outcomes) = channel();
        let stop = stop.clone();
        let work = move || {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu);
            // The number is one of those that the process may use.
            let _ = rustix::thread::sched_setaffinity(None, &set);
            let mut traffic = match Traffic::open(&ports, &namespace, stop) {
                Ok(traffic) => traffic,
                Err(error) => return drop(results.send(Err(error))),
            };
            let connected = traffic.connect();
            let is_connected = connected.is_ok();
            if results.send(connected).is_err() || !is_connected {
                return;
            }
            for trial in to_do {
                if results.send(traffic.run(&trial)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("generator".into())
            .spawn(work)
            .map_err(|error| failed("start")(error.to_string()))?;
        let this = Self { orders: Some(orders), outcomes, thread: Some(thread), received: Cell::new(0) };
        this.outcome()?;
        Ok(this)
    }

    /// Frames that came, in all trials so far.
    pub(super) fn received(&self) -> u64 {
        self.received.get()
    }

    fn outcome(&self) -> Result<TrialOutcome, BenchError> {
        let outcome =
            self.outcomes.recv().unwrap_or_else(|_| Err(failed("go on")("its thread has ended".into())));
        if let Ok(outcome) = &outcome {
            self.received.set(self.received.get() + outcome.received);
        }
        outcome
    }

    /// Runs a trial.
    pub(super) fn run(&self, trial: &Trial) -> Result<TrialOutcome, BenchError> {
        if let Some(orders) = &self.orders {
            // A thread that has ended says so in the outcome.
            let _ = orders.send(*trial);
        }
        self.outcome()
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of one direction in a trial.
#[derive(Debug, Default)]
struct Direction {
    sent: u64,
    received: u64,
    was_refused: bool,
}

/// The ports and what is written into their frames.
struct Traffic {
    ports: [Port; 2],
    clock: Clock,
    number: u16,
    /// Slots of each port that hold no whole frame of the present size yet.
    unprimed: [u32; 2],
    frame_bytes: u32,
    frames: [Vec<u8>; 2],
    stop: StopFlag,
}

impl Traffic {
    fn open(ports: &[String; 2], namespace: &Namespace, stop: StopFlag) -> Result<Self, BenchError> {
        let open = |name: &String| {
            in_namespace(namespace, || Embedded::new().open(name))?
                .map_err(|error| failed("open its ports")(format!("{name}: {error}")))
        };
        let [first, second] = ports;
        Ok(Self {
            ports: [open(first)?, open(second)?],
            clock: Clock::system(),
            number: 0,
            unprimed: [0; 2],
            frame_bytes: 0,
            frames: [Vec::new(), Vec::new()],
            stop,
        })
    }

    /// Sends a little until something has passed both ways, so that a switch knows where everybody is.
    fn connect(&mut self) -> Result<TrialOutcome, BenchError> {
        let began = Instant::now();
        let probe = Trial {
            rate_fps: Some(2000.0),
            frame_bytes: 64,
            duration: Duration::from_millis(20),
            measures_latency: false,
        };
        loop {
            let (outcome, directions) = self.exchange(&probe)?;
            if directions.iter().all(|direction| direction.received > 0) && outcome.lost() == 0 {
                return Ok(outcome);
            }
            if began.elapsed() > CONNECT_LIMIT {
                let came = directions.map(|direction| direction.received);
                return Err(failed("get frames through")(format!(
                    "in {} s {came:?} came in the two directions",
                    CONNECT_LIMIT.as_secs()
                )));
            }
        }
    }

    fn run(&mut self, trial: &Trial) -> Result<TrialOutcome, BenchError> {
        Ok(self.exchange(trial)?.0)
    }

    /// Writes the frames of a new size.
    fn prepare(&mut self, frame_bytes: u32) {
        if self.frame_bytes == frame_bytes {
            return;
        }
        self.frame_bytes = frame_bytes;
        let len = (frame_bytes - FCS_BYTES) as usize;
        self.frames = [0u8, 1].map(|from| frame(len, from));
        self.unprimed = [0, 1].map(|port: usize| self.ports[port].tx().slot_count());
    }

    fn exchange(&mut self, trial: &Trial) -> Result<(TrialOutcome, [Direction; 2]), BenchError> {
        self.prepare(trial.frame_bytes);
        self.number = self.number.wrapping_add(1);
        let port_failed = |error: ringroad::PortError| failed("use its ports")(error.to_string());
        let new_histogram = || Histogram::<u64>::new_with_bounds(1, LONGEST_NS, 3);
        let mut latency = (trial.measures_latency.then(new_histogram).transpose())
            .map_err(|error| failed("count")(error.to_string()))?;
        let duration_ns = u64::try_from(trial.duration.as_nanos()).unwrap_or(u64::MAX);
        let mut directions = [Direction::default(), Direction::default()];
        let start_ns = self.clock.now_ns();
        let (mut last_ns, mut idle_ns, mut was_idle) = (start_ns, 0, false);
        let mut last_arrival_ns = start_ns;
        let due_at = |elapsed_ns: u64| match trial.rate_fps {
            Some(rate) => (rate / 2.0 * elapsed_ns.min(duration_ns) as f64 / 1e9) as u64,
            None => u64::MAX,
        };
        loop {
            if self.stop.is_raised() {
                return Err(BenchError::Stopped);
            }
            let now_ns = self.clock.now_ns();
            if was_idle {
                idle_ns += now_ns - last_ns;
            }
            last_ns = now_ns;
            let elapsed_ns = now_ns - start_ns;
            let sends = elapsed_ns < duration_ns;
            let due = due_at(elapsed_ns);
            was_idle = true;
            for from in 0..2 {
                let wanted = if sends { due.saturating_sub(directions[from].sent) } else { 0 };
                let wanted = wanted.min(BURST_FRAMES.into()) as u32;
                let sent = self.send(from, wanted, directions[from].sent, now_ns);
                directions[from].sent += u64::from(sent);
                directions[from].was_refused |= sent < wanted;
                self.ports[from].queue().sync().map_err(port_failed)?;
                let received = self.receive(from, latency.as_mut());
                directions[1 - from].received += u64::from(received);
                if received > 0 {
                    last_arrival_ns = now_ns;
                }
                was_idle &= sent == 0 && received == 0;
            }
            if !sends {
                let all = directions.iter().all(|direction| direction.received >= direction.sent);
                if all || now_ns.saturating_sub(last_arrival_ns.max(start_ns + duration_ns)) > DRAIN_NS {
                    break;
                }
            }
        }
        let due = due_at(duration_ns);
        let mut outcome = TrialOutcome {
            seconds: trial.duration.as_secs_f64(),
            idle_share: idle_ns as f64 / (last_ns - start_ns).max(1) as f64,
            ..TrialOutcome::default()
        };
        for direction in &directions {
            outcome.sent += direction.sent;
            outcome.received += direction.received;
            if trial.rate_fps.is_some() && direction.was_refused {
                outcome.refused += due.saturating_sub(direction.sent);
            } else if trial.rate_fps.is_some() && (direction.sent as f64) < due as f64 * SENDER_SHARE - 64.0 {
                return Err(BenchError::Implausible(format!(
                    "the generator sent {} frames of {due} that were due, with room for all",
                    direction.sent
                )));
            }
        }
        outcome.latency_ns = latency;
        Ok((outcome, directions))
    }

    /// Puts up to `wanted` frames into the ring, the first with `number`; returns how many.
    #[inline]
    fn send(&mut self, from: usize, wanted: u32, number: u64, now_ns: u64) -> u32 {
        let (Some(port), Some(frame)) = (self.ports.get_mut(from), self.frames.get(from)) else { return 0 };
        let tx = port.tx();
        let count = wanted.min(tx.available());
        let mut signature = [0; SIGNATURE_BYTES];
        signature[..2].copy_from_slice(&self.number.to_le_bytes());
        signature[10..].copy_from_slice(&now_ns.to_le_bytes());
        for offset in 0..count {
            signature[2..10].copy_from_slice(&(number + u64::from(offset)).to_le_bytes());
            let mut slot = tx.buffer(offset);
            // A slot keeps its buffer, so only the first lap writes whole frames.
            if let Some(unprimed) = self.unprimed.get_mut(from)
                && *unprimed > 0
            {
                *unprimed -= 1;
                slot.write(frame);
            }
            slot.skip(SIGNATURE_OFFSET).write(&signature);
            tx.set(offset, frame.len() as u16, 0);
        }
        tx.advance(count);
        count
    }

    /// Takes what came at port `at`; returns the frames of this trial.
    #[inline]
    fn receive(&mut self, at: usize, mut latency: Option<&mut Histogram<u64>>) -> u32 {
        let Some(port) = self.ports.get_mut(at) else { return 0 };
        let rx = port.rx();
        let count = rx.available();
        if count == 0 {
            return 0;
        }
        let now_ns = self.clock.now_ns();
        let mut own = 0;
        for offset in 0..count {
            if let Some(address) = rx.prefetch_address(offset + PREFETCH_FRAMES) {
                ringroad::prefetch_read(address);
            }
            let mut signature = [0; SIGNATURE_BYTES];
            rx.frame(offset).skip(SIGNATURE_OFFSET).read(&mut signature);
            if signature[..2] != self.number.to_le_bytes() {
                continue;
            }
            own += 1;
            if let Some(latency) = &mut latency
                && let Some(&sent) = signature.last_chunk::<8>()
            {
                latency.saturating_record(now_ns.saturating_sub(u64::from_le_bytes(sent)));
            }
        }
        rx.release(count);
        own
    }
}

/// A UDP frame of `len` bytes from port `from` to the other, with room for the signature.
fn frame(len: usize, from: u8) -> Vec<u8> {
    let mut frame = vec![0x42; len];
    let station = |number: u8| [2, 0, 0, 0, 0x56, number];
    let ip_bytes = (len - 14) as u16;
    let mut header = Vec::with_capacity(SIGNATURE_OFFSET);
    header.extend(station(1 - from));
    header.extend(station(from));
    header.extend([0x08, 0x00]);
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, from, 198, 18, 0, 1 - from];
    ip[2..4].copy_from_slice(&ip_bytes.to_be_bytes());
    let mut sum: u32 = ip.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    header.extend(ip);
    header.extend(49152u16.to_be_bytes());
    // Discard (RFC 863), without a checksum.
    header.extend(9u16.to_be_bytes());
    header.extend((ip_bytes - 20).to_be_bytes());
    header.extend([0, 0]);
    frame[..SIGNATURE_OFFSET].copy_from_slice(&header);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_what_they_say() {
        for len in [60, 1514] {
            let frame = frame(len, 1);
            assert_eq!(frame.len(), len);
            assert_eq!(frame[..14], [2, 0, 0, 0, 0x56, 0, 2, 0, 0, 0, 0x56, 1, 8, 0]);
            let words = frame[14..34].chunks_exact(2);
            let sum: u32 = words.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
            assert_eq!(usize::from(u16::from_be_bytes([frame[16], frame[17]])), len - 14);
            assert_eq!(usize::from(u16::from_be_bytes([frame[38], frame[39]])), len - 34);
        }
    }

    #[test]
    fn what_the_switch_had_no_room_for_counts_as_lost() {
        let outcome = TrialOutcome { sent: 900, received: 890, refused: 100, ..TrialOutcome::default() };
        assert_eq!(outcome.lost(), 110);
        assert!((outcome.loss_ratio() - 0.11).abs() < 1e-9);
    }
}
