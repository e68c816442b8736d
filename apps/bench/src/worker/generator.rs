//! Worker of a generator: one load at full speed from one port, by a session as in `ringroad gen`.

use std::io::{BufRead, Write};
use std::time::{Duration, Instant};

use ringroad::Port;
use ringroad_generator::{Load, PlannedPort, SessionOptions, TestPlan, TestSession};
use ringroad_traffic::definition::StreamDefinition;
use ringroad_traffic::frame_size_mix::FrameSizeMix;
use ringroad_traffic::line_rate::FrameSize;

use super::{BenchWorkerError, COUNT, Measured, SETTLE, WorkerLine, WorkerOptions, WorkerRole, say};
use crate::cycles;

/// Index of the plan's only load.
const LOAD: usize = 0;

/// Makes a session that is ready to send from `port`: one flow of Ethernet, IPv4 and UDP, with the bursts of `options`.
///
/// # Errors
/// [`BenchWorkerError`] if the frame size is invalid, or the session cannot be made with the settings `session`.
pub fn session(
    options: &WorkerOptions,
    port: Port,
    session: SessionOptions,
) -> Result<TestSession, BenchWorkerError> {
    let name = port.info().name.clone();
    let stream = StreamDefinition {
        size: Some(FrameSizeMix::Fixed(FrameSize::new(options.frame_bytes)?)),
        signature: options.role == WorkerRole::Generate,
        ..StreamDefinition::default()
    };
    let plan =
        TestPlan { loads: vec![Load::new(&name, &[], vec![stream])], ports: vec![PlannedPort::new(&name)] };
    let session = SessionOptions { burst: options.burst_frames, ..session };
    Ok(TestSession::over(plan, vec![port], &session)?)
}

/// Sends until `input` ends. Reports after the `interval`, unless it is zero. Unlike other roles, the session has a
/// thread of its own.
pub(super) fn run(
    mut session: TestSession,
    interval: Duration,
    input: impl BufRead,
    output: &mut impl Write,
) -> Result<(), BenchWorkerError> {
    session.start();
    if !interval.is_zero() {
        say(output, &WorkerLine::Measured(measure(&session, interval)))?;
    }
    for line in input.lines().map_while(Result::ok) {
        if session.has_failed() {
            break;
        }
        if line == COUNT {
            say(output, &WorkerLine::SoFar { so_far_frames: session.sent(LOAD).frames })?;
        }
    }
    let (_, ended) = session.finish(Duration::ZERO);
    Ok(ended?)
}

/// Counts the frames handed over within the interval, after the settling time.
fn measure(session: &TestSession, interval: Duration) -> Measured {
    let sample = || (Instant::now(), cycles::ticks(), session.sent(LOAD).frames);
    std::thread::sleep(SETTLE);
    let (began, first_ticks, before) = sample();
    std::thread::sleep(interval);
    let (ended, last_ticks, after) = sample();
    let frames = after - before;
    let ticks = last_ticks.zip(first_ticks).map(|(last, first)| last.wrapping_sub(first));
    Measured {
        frames,
        directions_frames: vec![frames],
        seconds: ended.duration_since(began).as_secs_f64(),
        cycles_per_frame: ticks.filter(|_| frames > 0).map(|ticks| ticks as f64 / frames as f64),
        lost_or_reordered_frames: None,
    }
}
