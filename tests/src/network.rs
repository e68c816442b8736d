//! Network namespaces for one test, and the programs in them. They end with the test, even if the test fails.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use ringroad_netdev::link::{link_by_name, links};
use ringroad_netdev::link_change::{VethEnd, add_address, create_veth, delete_link, set_mtu, set_up};
use ringroad_netdev::link_monitor::wait_running;
use ringroad_netdev::{LinkInfo, LinkMonitor, Namespace, in_namespace};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::command::{output, stderr};
use crate::daemon::PATIENCE;
use crate::ping::{assert_all_answered, ping_command};
use crate::service::Service;

pub use ringroad_test_needs::is_root;

/// A network namespace of `ip netns`, with its loopback up.
///
/// IPv6 addresses are usable at once, without duplicate address detection, so that no test has to wait.
#[derive(Debug)]
pub struct NetworkNamespace {
    name: String,
}

impl NetworkNamespace {
    /// Makes a namespace with an unused name.
    #[must_use]
    pub fn new() -> Self {
        let made = loop {
            let name = unused_name("rr");
            let added = output(Command::new("ip").args(["netns", "add", &name]));
            if added.status.success() {
                break Self { name };
            }
            // A killed test has left this namespace; the PID of that test's process was the same as ours.
            let why = stderr(&added);
            assert!(why.contains("File exists"), "{name}: {why}");
        };
        made.inside(|| set_up("lo", true).unwrap());
        made.set("net/ipv6/conf/default/accept_dad", "0");
        made
    }

    /// Wraps a namespace that the test has made under this name, so that it is removed at the end.
    #[must_use]
    pub fn adopt(name: String) -> Self {
        Self { name }
    }

    /// Name of the namespace, as `ip netns list` shows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `f` in the namespace.
    pub fn inside<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        in_namespace(&Namespace::Named(self.name.clone()), f).unwrap()
    }

    /// Sets a kernel setting (sysctl) of the namespace, such as `net/ipv6/conf/default/disable_ipv6`.
    pub fn set(&self, setting: &str, value: &str) {
        self.inside(|| std::fs::write(format!("/proc/sys/{setting}"), value).unwrap());
    }

    /// A command that runs in the namespace. It is killed at the tests' time limit.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let limit = patience_s();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, "timeout", &limit]).args(arguments);
        command
    }

    /// Runs a command in the namespace and returns its output.
    ///
    /// # Panics
    /// If the command fails or takes too long.
    pub fn run(&self, arguments: &[&str]) -> String {
        finished(&mut self.command(arguments))
    }

    /// Starts a command that keeps running in the namespace, and waits until it has written a line that contains
    /// `ready`.
    #[must_use]
    pub fn start(&self, arguments: &[&str], ready: &str) -> Service {
        let mut service = Service::start(self.command(arguments));
        service.await_line(ready);
        service
    }

    /// Sends three pings to `address`, all of which must be answered.
    pub fn ping(&self, address: &str) {
        self.ping_with(&[], address);
    }

    /// Sends three pings to `address` with further options of iputils' ping. All must be answered.
    pub fn ping_with(&self, options: &[&str], address: &str) {
        let command = ping_command(options, 3, "0.05", address);
        let command: Vec<_> = command.iter().map(String::as_str).collect();
        assert_all_answered(&self.run(&command), 3);
    }

    /// State of an interface of the namespace.
    #[must_use]
    pub fn link(&self, interface: &str) -> LinkInfo {
        self.inside(|| link_by_name(interface).unwrap())
    }

    /// Link-local IPv6 address of an interface, with the interface's name, in the form that ping takes.
    #[must_use]
    pub fn link_local(&self, interface: &str) -> String {
        let printed = self.run(&["ip", "-6", "-o", "addr", "show", "dev", interface, "scope", "link"]);
        let address = printed.split_whitespace().nth(3).and_then(|text| text.split('/').next());
        address.unwrap_or_else(|| panic!("{interface} has no link-local address: {printed}")).to_owned()
    }

    /// Waits until the links of the namespace meet the condition, which is checked at each change of a link.
    ///
    /// # Panics
    /// If the time limit passes first.
    pub fn await_links(&self, what: &str, requested: impl Fn(&[LinkInfo]) -> bool) {
        let mut monitor = self.inside(|| LinkMonitor::open().unwrap());
        let patience = Timespec::try_from(PATIENCE.unwrap()).unwrap();
        loop {
            let links = self.inside(|| links().unwrap());
            if requested(&links) {
                return;
            }
            let ready = poll(&mut [PollFd::new(&monitor, PollFlags::IN)], Some(&patience)).unwrap();
            assert!(ready > 0, "no {what}: {links:#?}");
            monitor.events(drop).unwrap();
        }
    }

    /// Makes an interface send complete frames: with checksums, cut to the MTU, with their VLAN tags.
    pub fn send_complete_frames(&self, interface: &str) {
        let off = ["tx", "tso", "txvlan", "tx-vlan-stag-hw-insert"].map(|offload| [offload, "off"]);
        self.run(&[&["ethtool", "-K", interface], off.as_flattened()].concat());
    }

    /// Adds `10.78.0.HOST/24` to an interface and waits until the interface carries frames.
    pub fn number(&self, interface: &str, host: u8) {
        self.inside(|| {
            set_up(interface, true).unwrap();
            add_address(interface, IpAddr::V4(address(host)), 24).unwrap();
            wait_running(interface, PATIENCE.unwrap()).unwrap();
        });
    }
}

