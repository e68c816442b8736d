//! Network namespaces as users name them, and names of objects made from their names.

use std::ffi::OsString;
use std::net::IpAddr;
use std::time::Duration;

use ringroad_attachment::address_use::find_use;
use ringroad_attachment::container_name::namespace_of;
use ringroad_control::Connection;
use ringroad_netdev::link::link_by_name;
use ringroad_netdev::link_change::{add_address, set_up};
use ringroad_netdev::link_monitor::wait_running;
use ringroad_netdev::{Namespace, NamespaceId, in_namespace};

use crate::failure::Failure;

/// Start of the names made from a namespace's name.
const PREFIX: &str = "rr-";
/// Longest name of an interface, and so of its port, bytes.
const NAME_BYTES_MAX: usize = 15;

/// Maximum number of namespaces whose names have the same beginning.
pub(super) const NAMESAKES_MAX: u32 = 99;

/// Time limit until an interface has carrier.
pub(super) const CARRIER_PATIENCE: Duration = Duration::from_secs(5);

/// Parses a namespace as users write it.
pub(super) fn parse(text: &str) -> Result<Namespace, Failure> {
    match namespace_of(text)? {
        Namespace::Current => Err(Failure::usage(
            "a namespace without a name",
            "give a name from ip netns list, the number of a process in it, or a container as podman:NAME",
        )),
        namespace => Ok(namespace),
    }
}

/// Returns the namespace in the form of a port name's option.
pub(super) fn as_text(namespace: &Namespace) -> String {
    match namespace {
        Namespace::Current => String::new(),
        Namespace::Named(name) => name.clone(),
        Namespace::OfProcess(process) => process.to_string(),
        Namespace::File(path) => path.display().to_string(),
    }
}

/// Returns the words before a command that make the command run in `namespace`.
pub(super) fn launcher(namespace: &Namespace) -> Vec<OsString> {
    match namespace {
        Namespace::Named(name) => ["ip", "netns", "exec", name].map(OsString::from).into(),
        other => {
            let mut file = OsString::from("--net=");
            file.push(other.path());
            vec!["nsenter".into(), file]
        }
    }
}

/// Returns the words of [`launcher`] as text for users.
pub(super) fn command_prefix(namespace: &Namespace) -> String {
    launcher(namespace).iter().map(|word| format!("{} ", word.to_string_lossy())).collect()
}

/// Checks that `namespace` can be entered and has no interface `inner`. Returns the identity of the namespace.
pub(super) fn check(namespace: &Namespace, inner: &str) -> Result<NamespaceId, Failure> {
    let held = namespace.hold()?;
    match held.run(|| link_by_name(inner))? {
        Ok(_) => Err(Failure::new(
            format!("{namespace} has an interface {inner} already"),
            "remove it with ringroad unlink, or choose another name with --name",
        )),
        Err(error) if error.is_no_interface() => Ok(held.id()),
        Err(error) => Err(error.into()),
    }
}

/// Checks that none of `addresses`, which interfaces in `namespaces` are to get on `switch`, is in use there.
pub(super) fn check_addresses(
    daemon: &mut Connection,
    switch: &str,
    namespaces: &[Namespace],
    addresses: &[IpAddr],
) -> Result<(), Failure> {
    match find_use(daemon, switch, namespaces, addresses)? {
        Some(used) => Err(Failure::new(
            used.to_string(),
            "choose another with --address; ringroad link counts up from the one that is given",
        )),
        None => Ok(()),
    }
}

/// Sets an interface of `namespace` up, with an address if one is given, and waits until it carries frames.
pub(super) fn bring_up(
    namespace: &Namespace,
    interface: &str,
    address: Option<(IpAddr, u8)>,
) -> Result<(), Failure> {
    in_namespace(namespace, || -> Result<(), Failure> {
        if let Some((address, bits)) = address {
            add_address(interface, address, bits)?;
        }
        set_up(interface, true)?;
        wait_running(interface, CARRIER_PATIENCE)?;
        Ok(())
    })?
}

/// Returns a name for objects of a namespace, valid for an interface and a port: `rr-blue`, and for further namespaces
/// with the same beginning `rr-blue-2` and so on.
pub(super) fn name_after(namespace: &Namespace, number: u32) -> String {
    let of = match namespace {
        Namespace::Named(name) => name.clone(),
        Namespace::OfProcess(process) => process.to_string(),
        other => other.path().file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '-' };
    let suffix = if number > 1 { format!("-{number}") } else { String::new() };
    let room = NAME_BYTES_MAX - PREFIX.len() - suffix.len();
    let short: String = of.chars().map(plain).take(room).collect();
    format!("{PREFIX}{short}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_interfaces_are_named_after_their_namespace() {
        let named = |name: &str, number| name_after(&Namespace::Named(name.into()), number);
        assert_eq!(named("blue", 1), "rr-blue");
        assert_eq!(named("blue", 2), "rr-blue-2");
        assert_eq!(named("a-namespace-with-a-long-name", 1), "rr-a-namespace-");
        assert_eq!(named("a-namespace-with-a-long-name", 99), "rr-a-namespa-99");
        assert_eq!(named("größe/x", 1), "rr-gr--e-x");
        assert_eq!(name_after(&Namespace::OfProcess(4_194_304), 1), "rr-4194304");
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
