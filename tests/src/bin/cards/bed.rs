//! Two interfaces joined by a cable in the guest, one of them a port of a daemon's switch, and what is judged there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use ringroad::control::report::PortReport;
use ringroad::{OpenOptions, Port};
use ringroad_netdev::link::{link_by_name, links};
use ringroad_tests::command;
use ringroad_tests::daemon::Daemon;
use ringroad_tests::network::NetworkNamespace;
use serde_json::Value;

use crate::frames::{PassageError, PassageFrames, SHORTEST};
use crate::matrix::{BEYOND, CARDS, FAR, InterfaceSource, MatrixDriver, MatrixMechanism, NEAR, SECOND};

/// Port of the switch that the near interface is.
const PORT: &str = "vale0:near";
/// Port of the switch that the second card is.
const SECOND_PORT: &str = "vale0:second";
/// Port of the program on the switch.
const OWN: &str = "vale0:own";
/// Time in which an event must have its effect: cards take seconds until their link is up, and the guest is slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two tries.
const INTERVAL: Duration = Duration::from_millis(100);
/// MTU before and after each row.
pub(crate) const USUAL_MTU: u32 = 1500;
/// Longest frame of that MTU, bytes without FCS.
pub(crate) const USUAL_LONGEST: usize = USUAL_MTU as usize + 14;

/// The interfaces with their daemon.
pub(crate) struct Bed {
    pub(crate) daemon: Daemon,
    /// Daemon of the program behind a TAP.
    tap: Option<Daemon>,
    driver: &'static MatrixDriver,
    mechanism: &'static MatrixMechanism,
    exchanges: u32,
}

/// Counters of the port beside those of the interface.
#[derive(Debug, Clone, Copy)]
struct PassageCounts {
    /// Frames that the port received and that it delivered.
    port: [u64; 2],
    /// Frames that the kernel counts as received and as sent.
    kernel: [u64; 2],
    /// Frames that the driver counts as received and as sent, if it does.
    driver: [Option<u64>; 2],
}

impl PassageCounts {
    /// Lists the counters of kernel and driver that differ from the frames that passed since `before`, as text.
    fn differences(&self, before: &Self, expected: [u64; 2]) -> Vec<String> {
        let mut differences = Vec::new();
        for (way, word) in [(0, "received"), (1, "sent")] {
            let driver =
                self.driver[way].zip(before.driver[way]).map(|(now, before)| now.wrapping_sub(before));
            let kernel = Some(self.kernel[way].wrapping_sub(before.kernel[way]));
            for (who, counted) in [("kernel", kernel), ("driver", driver)] {
                if let Some(counted) = counted.filter(|counted| *counted != expected[way]) {
                    differences
                        .push(format!("the {who} counts {counted} of {} frames as {word}", expected[way]));
                }
            }
        }
        differences
    }
}

impl Bed {
    /// Makes the interfaces, and a daemon.
    pub(crate) fn new(
        driver: &'static MatrixDriver,
        mechanism: &'static MatrixMechanism,
    ) -> Result<Self, String> {
        // The kernel's own frames would be frames that nobody sent.
        for setting in ["all", "default"] {
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{setting}/disable_ipv6"), "1");
        }
        let mut bed = Self { daemon: Daemon::start(), tap: None, driver, mechanism, exchanges: 0 };
        match driver.source {
            InterfaceSource::Cards { .. } => {
                CARDS.into_iter().try_for_each(|(name, _)| name_card(name))?;
            }
            InterfaceSource::Commands(commands) | InterfaceSource::Ending(commands) => {
                // An earlier row has left its interfaces.
                for name in [NEAR, FAR, "below", "under"] {
                    let _ = ip(&format!("link delete {name}"));
                }
                commands.iter().try_for_each(|command| ip(command))?;
            }
            InterfaceSource::Tap => {
                let tap = Daemon::start();
                finish(tap.ringroad(&["attach", "vale0:tap", "--driver", &format!("tap:{NEAR}")]))?;
                bed.tap = Some(tap);
            }
        }
        bed.set_mtu(USUAL_MTU)?;
        for name in bed.ends() {
            ip(&format!("link set {name} up"))?;
        }
        Ok(bed)
    }

    /// Whether frames end in the near interface.
    fn is_ending(&self) -> bool {
        matches!(self.driver.source, InterfaceSource::Ending(_))
    }

