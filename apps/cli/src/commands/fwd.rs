//! `ringroad fwd`: forward between two ports.

use clap::{Args, ValueEnum};
use ringroad::{Embedded, Interest, OpenOptions, Port};
use ringroad_traffic::definition::StreamDefinition;
use ringroad_traffic::frame_size_mix::FrameSizeMix;
use ringroad_traffic::line_rate::FrameSize;
use serde::Serialize;

use crate::failure::Failure;
use crate::forwarder::{DirectionCounts, ForwarderDirection, PortPair};
use crate::options::{Global, PortSizeArgs, RunLimits, refuse_one_port_twice};
use crate::output::Output;
use crate::output::rates::{frame_rate, grouped};
use crate::port_wait::{Idleness, wait_for_either};
use crate::run::{Progress, Run, pin};
use crate::verb::MainVerb;

/// Forward frames between two ports
///
/// One thread forwards in both directions. With --pipeline two threads work, one at each port, joined by a pipe, which
/// costs one more copy per frame. Ends with --duration or Ctrl-C.
#[derive(Debug, Args)]
pub(crate) struct FwdArgs {
    /// First port
    #[arg(value_name = "A")]
    first: String,
    /// Second port
    #[arg(value_name = "B")]
    second: String,
    /// Forwarding mode, by testpmd's names
    #[arg(long, value_enum, default_value_t = Mode::Io)]
    mode: Mode,
    /// Work with two threads, one at each port
    #[arg(long)]
    pipeline: bool,
    /// Forward only from A to B
    #[arg(long)]
    one_way: bool,
    /// Drop frames when the other port is full, instead of letting them wait
    #[arg(long)]
    drop: bool,
    /// Maximum number of slots moved per sync
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    burst: u32,
    /// Frame size of txonly in bytes, FCS included
    #[arg(long, value_name = "BYTES", default_value = "64")]
    size: FrameSize,
    #[command(flatten)]
    sizes: PortSizeArgs,
    #[command(flatten)]
    limits: RunLimits,
}

/// A forwarding mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// Forward unchanged
    Io,
    /// Forward with source and destination Ethernet address exchanged
    Macswap,
    /// Receive and release
    Rxonly,
    /// Send generated frames
    Txonly,
}

/// Counters of one direction. For rxonly and txonly: the frames received or sent at the direction's first port.
#[derive(Debug, Serialize)]
struct DirectionReport {
    from: String,
    to: String,
    #[serde(flatten)]
    counts: DirectionCounts,
    rate_fps: f64,
}

#[derive(Debug, Serialize)]
struct Summary {
    mode: Mode,
    pipeline: bool,
    seconds: f64,
    frames: u64,
    directions: Vec<DirectionReport>,
}

