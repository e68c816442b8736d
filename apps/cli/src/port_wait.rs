//! Waiting for events at ports: a short spin first, then sleep.

use std::time::Duration;

use ringroad::{Interest, Port, wait_any};

use crate::failure::Failure;

/// Number of empty turns of a loop before it sleeps: a few microseconds, less than the cost of a sleep and a wake.
const SPINS: u32 = 64;

/// Decision between another turn and a sleep.
#[derive(Debug, Default)]
pub(crate) struct Idleness {
    turns: u32,
}

impl Idleness {
    /// Notes that frames moved.
    #[inline]
    pub(crate) fn busy(&mut self) {
        self.turns = 0;
    }

    /// Notes that nothing moved. Returns whether it is time to sleep.
    #[inline]
    pub(crate) fn is_long(&mut self) -> bool {
        self.turns += 1;
        if self.turns < SPINS {
            std::hint::spin_loop();
            return false;
        }
        self.turns = 0;
        true
    }
}

/// Sleeps until either port has the event of its interest, for at most `limit`. A signal ends the sleep too.
pub(crate) fn wait_for_either(
    ports: [&mut Port; 2],
    interests: [Option<Interest>; 2],
    limit: Duration,
) -> Result<(), Failure> {
    let mut waits = Vec::with_capacity(2);
    for (port, interest) in ports.into_iter().zip(interests) {
        match interest {
            Some(interest) => waits.push(port.awaiting(interest)),
            None => port.check()?,
        }
    }
    wait_any(&mut waits, Some(limit))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use ringroad::Embedded;

    use super::*;

    #[test]
    fn a_frame_at_either_port_ends_the_wait() {
        let switch = Embedded::new();
        let mut sender = switch.open("vale0:s").unwrap();
        let (mut a, mut b) = (switch.open("x{1").unwrap(), switch.open("vale0:b").unwrap());
        sender.tx().send(&[0xff; 60]).unwrap();
        sender.tx().sync().unwrap();
        wait_for_either([&mut a, &mut b], [Some(Interest::Rx); 2], Duration::from_secs(3600)).unwrap();
        assert_eq!(b.rx().available(), 1);
    }

    #[test]
    fn a_wait_without_frames_ends_at_its_limit() {
        let switch = Embedded::new();
        let (mut a, mut b) = (switch.open("vale0:a").unwrap(), switch.open("vale0:b").unwrap());
        wait_for_either([&mut a, &mut b], [Some(Interest::Rx), None], Duration::from_millis(1)).unwrap();
        assert_eq!((a.rx().available(), b.rx().available()), (0, 0));
    }

    #[test]
    fn an_idle_loop_polls_then_sleeps_and_new_work_resets_it() {
        let mut idleness = Idleness::default();
        assert!((1..SPINS).all(|_| !idleness.is_long()));
        assert!(idleness.is_long());
        assert!(!idleness.is_long());
        idleness.busy();
        assert!((1..SPINS).all(|_| !idleness.is_long()));
    }
}