impl Default for NetworkNamespace {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.name]).status();
    }
}

/// Starts a command, and kills it (SIGKILL) at the `number`-th change of a link in any of these namespaces. Returns
/// whether it was killed; `false` means that it ended before.
///
/// # Panics
/// If neither happens within the time limit.
#[must_use]
pub fn killed_at_link_change(command: &mut Command, namespaces: &[&NetworkNamespace], number: usize) -> bool {
    let monitor = |namespace: &&NetworkNamespace| namespace.inside(|| LinkMonitor::open().unwrap());
    let mut monitors: Vec<_> = namespaces.iter().map(monitor).collect();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
    let patience = Timespec::try_from(PATIENCE.unwrap()).unwrap();
    let mut changes = 0;
    let has_ended = loop {
        let mut watched = vec![PollFd::new(&process, PollFlags::IN)];
        watched.extend(monitors.iter().map(|monitor| PollFd::new(monitor, PollFlags::IN)));
        assert!(poll(&mut watched, Some(&patience)).unwrap() > 0, "{command:?}: {changes} changes of links");
        let has_ended = !watched[0].revents().is_empty();
        monitors.iter_mut().for_each(|monitor| monitor.events(|_| changes += 1).unwrap());
        if has_ended || changes >= number {
            break has_ended;
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    !has_ended
}

/// Address that [`NetworkNamespace::number`] gives to host number `host`.
#[must_use]
pub fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, host)
}

/// Joins two namespaces by a pair of interfaces. A switch is to take `outer`, which is up and sends nothing. Frames
/// leave `inner` complete: with checksums, cut to the MTU, with their VLAN tags.
///
/// Each end has `queues` queues and takes packets of up to `mtu` bytes.
pub fn cable(
    outside: &NetworkNamespace,
    outer: &str,
    inside: &NetworkNamespace,
    inner: &str,
    mtu: u32,
    queues: u32,
) {
    careless_cable(outside, outer, inside, inner, mtu, queues);
    inside.send_complete_frames(inner);
}

/// Joins two namespaces as the kernel makes a pair by default: `inner` leaves checksums, cutting and tags to its other
/// end. The arguments are those of [`cable`].
pub fn careless_cable(
    outside: &NetworkNamespace,
    outer: &str,
    inside: &NetworkNamespace,
    inner: &str,
    mtu: u32,
    queues: u32,
) {
    let target = Namespace::Named(inside.name.clone()).open().unwrap();
    outside.inside(|| {
        let [outer_end, inner_end] = [VethEnd::here(outer), VethEnd::within(inner, target.as_fd())];
        create_veth(outer_end.queues(queues), inner_end.queues(queues)).unwrap();
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{outer}/disable_ipv6"), "1").unwrap();
        set_mtu(outer, mtu).unwrap();
        set_up(outer, true).unwrap();
    });
    inside.inside(|| {
        set_mtu(inner, mtu).unwrap();
        set_up(inner, true).unwrap();
        wait_running(inner, PATIENCE.unwrap()).unwrap();
    });
    outside.inside(|| wait_running(outer, PATIENCE.unwrap()).unwrap());
}

/// Removes both interfaces of a [`cable`].
pub fn cut(outside: &NetworkNamespace, outer: &str) {
    outside.inside(|| delete_link(outer).unwrap());
}

/// A name that begins with `what` and that no other test on the machine uses.
#[must_use]
pub fn unused_name(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{what}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Time limit of the tests in whole seconds, as commands take it.
#[must_use]
pub fn patience_s() -> String {
    PATIENCE.unwrap().as_secs().to_string()
}

/// Runs a command to its end and returns its output.
///
/// # Panics
/// If the command fails or takes too long.
pub fn finished(command: &mut Command) -> String {
    let output = output(command);
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert!(output.status.success(), "{command:?}: {}: {text}", output.status);
    text
}
