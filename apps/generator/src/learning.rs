//! Frames from which switches learn the addresses behind receiving ports (RFC 2544, section 23).

use std::time::{Duration, Instant};

use ringroad::OpenOptions;
use ringroad_traffic::definition::StreamDefinition;
use ringroad_traffic::header::{Ethernet, Header};
use ringroad_traffic::modifier::{ModifierDefinition, Progression};
use ringroad_traffic::pacing::RateSpec;
use ringroad_wire::ether_type;
use ringroad_wire::mac::Mac;

use crate::error::SessionError;
use crate::open_port::KeptPorts;
use crate::plan::{Load, TestPlan};
use crate::session::{SessionOptions, SessionResult, TestSession};

/// Copies of each learning frame: the DUT may lose a frame while it wakes up.
const LEARNING_COPIES: u64 = 3;
/// Rate of learning frames, frames/s, low enough for a DUT that learns slowly.
const LEARNING_FPS: f64 = 10_000.0;
/// Longest wait until the other side of each port has taken the learning frames.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Time between two checks whether the learning frames were taken.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Opens the plan's ports, sends learning frames from the receiving ports, and waits until the frames have left.
/// Returns the ports, open, for a session with the same options. `stopped` ends the wait.
///
/// # Errors
/// [`SessionError`] if a port cannot be opened or fails.
pub fn announce_receivers(
    plan: &TestPlan,
    ports: &OpenOptions,
    options: &SessionOptions,
    stopped: &dyn Fn() -> bool,
) -> Result<KeptPorts, SessionError> {
    let loads = plan.loads.iter().flat_map(learning_loads).collect();
    let learning = TestPlan { ports: plan.ports.clone(), loads };
    if learning.loads.is_empty() {
        return Ok(KeptPorts::default());
    }
    let mut session = TestSession::open(learning, ports, options)?;
    session.start();
    while !session.wait_sent(CHECK_INTERVAL * 10) && !stopped() {}
    let until = Instant::now() + LONGEST_WAIT;
    let waits = |session: &mut TestSession| {
        session.report().is_some_and(|report| report.ports.iter().any(|port| port.unsent_slots > 0))
    };
    while waits(&mut session) && !stopped() && Instant::now() < until {
        std::thread::sleep(CHECK_INTERVAL);
    }
    let SessionResult { ports, outcome, .. } = session.end(Duration::ZERO);
    outcome.map(|()| ports)
}

/// Loads from the ports that `load` leads to. For each stream of `load` there are broadcast frames whose source address
/// is the stream's destination address. Addresses drawn at random are not learned.
pub(crate) fn learning_loads(load: &Load) -> Vec<Load> {
    let mut loads = Vec::new();
    for (from, definition) in
        load.to.iter().flat_map(|from| load.streams.iter().map(move |stream| (from, stream)))
    {
        let Some((stream, addresses)) = learning_stream(definition) else { continue };
        loads.push(Load {
            name: format!("learning {} of {} at {from}", definition.name, load.name),
            rate: RateSpec::Frames { rate_fps: LEARNING_FPS },
            frames: Some(addresses * LEARNING_COPIES),
            ..Load::new(from, &[], vec![stream])
        });
    }
    loads
}

/// A stream from which the destination addresses of `definition` are learned, and their number.
fn learning_stream(definition: &StreamDefinition) -> Option<(StreamDefinition, u64)> {
    let destination = definition.destination()?;
    let varied = definition.modify.iter().find(|modifier| modifier.field == "ethernet.destination");
    let addresses = match varied.map(|modifier| &modifier.progression) {
        None => 1,
        Some(Progression::Increment(steps) | Progression::Decrement(steps)) => steps.count,
        Some(Progression::List(values)) => values.len() as u64,
        Some(Progression::Random(_)) => return None,
    };
    let ethernet = Ethernet {
        source: destination,
        destination: Mac::BROADCAST,
        ether_type: Some(ether_type::LOCAL_EXPERIMENT),
    };
    let modify = varied.map(|modifier| ModifierDefinition {
        field: "ethernet.source".to_owned(),
        every: 1,
        ..modifier.clone()
    });
    let stream = StreamDefinition {
        name: definition.name.clone(),
        signature: false,
        packet: Some(vec![Header::Ethernet(ethernet)]),
        modify: modify.into_iter().collect(),
        ..StreamDefinition::default()
    };
    Some((stream, addresses))
}
