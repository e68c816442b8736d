//! Options that several commands share.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ringroad::catalogue::{DeviceName, OpenedBy, Spelling};
use ringroad::{OpenOptions, Port, PortBase, PortName, PortNameError};
use ringroad_attachment::device_text::{DeviceTextError, check_part};
use ringroad_control::message::PortProperties;

use crate::failure::Failure;
use crate::number_parsers::seconds;

/// Options of every command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// Socket of the daemon [default: $RINGROAD_SOCKET, or the usual path]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print results as JSON, one value per line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print results and failures only: no progress, no notes
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

impl Global {
    /// Path of the daemon's socket.
    pub(crate) fn socket_path(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(ringroad_control::socket_path::default_socket_path)
    }

    /// Connects to the daemon, which must be running, and sends the greeting.
    pub(crate) fn connect(&self) -> Result<ringroad_control::Connection, Failure> {
        let mut connection = ringroad_control::Connection::connect(self.socket_path())?;
        connection.hello("ringroad")?;
        if !self.quiet && !self.json {
            connection.report_waits(|waited| {
                // A failure to write the note is ignored.
                let _ = writeln!(
                    std::io::stderr(),
                    "the daemon is still at it after {} s: an interface's driver can take long",
                    waited.as_secs()
                );
            });
        }
        Ok(connection)
    }
}

/// A choice of an option: its name on the command line, its help if it needs one, and its value.
pub(crate) type Choice<T> = (&'static str, &'static str, T);

/// Makes the parser of an option with these choices.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let names = choices.iter().map(|(name, help, _)| match *help {
        "" => PossibleValue::new(*name),
        help => PossibleValue::new(*name).help(help),
    });
    PossibleValuesParser::new(names).try_map(move |given| {
        let chosen = choices.iter().find(|(name, ..)| *name == given);
        chosen.map(|(.., value)| *value).ok_or("no such choice")
    })
}

/// Parses the name of a switch.
pub(crate) fn switch_name(text: &str) -> Result<String, String> {
    // In the grammar of names a switch has no name of its own, only its ports have.
    match format!("{text}:p").parse::<PortName>().map(|name| name.base) {
        Ok(PortBase::Switch { switch, .. }) if switch == text => Ok(switch),
        _ => Err("this is not a name of a switch, such as vale0".to_owned()),
    }
}

/// Parses the name of a port of a switch.
pub(crate) fn switch_port(text: &str) -> Result<String, String> {
    let name: PortName = text.parse().map_err(|error: PortNameError| error.problem)?;
    let advice = match &name.base {
        PortBase::Switch { .. } => return Ok(text.to_owned()),
        PortBase::Pipe { .. } => "the two programs of a pipe open it, and no switch has it".to_owned(),
        PortBase::Device(device) if device.kind.spelling != Spelling::Bare => {
            format!("a port gets this driver by --driver, as in vale0:a --driver {text}")
        }
        PortBase::Device(device) if switch_name(&device.target).is_ok() => {
            format!("this is a switch; its ports have names such as {text}:a")
        }
        PortBase::Device(_) => format!("write the switch in front: vale0:{text}"),
    };
    Err(format!("this is not a port of a switch; {advice}"))
}

/// Slots of a deep ring: it holds 4 ms of frames at 1 Mpps, the time that a thread may wait for a shared core.
pub(crate) const DEEP_SLOTS: u32 = 4096;

/// Checks that no name of `ports` means the same port as an earlier one: a port can be open only once. The error has
/// `advice`, which names the ports that the command needs.
pub(crate) fn refuse_one_port_twice<'a>(
    ports: impl IntoIterator<Item = &'a str>,
    advice: &str,
) -> Result<(), Failure> {
    let mut known = Vec::new();
    for text in ports {
        let Ok(PortName { base, options }) = text.parse() else { continue };
        // Each opening of such a name makes another device.
        let is_new =
            |device: &DeviceName| device.kind.access == OpenedBy::Program || device.target.is_empty();
        let port = (base, options.device);
        if known.contains(&port) && !port.0.device().is_some_and(is_new) {
            return Err(Failure::usage(format!("port {text} is given twice"), advice));
        }
        known.push(port);
    }
    Ok(())
}

/// Sizes of the ports that a command opens. Options in a port's name (`vale0:a@slots=256`) have precedence.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Port")]
pub(crate) struct PortSizeArgs {
    /// Queues, each a transmit and a receive ring [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) queues: Option<u16>,
    /// Slots per ring [default: 1024; 4096 for commands that only receive, or send at a given rate]
    #[arg(long, value_name = "N")]
    pub(crate) slots: Option<u32>,
    /// Size of a buffer, bytes [default: 2112; over AF_XDP 2048]
    #[arg(long, value_name = "BYTES")]
    pub(crate) buf_size: Option<u32>,
    /// Network namespace of the interface: a name, or a process in it [default: the command's own]
    #[arg(long, value_name = "NAME|PID", value_parser = option_value)]
    pub(crate) netns: Option<String>,
    /// Replace another program's XDP program on the interface
    #[arg(long)]
    pub(crate) force: bool,
}