impl MainVerb for FwdArgs {
    const EXAMPLES: &str = "ringroad fwd vale0:c x{1 --mode macswap";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let forwards = matches!(self.mode, Mode::Io | Mode::Macswap);
        if self.pipeline && !forwards {
            return Err(Failure::usage(
                "--pipeline needs two ports to join",
                "use it with --mode io or macswap",
            ));
        }
        if self.limits.cpu.len() > 1 && !self.pipeline {
            return Err(Failure::usage("two CPUs for one thread", "give one CPU, or use --pipeline"));
        }
        refuse_one_port_twice(
            [&*self.first, &*self.second],
            "give two ports: frames go from one to the other",
        )?;
        let first = self.sizes.open(&self.first, global, &self.limits)?;
        let second = self.sizes.open(&self.second, global, &self.limits)?;
        let mut ports = [first, second];
        let [a, b] = &mut ports;
        if a.queues().len() != b.queues().len() {
            return Err(Failure::usage(
                format!(
                    "{} has {} queues, {} has {}",
                    self.first,
                    a.queues().len(),
                    self.second,
                    b.queues().len()
                ),
                "give both ports the same number",
            ));
        }
        let names = ports.each_ref().map(|port| port.info().name.clone());
        let run = Run::start(&self.limits)?;
        output.ready(&[ports[0].info(), ports[1].info()])?;
        let progress = Progress::new(output, &self.limits, "forwarded");
        let mut forwarding = FwdRun { args: self, run, progress, counts: Default::default() };
        let ended = match self.mode {
            Mode::Io | Mode::Macswap if self.pipeline => forwarding.pipeline(ports),
            Mode::Io | Mode::Macswap => forwarding.complete(ports),
            Mode::Rxonly => forwarding.discard(ports),
            Mode::Txonly => forwarding.invent(ports),
        };
        let FwdRun { run, progress, counts, .. } = forwarding;
        progress.finish();
        let seconds = run.now_ns() as f64 / 1e9;
        let [a, b] = names;
        let ways = [(a.clone(), b.clone()), (b, a)];
        let shown = if self.one_way { 1 } else { 2 };
        let directions: Vec<DirectionReport> = ways
            .into_iter()
            .zip(counts)
            .take(shown)
            .map(|((from, to), counts)| DirectionReport {
                from,
                to,
                counts,
                rate_fps: counts.frames as f64 / seconds,
            })
            .collect();
        let frames = directions.iter().map(|direction| direction.counts.frames).sum();
        let summary = Summary { mode: self.mode, pipeline: self.pipeline, seconds, frames, directions };
        output.result(&summary, text)?;
        ended
    }
}

/// A run of the command: it counts both directions, whether it ends well or not.
struct FwdRun<'a> {
    args: &'a FwdArgs,
    run: Run,
    progress: Progress,
    counts: [DirectionCounts; 2],
}

