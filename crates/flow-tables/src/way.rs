//! What becomes of packets, where entries do no more than most do: found without the interpreter of all instructions.

use ringroad_port::drop_cause::DropCause;
use ringroad_port::plan::Fate;
use ringroad_port::port_index::PortIndex;

use crate::brief::{Brief, Plain};
use crate::key::{FlowKey, Words, word};
use crate::tables::{Fragments, Tables};
use crate::trail::{Step, Trail};

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Fate(Fate),
    /// A learning switch decides.
    Normal,
    /// The interpreter of all instructions decides.
    Other,
}

/// The ports that a packet's way depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub from: PortIndex,
    pub controllers: PortIndex,
}

impl Tables {
    /// The words of a packet's key that have to be read.
    pub(crate) fn words_to_read(&self) -> Words {
        match self.fragments {
            Fragments::Normal => self.words,
            // Which packets are fragments, their IP headers say.
            Fragments::Drop => self.words | 1 << word::TYPES,
        }
    }

    /// The way of a packet with this key, and the steps of it.
    #[inline]
    pub(crate) fn way(&self, key: &FlowKey, ends: Ends, trail: &mut Trail) -> Way {
        trail.clear();
        let mut table = 0;
        loop {
            let Some(classifier) = self.tables.get(usize::from(table)) else { return Way::Other };
            let found = classifier.find(key);
            trail.push(Step::new(table, found));
            let Some((_, Brief { plain, .. })) = found else {
                return Way::Fate(Fate::Drop(DropCause::NoFlow));
            };
            match plain {
                Plain::Goto(next) => table = next,
                Plain::Output(port) => return Way::Fate(self.output(port, ends)),
                Plain::Drop => return Way::Fate(Fate::Drop(DropCause::ByFlow)),
                Plain::Normal => return Way::Normal,
                Plain::Other => return Way::Other,
            }
        }
    }

    /// As the interpreter's output to a port.
    #[inline]
    fn output(&self, port: PortIndex, Ends { from, controllers }: Ends) -> Fate {
        if port == from || !self.ports.senders().contains(port) {
            Fate::Drop(DropCause::ByFlow)
        } else if port == controllers {
            Fate::Drop(DropCause::NoDestination)
        } else {
            Fate::Port(port)
        }
    }
}
