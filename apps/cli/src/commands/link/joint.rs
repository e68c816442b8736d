//! The veth pair between a namespace and the daemon's: made, found again, removed.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use ringroad_netdev::link::{link_by_name, links};
use ringroad_netdev::link_change::{VethEnd, add_address, create_veth, delete_link, set_mtu, set_up};
use ringroad_netdev::link_monitor::wait_running;
use ringroad_netdev::offload::{Offload, set_offload};
use ringroad_netdev::{Namespace, NamespaceId, NetdevError, in_namespace};

use crate::failure::Failure;

/// How names of outer ends begin.
const OUTER_PREFIX: &str = "rr-";
/// Longest name of an interface, bytes, and so of the port called like it.
const NAME_BYTES_MAX: usize = 15;
/// Namespaces whose names begin alike.
const NAMESAKES_MAX: u32 = 99;

/// A veth pair: `inner` in the namespace, `outer` in the daemon's.
#[derive(Debug, Clone)]
pub(in crate::commands) struct Joint {
    pub(in crate::commands) namespace: Namespace,
    pub(in crate::commands) inner: String,
    pub(in crate::commands) outer: String,
}

/// A namespace as users give it.
pub(in crate::commands) fn parse(text: &str) -> Result<Namespace, Failure> {
    match text.parse()? {
        Namespace::Current => Err(Failure::usage(
            "a namespace without a name",
            "give a name from ip netns list, or the number of a process in it",
        )),
        namespace => Ok(namespace),
    }
}

/// The words before a command that make it run in `namespace`.
pub(in crate::commands) fn launcher(namespace: &Namespace) -> Vec<OsString> {
    match namespace {
        Namespace::Named(name) => ["ip", "netns", "exec", name].map(OsString::from).into(),
        other => {
            let mut file = OsString::from("--net=");
            file.push(other.path());
            vec!["nsenter".into(), file]
        }
    }
}

/// The same as a person types it.
pub(in crate::commands) fn command_prefix(namespace: &Namespace) -> String {
    launcher(namespace).iter().map(|word| format!("{} ", word.to_string_lossy())).collect()
}

/// Makes sure that `namespace` can be entered and that `inner` is free there; tells which it is.
pub(in crate::commands) fn look(namespace: &Namespace, inner: &str) -> Result<NamespaceId, Failure> {
    let held = namespace.hold()?;
    match held.run(|| link_by_name(inner))? {
        Ok(_) => Err(Failure::new(
            format!("{namespace} has an interface {inner} already"),
            "take it back with ringroad unlink, or choose another name with --name",
        )),
        Err(error) if error.is_no_interface() => Ok(held.id()),
        Err(error) => Err(error.into()),
    }
}