impl FwdRun<'_> {
    fn direction(&self, macswap: bool) -> ForwarderDirection {
        ForwarderDirection::new(macswap, self.args.drop, self.args.burst)
    }

    fn complete(&mut self, ports: [Port; 2]) -> Result<(), Failure> {
        pin(self.args.limits.cpu.first().copied())?;
        let macswap = self.args.mode == Mode::Macswap;
        let back = (!self.args.one_way).then(|| self.direction(macswap));
        let mut junction = PortPair { ports, there: self.direction(macswap), back };
        let ended = junction.forward(&self.run, |now_ns, frames| self.progress.update(now_ns, frames, 0));
        self.counts = junction.counts();
        ended
    }

    /// Forwards with two threads. Each joins one port and one end of a pipe. Addresses are exchanged at the receiving
    /// port.
    fn pipeline(&mut self, ports: [Port; 2]) -> Result<(), Failure> {
        let [mut first, mut second] = self.stages(ports)?;
        let Self { args, run, progress, counts } = self;
        let cpu = |thread: usize| args.limits.cpu.get(thread).copied();
        let stage = |junction: &mut PortPair, cpu: Option<usize>, progress: Option<&mut Progress>| {
            let mut progress = progress;
            let ended = pin(cpu).and_then(|()| {
                junction.forward(run, |now_ns, frames| match &mut progress {
                    Some(progress) => progress.update(now_ns, frames, 0),
                    None => Ok(()),
                })
            });
            // A stage that fails ends the other stage too.
            run.end();
            ended
        };
        let (one, two) = std::thread::scope(|scope| {
            let other = scope.spawn(|| stage(&mut second, cpu(1), None));
            let one = stage(&mut first, cpu(0), Some(progress));
            let two = other
                .join()
                .unwrap_or_else(|_| Err(Failure::new("the second thread ended unexpectedly", "")));
            (one, two)
        });
        let ([there_in, back_out], [there_out, back_in]) = (first.counts(), second.counts());
        *counts = [there_in.followed_by(there_out), back_in.followed_by(back_out)];
        one.and(two)
    }

    fn stages(&self, ports: [Port; 2]) -> Result<[PortPair; 2], Failure> {
        let [mut a, b] = ports;
        let options = OpenOptions {
            queues: u16::try_from(a.queues().len()).ok(),
            slots: Some(a.rx().slot_count()),
            buffer_bytes: Some(a.rx().buffer_bytes()),
            ..OpenOptions::default()
        };
        let pipe = Embedded::new();
        let (near, far) = (pipe.open_with("fwd{1", &options)?, pipe.open_with("fwd}1", &options)?);
        let macswap = self.args.mode == Mode::Macswap;
        let stage = |ports, there, back| PortPair {
            ports,
            there: self.direction(there),
            back: (!self.args.one_way).then(|| self.direction(back)),
        };
        Ok([stage([a, near], macswap, false), stage([far, b], false, macswap)])
    }

    /// Receives and releases frames at both ports, or at the first port only.
    fn discard(&mut self, ports: [Port; 2]) -> Result<(), Failure> {
        self.each_port(ports, Interest::Rx, |port, counts| {
            for queue in port.queues() {
                queue.rx().sync()?;
                let rx = queue.rx();
                let mut slots = 0;
                while slots < rx.available() {
                    let frame_slots = rx.frame_slots(slots);
                    if frame_slots == 0 {
                        break;
                    }
                    slots += frame_slots;
                    counts.frames += 1;
                }
                rx.release(slots);
            }
            Ok(())
        })
    }

    /// Sends generated frames from both ports, or from the first port only.
    fn invent(&mut self, ports: [Port; 2]) -> Result<(), Failure> {
        let size = Some(FrameSizeMix::Fixed(self.args.size));
        let mut stream = StreamDefinition { size, ..StreamDefinition::default() }.compile(0)?;
        let burst = self.args.burst;
        self.each_port(ports, Interest::Tx, |port, counts| {
            for queue in port.queues() {
                let tx = queue.tx();
                let batch = tx.available().min(burst);
                for _ in 0..batch {
                    counts.frames += u64::from(tx.send(stream.next_frame(0))?);
                }
                tx.sync()?;
            }
            Ok(())
        })
    }

    /// Calls `work` for each port in turn until the run is over. Sleeps until `interest` when no call moves anything.
    fn each_port(
        &mut self,
        mut ports: [Port; 2],
        interest: Interest,
        mut work: impl FnMut(&mut Port, &mut DirectionCounts) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Self { args, run, progress, counts } = self;
        let interests = [Some(interest), (!args.one_way).then_some(interest)];
        let used = if args.one_way { 1 } else { 2 };
        let mut idleness = Idleness::default();
        pin(args.limits.cpu.first().copied())?;
        loop {
            let now_ns = run.now_ns();
            if run.is_over(now_ns) {
                return Ok(());
            }
            let before = *counts;
            for (port, counts) in ports.iter_mut().zip(&mut *counts).take(used) {
                work(port, counts)?;
            }
            progress.update(now_ns, counts.iter().map(|counts| counts.frames).sum(), 0)?;
            if *counts != before {
                idleness.busy();
            } else if idleness.is_long() {
                wait_for_either(ports.each_mut(), interests, run.wait_limit(now_ns))?;
            }
        }
    }
}

fn text(summary: &Summary) -> String {
    let mut lines = vec![format!("{} frames in {:.3} s", grouped(summary.frames), summary.seconds)];
    for direction in &summary.directions {
        let counts = &direction.counts;
        let way = match summary.mode {
            Mode::Io | Mode::Macswap => format!("{} -> {}", direction.from, direction.to),
            Mode::Rxonly => format!("from {}", direction.from),
            Mode::Txonly => format!("to {}", direction.from),
        };
        let mut line =
            format!("  {way}: {} frames, {}", grouped(counts.frames), frame_rate(direction.rate_fps));
        if counts.dropped_frames > 0 {
            line += &format!(", {} dropped at the full port", grouped(counts.dropped_frames));
        }
        if counts.too_long_frames > 0 {
            line += &format!(", {} dropped as too long", grouped(counts.too_long_frames));
        }
        if counts.zero_copy {
            line += ", buffers exchanged instead of copied";
        }
        lines.push(line);
    }
    lines.join("\n")
}