    /// Names of the interfaces at both ends of the cable, as far as they are interfaces.
    fn ends(&self) -> Vec<&'static str> {
        match self.driver.source {
            InterfaceSource::Tap | InterfaceSource::Ending(_) => vec![NEAR],
            InterfaceSource::Cards { .. } | InterfaceSource::Commands(_) => vec![NEAR, FAR],
        }
    }

    /// Sets the MTU of all interfaces, those below first.
    pub(crate) fn set_mtu(&self, mtu: u32) -> Result<(), String> {
        let exist = |name: &&str| link_by_name(name).is_ok();
        ["below", "under"]
            .into_iter()
            .filter(exist)
            .chain(self.ends())
            .try_for_each(|name| ip(&format!("link set {name} mtu {mtu}")))
    }

    /// Puts the near interface on the switch, with further options of the port. Returns the mode, or the reason of the
    /// refusal.
    pub(crate) fn attach(&self, options: &str) -> Result<String, String> {
        let driver = match self.mechanism.port.contains('@') || options.is_empty() {
            true => format!("{}{options}", self.mechanism.port),
            false => format!("{}@{}", self.mechanism.port, options.trim_start_matches(',')),
        };
        let attached =
            command::run(self.daemon.ringroad(&["--json", "attach", PORT, "--take", "--driver", &driver]));
        if !attached.status.success() {
            let printed = command::stderr(&attached);
            let failure: Option<Value> = printed.lines().find_map(|line| serde_json::from_str(line).ok());
            let reason = failure.and_then(|failure| failure["error"].as_str().map(str::to_owned));
            return Err(reason.unwrap_or(printed));
        }
        let ports: Value = serde_json::from_slice(&attached.stdout).map_err(|error| error.to_string())?;
        let mode = ports[0]["mode"].as_str().ok_or("the port has no mode")?;
        Ok(mode.to_owned())
    }

    /// Takes the near interface off the switch.
    pub(crate) fn detach(&self) -> Result<(), String> {
        finish(self.daemon.ringroad(&["detach", PORT])).map(drop)
    }

    /// Begins anew after an event went wrong.
    pub(crate) fn renew(&mut self) -> Result<(), String> {
        // The event may have ended the port.
        let _ = self.detach();
        if self.has_cards() {
            name_card(NEAR)?;
        }
        ip(&format!("link set {NEAR} down"))?;
        self.set_mtu(USUAL_MTU)?;
        ip(&format!("link set {NEAR} up"))?;
        self.attach("")?;
        self.await_passage(USUAL_LONGEST)
    }

    /// Returns the port's report of lost frames: a note, or a cause of drops.
    pub(crate) fn loss_notice(&self) -> Result<Option<String>, String> {
        let port = self.port()?;
        let note = port.notes.into_iter().find(|note| note.contains("are lost"));
        let mut drops = port.counters.drops.iter().filter(|(_, count)| **count > 0);
        let drop = drops.next().map(|(cause, count)| format!("{count} frames were dropped as {cause}"));
        Ok(note.or(drop))
    }

    /// Report of the near interface's port.
    pub(crate) fn port(&self) -> Result<PortReport, String> {
        self.daemon.port(PORT).ok_or_else(|| format!("the port {PORT} is gone"))
    }

    /// Carries `count` frames of these lengths in each direction. Where frames end in the interface, they only leave.
    fn exchange(&mut self, lengths: &[usize], count: usize) -> Result<(), PassageError> {
        self.exchanges += 1;
        let frames = PassageFrames { source: 1, exchange: self.exchanges, lengths, count };
        if self.is_ending() {
            let mut own = open(&self.daemon, OWN)?;
            let before = self.counts()?.kernel[1];
            frames.send(&mut own)?;
            eventually(|| match self.counts()?.kernel[1] - before {
                sent if sent == count as u64 => Ok(()),
                sent => Err(format!("the kernel sent {sent} of {count} frames")),
            })?;
            return Ok(());
        }
        let mut far = match &self.tap {
            Some(tap) => open(tap, "vale0:far")?,
            None => packet_port(&self.daemon, FAR)?,
        };
        let mut own = open(&self.daemon, OWN)?;
        frames.carry_both_ways(&mut own, &mut far)
    }

    /// Waits until the port tells no error, and frames up to this length pass whole in both directions.
    pub(crate) fn await_passage(&mut self, longest: usize) -> Result<(), String> {
        eventually(|| match self.port()?.error {
            Some(error) => Err(format!("the port tells \"{error}\"")),
            None => self.exchange(&[SHORTEST, 128, longest], 12).map_err(|error| error.to_string()),
        })
    }

    /// Waits until frames up to this length pass whole in both directions, or the port tells why they do not.
    pub(crate) fn await_passage_or_reason(&mut self, longest: usize) -> Result<Option<String>, String> {
        eventually(|| {
            let passed = self.exchange(&[SHORTEST, 128, longest], 12);
            match (passed, self.port()?.error) {
                (_, Some(reason)) => Ok(Some(reason)),
                (passed, None) => passed.map(|()| None).map_err(|error| error.to_string()),
            }
        })
    }

    /// Whether the driver has emulated cards.
    pub(crate) fn has_cards(&self) -> bool {
        matches!(self.driver.source, InterfaceSource::Cards { .. })
    }

    /// Puts a second card on the switch, in the region of the first, and carries frames between the far ends of both
    /// cables. The switch must not copy a byte of those whose destination it knows.
    pub(crate) fn forward_uncopied(&mut self) -> Result<(), String> {
        const COUNT: usize = 200;
        // The guest has memory for the regions of several ports if their rings are short.
        const SHORT_RINGS: &str = ",ring-size=256";
        self.detach()?;
        self.attach(SHORT_RINGS)?;
        self.await_passage(USUAL_LONGEST)?;
        let driver = format!("{}{SHORT_RINGS}@share={PORT}", self.mechanism.port.replace(NEAR, SECOND));
        finish(self.daemon.ringroad(&["attach", SECOND_PORT, "--take", "--driver", &driver]))?;
        let mut ends = [FAR, BEYOND].map(|name| packet_port(&self.daemon, name));
        let [Ok(far), Ok(beyond)] = &mut ends else {
            return Err(ends.into_iter().find_map(Result::err).unwrap_or_default());
        };
        // The switch knows where the stations are after the first round.
        for _ in 0..2 {
            self.exchanges += 1;
            let lengths = &[SHORTEST, 777, USUAL_LONGEST];
            let frames = PassageFrames { source: 1, exchange: self.exchanges, lengths, count: COUNT };
            let carried = frames.carry_both_ways(beyond, far);
            carried.map_err(|error| format!("between two cards: {error}"))?;
        }
        drop(ends);
        for name in [PORT, SECOND_PORT] {
            let counters = self.daemon.port(name).ok_or_else(|| format!("the port {name} is gone"))?.counters;
            let (delivered, uncopied) = (counters.delivered_frames, counters.uncopied_frames);
            // One frame of four is for a station that the switch knows. The others are flooded, which copies.
            if uncopied < COUNT as u64 / 4 {
                return Err(format!("of {delivered} frames delivered to {name} {uncopied} were not copied"));
            }
        }
        finish(self.daemon.ringroad(&["detach", SECOND_PORT]))?;
        self.detach()?;
        self.attach("")?;
        self.await_passage(USUAL_LONGEST)
    }

    /// Waits until the kernel passes packets between both cards without a port. Returns whether it does.
    pub(crate) fn passes_without_port(&self) -> Result<bool, String> {
        // Between two interfaces of one namespace the kernel takes a shortcut.
        let namespace = NetworkNamespace::new();
        ip(&format!("link set {FAR} netns {}", namespace.name()))?;
        for arguments in ["address add 192.0.2.2/24 dev", "link set up dev"] {
            ip(&format!("-n {} {arguments} {FAR}", namespace.name()))?;
        }
        ip(&format!("address add 192.0.2.1/24 dev {NEAR}"))?;
        let ping = || {
            let mut command = Command::new("ping");
            command.args(["-c", "1", "-W", "1", "192.0.2.2"]);
            finish(command)
        };
        let passes = eventually_within(Duration::from_secs(20), ping).is_ok();
        ip(&format!("address flush dev {NEAR}"))?;
        drop(namespace);
        // The kernel returns the card some time after the end of the namespace.
        eventually(|| name_card(FAR))?;
        Ok(passes)
    }

    /// Carries frames of these lengths without a loss, and compares the counters. Returns remarks.
    pub(crate) fn carry(&mut self, lengths: &[usize], count: usize) -> Result<Vec<String>, PassageError> {
        let before = self.counts()?;
        self.exchange(lengths, count)?;
        let expected = [if self.is_ending() { 0 } else { count as u64 }, count as u64];
        eventually(|| {
            let now = self.counts()?.port;
            let [received, delivered] = [0, 1].map(|way| now[way] - before.port[way]);
            if [received, delivered] == expected {
                return Ok(());
            }
            Err(format!(
                "the port counts {received} received and {delivered} delivered frames, not {} and {}",
                expected[0], expected[1]
            ))
        })?;
        // Some drivers update their counters every two seconds.
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let remarks = self.counts()?.differences(&before, expected);
            if remarks.is_empty() || Instant::now() >= end {
                return Ok(remarks);
            }
            std::thread::sleep(INTERVAL);
        }
    }

    fn counts(&self) -> Result<PassageCounts, String> {
        let counters = self.port()?.counters;
        let statistics = link_by_name(NEAR).map_err(|error| error.to_string())?.statistics;
        let driver = settings("-S").unwrap_or_default();
        Ok(PassageCounts {
            port: [counters.received_frames, counters.delivered_frames],
            kernel: [statistics.rx_packets, statistics.tx_packets],
            driver: ["rx_packets", "tx_packets"]
                .map(|name| driver.iter().find(|(own, _)| own == name).map(|(_, value)| *value)),
        })
    }

    /// Settings of the near interface that a port may not change for good: its offloads, whether it is promiscuous, and
    /// its XDP program.
    pub(crate) fn interface_settings(&self) -> Result<Vec<String>, String> {
        let link = link_by_name(NEAR).map_err(|error| error.to_string())?;
        let mut settings: Vec<String> =
            ethtool(&["-k", NEAR])?.lines().map(|line| line.trim().to_owned()).collect();
        settings.push(format!("promiscuous: {}", link.promiscuous));
        settings.push(format!("XDP program: {}", link.xdp.is_some()));
        Ok(settings)
    }
}