impl Joint {
    /// Makes the pair, with the outer end up and the inner end ready to be set up.
    ///
    /// Frames leave the inner end complete, since nothing behind it would complete them. The host stack has nothing to say on the outer end.
    pub(in crate::commands) fn make(
        outside: &Namespace,
        namespace: &Namespace,
        inner: &str,
        mtu: Option<u32>,
    ) -> Result<Self, Failure> {
        let target = namespace.open()?;
        let create = || {
            let mut number = 1;
            loop {
                let outer = outer_name(namespace, number);
                match create_veth(VethEnd::here(&outer), VethEnd::within(inner, target.as_fd())) {
                    Ok(()) => return Ok(outer),
                    Err(NetdevError::Refused { source: rustix::io::Errno::EXIST, .. })
                        if number < NAMESAKES_MAX =>
                    {
                        number += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let outer = in_namespace(outside, create)??;
        let joint = Self { namespace: namespace.clone(), inner: inner.to_owned(), outer };
        match joint.prepare(outside, mtu) {
            Ok(()) => Ok(joint),
            Err(failure) => {
                // The reason counts, not that nothing more could be done.
                let _ = joint.remove(outside);
                Err(failure)
            }
        }
    }

    fn prepare(&self, outside: &Namespace, mtu: Option<u32>) -> Result<(), Failure> {
        let Self { namespace, inner, outer } = self;
        in_namespace(outside, || -> Result<(), Failure> {
            silence(outer)?;
            mtu.map_or(Ok(()), |mtu| set_mtu(outer, mtu))?;
            Ok(set_up(outer, true)?)
        })??;
        in_namespace(namespace, || {
            mtu.map_or(Ok(()), |mtu| set_mtu(inner, mtu))?;
            [Offload::TxChecksum, Offload::Tso, Offload::TxVlan]
                .into_iter()
                .try_for_each(|offload| set_offload(inner, offload, false).map(drop))
        })??;
        Ok(())
    }

    /// Sets the inner end up, with an address if it gets one.
    pub(in crate::commands) fn set_inner_up(&self, address: Option<IpAddr>, bits: u8) -> Result<(), Failure> {
        in_namespace(&self.namespace, || {
            address.map_or(Ok(()), |address| add_address(&self.inner, address, bits))?;
            set_up(&self.inner, true)
        })??;
        Ok(())
    }

    /// Waits until both ends carry frames.
    pub(in crate::commands) fn await_carrier(
        &self,
        outside: &Namespace,
        limit: Duration,
    ) -> Result<(), Failure> {
        in_namespace(outside, || wait_running(&self.outer, limit))??;
        in_namespace(&self.namespace, || wait_running(&self.inner, limit))??;
        Ok(())
    }

    /// Finds the pair that `ringroad link` made for `namespace`.
    pub(in crate::commands) fn find(
        outside: &Namespace,
        namespace: &Namespace,
        inner: &str,
    ) -> Result<Self, Failure> {
        let inside = in_namespace(namespace, || link_by_name(inner))??;
        let candidates = in_namespace(outside, links)??;
        let is_outer = |link: &&ringroad_netdev::LinkInfo| {
            link.name.starts_with(OUTER_PREFIX)
                && link.kind.as_deref() == Some("veth")
                && link.peer.is_some_and(|peer| peer.index == inside.index)
        };
        let outer = inside
            .peer
            .and_then(|peer| candidates.iter().filter(is_outer).find(|link| link.index == peer.index));
        match outer {
            Some(outer) => {
                Ok(Self { namespace: namespace.clone(), inner: inner.to_owned(), outer: outer.name.clone() })
            }
            None => Err(Failure::new(
                format!("{inner} in {namespace} was not made by ringroad link, or by another daemon's"),
                "name the right interface with --name, or the other daemon with --socket",
            )),
        }
    }

    /// What must have been the pair of a namespace that cannot be entered any more; `None` where it can.
    pub(in crate::commands) fn of_gone(namespace: &Namespace, inner: &str) -> Option<Self> {
        namespace.open().is_err().then(|| Self {
            namespace: namespace.clone(),
            inner: inner.to_owned(),
            outer: outer_name(namespace, 1),
        })
    }

    /// Removes the pair.
    pub(in crate::commands) fn remove(&self, outside: &Namespace) -> Result<(), Failure> {
        match in_namespace(outside, || delete_link(&self.outer))? {
            // It went with its namespace.
            Err(error) if error.is_no_interface() => Ok(()),
            result => Ok(result?),
        }
    }
}

/// Keeps the host's IPv6 stack from announcing itself on an interface, in the calling thread's namespace.
fn silence(interface: &str) -> Result<(), Failure> {
    let setting = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    match std::fs::write(&setting, "1") {
        // A kernel without IPv6.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result.map_err(|error| {
            Failure::new(format!("writing {setting}: {error}"), "run it where /proc/sys can be written")
        }),
    }
}

/// A name for the outer end that tells whose it is: `rr-blue`, and for namesakes `rr-blue-2` and so on. Also a good port name.
fn outer_name(namespace: &Namespace, number: u32) -> String {
    let of = match namespace {
        Namespace::Named(name) => name.clone(),
        Namespace::OfProcess(process) => process.to_string(),
        other => other.path().file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
    let suffix = if number > 1 { format!("-{number}") } else { String::new() };
    let room = NAME_BYTES_MAX - OUTER_PREFIX.len() - suffix.len();
    let short: String = of.chars().map(plain).take(room).collect();
    format!("{OUTER_PREFIX}{short}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outer_ends_are_named_after_their_namespace() {
        let named = |name: &str, number| outer_name(&Namespace::Named(name.into()), number);
        assert_eq!(named("blue", 1), "rr-blue");
        assert_eq!(named("blue", 2), "rr-blue-2");
        assert_eq!(named("a-namespace-with-a-long-name", 1), "rr-a-namespace-");
        assert_eq!(named("a-namespace-with-a-long-name", 99), "rr-a-namespa-99");
        assert_eq!(named("größe/x", 1), "rr-gr--e-x");
        assert_eq!(outer_name(&Namespace::OfProcess(4_194_304), 1), "rr-4194304");
        for name in ["blue", "a-namespace-with-a-long-name"] {
            assert!(format!("vale0:{}", named(name, 99)).parse::<ringroad::PortName>().is_ok(), "{name}");
        }
    }

    #[test]
    fn the_suggested_command_names_the_namespace_as_given() {
        assert_eq!(command_prefix(&Namespace::Named("blue".into())), "ip netns exec blue ");
        assert_eq!(command_prefix(&Namespace::OfProcess(7)), "nsenter --net=/proc/7/ns/net ");
    }
}
