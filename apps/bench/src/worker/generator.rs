//! Worker of a generator: one load at full speed from one port, by a session as in `ringroad gen`.

use std::io::{BufRead, Write};
use std::time::Duration;

use ringroad::Port;
use ringroad_generator::{Load, PlannedPort, SessionOptions, TestPlan, TestSession};
use ringroad_traffic::definition::StreamDefinition;
use ringroad_traffic::frame_size_mix::FrameSizeMix;
use ringroad_traffic::line_rate::FrameSize;

use super::{BenchWorkerError, COUNT, TimedCounts, WorkerLine, WorkerOptions, WorkerRole, say};

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

/// Sends until `input` ends. Unlike other roles, the session has a thread of its own.
pub(super) fn run(
    mut session: TestSession,
    input: impl BufRead,
    output: &mut impl Write,
) -> Result<(), BenchWorkerError> {
    session.start();
    for line in input.lines().map_while(Result::ok) {
        if session.has_failed() {
            break;
        }
        if line == COUNT {
            let counts = TimedCounts::now(&[session.sent(LOAD).frames], None);
            say(output, &WorkerLine::Counted(counts))?;
        }
    }
    let (_, ended) = session.finish(Duration::ZERO);
    Ok(ended?)
}