/// Opens a program's port with one queue.
fn open(daemon: &Daemon, name: &str) -> Result<Port, String> {
    let options = OpenOptions { queues: Some(1), ..daemon.options() };
    Port::open_with(name, &options).map_err(|error| format!("cannot open {name}: {error}"))
}

/// Opens the interface at the far end of a cable, beside the kernel's stack.
fn packet_port(daemon: &Daemon, name: &str) -> Result<Port, String> {
    open(daemon, &format!("packet:{name}@promisc=1,immediate=1"))
}

/// Tries until it succeeds, or returns the last failure once the time is over.
pub(crate) fn eventually<T>(f: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    eventually_within(PATIENCE, f)
}

/// Tries for `patience` as [`eventually`] does.
fn eventually_within<T>(patience: Duration, mut f: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let end = Instant::now() + patience;
    loop {
        match f() {
            Err(_) if Instant::now() < end => std::thread::sleep(INTERVAL),
            result => return result,
        }
    }
}

/// Gives a card its name, and sets it up.
pub(crate) fn name_card(name: &str) -> Result<(), String> {
    let address = CARDS.into_iter().find(|(own, _)| *own == name).map(|(_, address)| address);
    let links = links().map_err(|error| error.to_string())?;
    let card = links.into_iter().find(|link| link.mac == address && link.kind.is_none());
    let card = card.ok_or_else(|| format!("the guest has no card for {name}"))?;
    if card.name != name {
        ip(&format!("link set {} down", card.name))?;
        ip(&format!("link set {} name {name}", card.name))?;
    }
    ip(&format!("link set {name} up"))
}

/// Folder of the near interface's device; `None` for virtual interfaces.
pub(crate) fn device() -> Option<PathBuf> {
    std::fs::canonicalize(Path::new("/sys/class/net").join(NEAR).join("device")).ok()
}

/// Runs ip(8) with these arguments.
pub(crate) fn ip(arguments: &str) -> Result<(), String> {
    let mut command = Command::new("ip");
    command.args(arguments.split(' '));
    finish(command).map(drop)
}

/// Runs ethtool(8). Returns its output.
pub(crate) fn ethtool(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("ethtool");
    command.args(arguments);
    finish(command)
}

/// Numbers that ethtool(8) prints of the near interface, with their names.
pub(crate) fn settings(option: &str) -> Result<Vec<(String, u64)>, String> {
    let printed = ethtool(&[option, NEAR])?;
    let number = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_owned(), value.trim().parse().ok()?))
    };
    Ok(printed.lines().filter_map(number).collect())
}

/// Runs a command to its end. Returns its output, or what it printed about its failure.
pub(crate) fn finish(command: Command) -> Result<String, String> {
    let words = format!("{command:?}").replace('"', "");
    let output = command::run(command);
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{words}: {}", command::stderr(&output).trim()))
}
