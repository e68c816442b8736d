//! The peers: other projects' programs, on the same two cores, configured as their users would.

mod foreign;
mod tcpdump;
mod tcpreplay;
mod telemetry;
pub mod testpmd;
mod testpmd_interface;
mod testpmd_memif;
mod testpmd_null;
mod testpmd_switch;
mod testpmd_vhost_user;
mod trafgen;

use std::rc::Rc;

use serde::Serialize;

use crate::contestant::{Contestant, CorePair};
use crate::error::BenchError;
use crate::ours::{Programs, enter_libpcap, interface_program};
use crate::plan::{FramePath, InterfaceWork, Mechanism};
use crate::runner::Contestants;
use crate::stop::StopFlag;
use crate::veth::{InterfaceProgram, VethContestant};
use tcpdump::Tcpdump;
use tcpreplay::Tcpreplay;
use testpmd::{Generator, Installation, Setup, TestpmdPeer};
use testpmd_interface::TestpmdInterface;
use trafgen::Trafgen;

/// A peer that cannot take part, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Absent {
    pub name: String,
    /// Reason why it is missing, and how to add it.
    pub reason: String,
}

/// Adds every installed peer to the contestants, and records the other peers as absent.
///
/// On interfaces all peers receive frames from Ringroad's sender; without `programs` no peer runs there. Two-core paths
/// need `cores`. With one CPU, pass the same CPU twice and leave those paths out of the plan.
pub fn enter_installed(
    contestants: &mut Contestants,
    programs: Option<&Programs>,
    cores: CorePair,
    stop: &StopFlag,
) {
    if let Some(programs) = programs {
        enter_libpcap(contestants, programs, None, cores, stop);
    }
    let mut enter_on_veth = |mechanism, flow, program: Box<dyn InterfaceProgram>| {
        if let Some(programs) = programs {
            let source = interface_program(programs);
            let peer = VethContestant::new(mechanism, flow, program, source, cores, stop);
            contestants.field_mut(FramePath::Veth(mechanism, flow)).peers.push(Box::new(peer));
        }
    };
    let mut absent = Vec::new();
    let mut note = |name: &str, error: &BenchError| {
        absent.push(Absent { name: name.into(), reason: reason(error) });
    };
    match Tcpdump::find() {
        Ok(tcpdump) => enter_on_veth(Mechanism::Packet, InterfaceWork::Rx, Box::new(tcpdump)),
        Err(error) => note("libpcap (tcpdump)", &error),
    }
    match Trafgen::find() {
        Ok(trafgen) => enter_on_veth(Mechanism::Packet, InterfaceWork::Gen, Box::new(trafgen)),
        Err(error) => note("trafgen", &error),
    }
    match Tcpreplay::find() {
        Ok(tcpreplay) => enter_on_veth(Mechanism::Packet, InterfaceWork::Gen, Box::new(tcpreplay)),
        Err(error) => note("tcpreplay", &error),
    }
    match Installation::find(stop) {
        Ok(installation) => {
            for path in FramePath::VETH {
                if let FramePath::Veth(mechanism, flow) = path {
                    let program = TestpmdInterface::new(mechanism, &installation);
                    enter_on_veth(mechanism, flow, Box::new(program));
                }
            }
            for mechanism in [Mechanism::Xdp, Mechanism::Packet] {
                for generator in [Generator::TxOnly, Generator::FlowGen] {
                    let program = TestpmdInterface::generating(mechanism, generator, &installation);
                    enter_on_veth(mechanism, InterfaceWork::Gen, Box::new(program));
                }
            }
            for (path, peer) in testpmd_peers(&installation, cores) {
                contestants.field_mut(path).peers.push(peer);
            }
        }
        Err(error) => note("DPDK testpmd (null, memif, vhost-user, switch, AF_XDP, AF_PACKET)", &error),
    }
    contestants.absent.append(&mut absent);
}

fn testpmd_peers(installation: &Rc<Installation>, cores: CorePair) -> Vec<(FramePath, Box<dyn Contestant>)> {
    fn enter<S: Setup + 'static>(
        setup: S,
        installation: &Rc<Installation>,
        cores: CorePair,
    ) -> (FramePath, Box<dyn Contestant>) {
        (setup.path(), Box::new(TestpmdPeer::new(setup, Rc::clone(installation), cores)))
    }
    let mut peers = vec![
        enter(testpmd_null::Null { copy: false }, installation, cores),
        enter(testpmd_null::Null { copy: true }, installation, cores),
        enter(testpmd_memif::MemifPair { zero_copy: false }, installation, cores),
        enter(testpmd_vhost_user::VhostUserPair, installation, cores),
        enter(testpmd_switch::VhostUserSwitch, installation, cores),
        enter(testpmd_null::NullGenerator(Generator::TxOnly), installation, cores),
        enter(testpmd_null::NullGenerator(Generator::FlowGen), installation, cores),
    ];
    if installation.has_hugepages() {
        peers.push(enter(testpmd_memif::MemifPair { zero_copy: true }, installation, cores));
    }
    peers
}

/// Formats an error with its causes, on one line.
pub(crate) fn reason(error: &BenchError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
