//! Mirrors: ports that get copies of the frames of other ports.

use ringroad_port::port_index::PortMask;
use ringroad_switch::MirrorRule;

use super::{Fabric, FabricError, Switch};

/// A mirror, by the names of its ports, which need not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedMirror {
    /// The port whose frames are copied; `None` stands for all ports.
    pub from: Option<String>,
    /// The port that gets the copies.
    pub to: String,
    /// Whether frames that come in by the source are copied.
    pub received: bool,
    /// Whether frames that are delivered to the source are copied.
    pub delivered: bool,
    /// Sampling divisor, at least 1: one in this many frames of each port is copied.
    pub sample: u32,
    /// Whether the port gets a record of each frame in place of the frame.
    pub records: bool,
}

impl Fabric {
    /// Sends copies of frames to a port from now on, and whenever the mirror's ports are made. A mirror with the same
    /// source and the same target is replaced.
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn set_mirror(&mut self, switch: &str, mirror: NamedMirror) -> Result<(), FabricError> {
        let mirrors = self.mirrors.entry(switch.to_owned()).or_default();
        mirrors.retain(|other| (&other.from, &other.to) != (&mirror.from, &mirror.to));
        mirrors.push(mirror);
        self.install_mirrors(switch)
    }

    /// Ends the mirror from a port, or from all ports, to another. Returns `false` if there is none.
    ///
    /// # Errors
    /// A worker that is gone.
    pub fn remove_mirror(&mut self, switch: &str, from: Option<&str>, to: &str) -> Result<bool, FabricError> {
        let Some(mirrors) = self.mirrors.get_mut(switch) else { return Ok(false) };
        let before = mirrors.len();
        mirrors.retain(|mirror| (mirror.from.as_deref(), mirror.to.as_str()) != (from, to));
        if mirrors.len() == before {
            return Ok(false);
        }
        if mirrors.is_empty() {
            self.mirrors.remove(switch);
        }
        self.install_mirrors(switch)?;
        Ok(true)
    }

    /// The mirrors, each with its switch.
    pub fn mirrors(&self) -> impl Iterator<Item = (&str, &NamedMirror)> {
        self.mirrors
            .iter()
            .flat_map(|(switch, mirrors)| mirrors.iter().map(move |mirror| (switch.as_str(), mirror)))
    }

    /// Mirrors of a switch whose ports exist.
    pub(super) fn mirrors_in_force(&self, name: &str, switch: &Switch) -> Vec<MirrorRule> {
        let index = |port: &String| Some(switch.ports.get(port)?.index);
        let in_force = |mirror: &NamedMirror| {
            let source = match &mirror.from {
                Some(port) => [index(port)?].into_iter().collect(),
                None => PortMask::all(),
            };
            let masked = |wanted: bool| if wanted { source } else { PortMask::EMPTY };
            Some(MirrorRule {
                received: masked(mirror.received),
                delivered: masked(mirror.delivered),
                to: index(&mirror.to)?,
                sample: mirror.sample.max(1),
                records: mirror.records,
            })
        };
        self.mirrors.get(name).into_iter().flatten().filter_map(in_force).collect()
    }

    /// Gives each worker the forwarding plane that the mirrors of a switch and its ports require.
    pub(super) fn install_mirrors(&mut self, name: &str) -> Result<(), FabricError> {
        let Some(switch) = self.switches.get(name) else { return Ok(()) };
        let mirrors = self.mirrors_in_force(name, switch);
        if mirrors == switch.mirrors {
            return Ok(());
        }
        self.install_forwarding_planes(name, switch, &mirrors)?;
        // No frames are forwarded to a port that is a monitor.
        for mirror in &mirrors {
            switch.learning.table.forget_learned(Some(mirror.to));
        }
        if let Some(switch) = self.switches.get_mut(name) {
            switch.mirrors = mirrors;
        }
        Ok(())
    }
}
