//! Virtual interfaces of a turn: the wiring, the source of frames, and the counters.
//!
//! ```text
//! tx   program ─► bench0═bench1                                counted: what arrives at bench1
//! gen  generator ─► bench0═bench1                              counted: what arrives at bench1
//! rx   source ─► bench0═bench1 ─► program                      counted: what the program says it received
//! io   source ─► bench0═bench1 ─► program ─► bench2═bench3     counted: what arrives at bench3
//! send program ─► bench0═bench1                                counted: what the program says it sent
//! ```
//!
//! Every turn has its own namespace, interfaces and processes. The source is the same for all contestants: Ringroad's
//! sender over AF_XDP, at the maximum rate. Frames that reach bench1 and are not counted were dropped by the program
//! under test, or by the kernel because the program was too slow. A veth's receiving half runs on the core that sends
//! into it.
//!
//! The interfaces are in a network namespace without a name. It exists while a process is in it or has its descriptor
//! open. So it ends with the turn's last process, even if the bench is killed, and contains no foreign interfaces.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use ringroad_netdev::link_change::{VethEnd, create_veth, set_up};
use ringroad_netdev::link_monitor::wait_running;
use ringroad_netdev::{Namespace, in_namespace, link_by_name};
use rustix::thread::UnshareFlags;

use crate::contestant::CorePair;
use crate::error::BenchError;
use crate::plan::{FramePath, InterfaceWork};
use crate::process::PATIENCE;
use crate::reading::Reading;

/// Interface on which the source sends, or the program that only sends.
pub(crate) const ENTRANCE: &str = "bench0";

/// Interface on which the program under test receives.
pub(crate) const ARRIVAL: &str = "bench1";

/// Interface on which the forwarding program sends.
const EXIT: &str = "bench2";

/// Interface at the end of the path, without a receiver.
pub(crate) const END: &str = "bench3";

/// Interfaces and processors of a turn on a path.
pub(crate) struct Wiring {
    /// Work of the program under test on interfaces, if the kernel's counters show it.
    pub work: Option<InterfaceWork>,
    pub pairs: &'static [[&'static str; 2]],
    /// The program's interfaces.
    pub interfaces: &'static [&'static str],
    /// CPU of the program under test.
    pub cpu: usize,
    /// CPU of the source, if the program receives.
    pub source_cpu: Option<usize>,
}

impl Wiring {
    pub(crate) fn of(path: FramePath, CorePair { first, second }: CorePair) -> Self {
        let FramePath::Veth(_, work) = path else {
            let pairs: &[_] = if path.has_interfaces() { &[[ENTRANCE, ARRIVAL]] } else { &[] };
            return Self { work: None, pairs, interfaces: &[], cpu: second, source_cpu: None };
        };
        let (pairs, interfaces, cpu, source_cpu): (&[_], &[_], _, _) = match work {
            InterfaceWork::Tx | InterfaceWork::Gen => (&[[ENTRANCE, ARRIVAL]], &[ENTRANCE], second, None),
            InterfaceWork::Rx => (&[[ENTRANCE, ARRIVAL]], &[ARRIVAL], first, Some(second)),
            InterfaceWork::Io => (&[[ENTRANCE, ARRIVAL], [EXIT, END]], &[ARRIVAL, EXIT], second, Some(first)),
        };
        Self { work: Some(work), pairs, interfaces, cpu, source_cpu }
    }
}

/// Settings that keep the kernel from sending frames of its own (Documentation/networking/ip-sysctl.rst); absent in a
/// kernel without IPv6.
const IPV6_OFF: [&str; 2] =
    ["/proc/sys/net/ipv6/conf/all/disable_ipv6", "/proc/sys/net/ipv6/conf/default/disable_ipv6"];

/// A network namespace with pairs of virtual interfaces, up and without addresses.
#[derive(Debug)]
pub struct Lab {
    namespace: OwnedFd,
}

impl Lab {
    /// Makes a namespace with these pairs.
    ///
    /// # Errors
    /// [`BenchError`]: the kernel refuses, which it does for all users except root.
    pub fn create(pairs: &[[&str; 2]]) -> Result<Self, BenchError> {
        let lab = Self { namespace: new_namespace()? };
        in_namespace(&lab.namespace(), || {
            for setting in IPV6_OFF.iter().map(Path::new).filter(|setting| setting.exists()) {
                std::fs::write(setting, "1").map_err(BenchError::NewNamespace)?;
            }
            for [first, second] in pairs {
                create_veth(VethEnd::here(first), VethEnd::here(second))?;
            }
            for name in pairs.as_flattened() {
                set_up(name, true)?;
            }
            for name in pairs.as_flattened() {
                wait_running(name, PATIENCE)?;
            }
            Ok::<(), BenchError>(())
        })??;
        Ok(lab)
    }

    /// Returns the namespace, for processes that start in it.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        Namespace::File(format!("/proc/self/fd/{}", self.namespace.as_raw_fd()).into())
    }

    /// Returns the number of frames that have arrived at `interface`, by the kernel's counter.
    pub(crate) fn arrived(&self, interface: &str) -> Result<Reading, BenchError> {
        in_namespace(&self.namespace(), || {
            Reading::of(|| Ok(link_by_name(interface)?.statistics.rx_packets))
        })?
    }
}

/// Returns a descriptor of a new network namespace, which contains only a loopback interface.
fn new_namespace() -> Result<OwnedFd, BenchError> {
    let made = || {
        // SAFETY: only the network namespace of this thread changes, and the thread ends here. The descriptor table
        // stays shared.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
            .map_err(|errno| BenchError::NewNamespace(errno.into()))?;
        Ok(Namespace::Current.open()?)
    };
    std::thread::spawn(made)
        .join()
        .unwrap_or_else(|_| Err(BenchError::NewNamespace(io::Error::other("the thread making it panicked"))))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn interfaces_are_in_a_namespace_of_their_own_and_count_what_arrives() {
        let lab = match Lab::create(&[["bench0", "bench1"]]) {
            Ok(lab) => lab,
            Err(error) if !ringroad_test_needs::is_root() => {
                assert!(error.to_string().contains("needs root"), "{error}");
                return;
            }
            Err(error) => panic!("{}", error.with_causes()),
        };
        assert!(!fs::exists("/sys/class/net/bench0").unwrap());
        assert_eq!(lab.arrived("bench1").unwrap().frames, 0, "the kernel sends no frames by itself");
        let missing = lab.arrived("bench2").unwrap_err();
        assert!(missing.with_causes().contains("there are: lo, bench1, bench0"));
    }
}