/// Parses a value that becomes an option of a port's name.
fn option_value(text: &str) -> Result<String, DeviceTextError> {
    check_part("the value", text).map(|()| text.to_owned())
}

impl PortSizeArgs {
    /// Returns the sizes with deep rings, unless the user sets another number of slots.
    pub(crate) fn deep(&self) -> Self {
        Self { slots: self.slots.or(Some(DEEP_SLOTS)), ..self.clone() }
    }

    /// Opens port `name` with these sizes. `limits` tells whether to reconnect.
    pub(crate) fn open(&self, name: &str, global: &Global, limits: &RunLimits) -> Result<Port, Failure> {
        let options = OpenOptions { reconnect: limits.reconnect, ..self.open_options(global) };
        Ok(Port::open_with(&self.device(name), &options)?)
    }

    /// Converts the sizes to options of the library, for names that [`Self::device`] made.
    pub(crate) fn open_options(&self, global: &Global) -> OpenOptions {
        OpenOptions {
            queues: self.queues,
            slots: self.slots,
            buffer_bytes: self.buf_size,
            socket: global.socket.clone(),
            ..OpenOptions::default()
        }
    }

    /// Returns the name of `device` with the options for devices.
    pub(crate) fn device(&self, device: &str) -> String {
        // Absolute paths, since the daemon runs in another folder.
        let device = match std::env::current_dir() {
            Ok(folder) => PortName::text_with_absolute_paths(device, &folder),
            Err(_) => device.to_owned(),
        };
        let netns = self.netns.as_ref().map(|netns| format!("netns={netns}"));
        let options: Vec<_> = netns.into_iter().chain(self.force.then(|| "force".to_owned())).collect();
        if options.is_empty() {
            return device;
        }
        let separator = if device.contains('@') { ',' } else { '@' };
        format!("{device}{separator}{}", options.join(","))
    }

    /// Whether an option is set that only applies to devices.
    pub(crate) fn names_a_device(&self) -> bool {
        self.netns.is_some() || self.force
    }

    /// Converts the sizes to properties that the daemon is requested to give the port.
    pub(crate) fn properties(&self) -> PortProperties {
        PortProperties {
            queues: self.queues,
            slots: self.slots,
            buffer_bytes: self.buf_size,
            ..PortProperties::default()
        }
    }
}

/// Duration of a traffic command, its progress reports, and its processors.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Run")]
pub(crate) struct RunLimits {
    /// End after this many seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,
    /// Print rates every S seconds, also if standard error is not a terminal; with --json as objects {"interval": ...}
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(crate) interval: Option<Duration>,
    /// CPU to run on; two for two threads, such as 0,1
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub(crate) cpu: Vec<usize>,
    /// If the daemon ends, wait for its restart and open the ports again; frames in the rings are lost
    #[arg(long)]
    pub(crate) reconnect: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_recognised_by_each_of_its_names() {
        for (ports, are_two) in [
            (["vale0:a", "vale0:b"], true),
            (["vale0:a", "vale0:a@slots=512"], false),
            (["x{1", "x}1"], true),
            (["x{1", "x{1"], false),
            (["eth0", "eth0@netns=blue"], true),
            (["eth0@netns=blue", "eth0@netns=blue,queues=2"], false),
            // Each opening makes another device.
            (["null:", "null:"], true),
            (["tap:", "tap:"], true),
        ] {
            let refused = refuse_one_port_twice(ports, "give two").err();
            let expected = Failure::usage(format!("port {} is given twice", ports[1]), "give two");
            assert_eq!(refused, (!are_two).then_some(expected), "{ports:?}");
        }
    }

    #[test]
    fn names_of_switches_are_told_from_all_others() {
        for name in ["vale0", "vale", "vale_x1"] {
            assert_eq!(switch_name(name).as_deref(), Ok(name));
        }
        for name in
            ["", "eth0", "br0", "vale0:a", "vale0@vlan=1", "netmap:vale0", "vale-0", "vale012345678901"]
        {
            assert!(switch_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn what_is_no_port_of_a_switch_is_answered_with_what_is() {
        for name in ["vale0:a", "vale0:eth0^", "vale:1@vlan=10,isolated", "netmap:vale0:a"] {
            assert_eq!(switch_port(name).as_deref(), Ok(name));
        }
        for (name, advice) in [
            ("eth0", "vale0:eth0"),
            ("vale0", "vale0:a"),
            ("memif:/m.sock", "vale0:a --driver memif:/m.sock"),
            ("x{1", "pipe"),
            ("br0:eth0", "a switch's name begins with vale"),
            ("vale0:a@colour=red", "no option colour"),
        ] {
            let refusal = switch_port(name).unwrap_err();
            assert!(refusal.contains(advice), "{name}: {refusal}");
        }
    }
}
