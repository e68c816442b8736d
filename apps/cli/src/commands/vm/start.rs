//! `ringroad vm NAME`: start of a guest.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ringroad_guest::command_channel::CommandChannel;
use ringroad_guest::console::{self, ConsoleExit};
use ringroad_guest::{
    Accelerator, GuestKind, Kernel, MachineKind, NetworkDevice, VirtualMachine, VmConfig, uml,
};
use ringroad_wire::mac::Mac;
use serde::Serialize;

use crate::commands::guests::addresses::{InterfaceAddress, mac_of, station_address};
use crate::commands::guests::{Guest, guest_name};
use crate::commands::vm::exec::run_script;
use crate::failure::Failure;
use crate::number_parsers::seconds;
use crate::options::{Choice, Global, one_of, switch_port};
use crate::output::Output;
use crate::run::SignalFlag;
use crate::text_files::read_text;

/// Default limit of a guest's boot time, enough for emulation on a busy machine.
const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// Time between checks of a guest without a console user.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

const ACCELERATORS: [Choice<Accelerator>; 3] = [
    ("auto", "KVM if it can run a guest, else tcg", Accelerator::Auto),
    ("kvm", "KVM, on the machine's own processor", Accelerator::Kvm),
    ("tcg", "Emulation: works everywhere and is slow", Accelerator::Tcg),
];

const MACHINE_KINDS: [Choice<MachineKind>; 2] = [
    ("qemu", "QEMU: a machine with KVM, or emulated", MachineKind::Qemu),
    ("uml", "User-mode Linux: Linux as a program, with one processor", MachineKind::Uml),
];

#[derive(Debug, Args)]
pub(super) struct Start {
    /// Name of the guest
    #[arg(value_name = "NAME", value_parser = guest_name)]
    name: String,
    /// Program that is the machine
    #[arg(long, value_name = "PROGRAM", default_value = "qemu", value_parser = one_of(&MACHINE_KINDS))]
    kind: MachineKind,
    /// Port of a switch that becomes the guest's next interface; may be given several times
    #[arg(long = "port", value_name = "PORT", value_parser = switch_port)]
    ports: Vec<String>,
    /// Address of the next interface; may be given several times
    #[arg(long = "address", value_name = "ADDRESS/BITS")]
    addresses: Vec<InterfaceAddress>,
    /// Hardware address of the next interface; may be given several times [default: made from the port's name]
    #[arg(long = "mac", value_name = "MAC", value_parser = station_address)]
    macs: Vec<Mac>,
    /// Join the first two interfaces in a bridge: the guest forwards between two ports
    #[arg(long)]
    bridge: bool,
    /// Memory of the guest, MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(128..=1 << 20))]
    memory: u32,
    /// Number of processors of the guest
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=255))]
    cpus: u16,
    /// Queue pairs of each interface; the guest uses as many as it has processors, until ethtool -L in it sets others
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    queues: u16,
    /// Use virtio's packed rings
    #[arg(long)]
    packed: bool,
    /// Folder into which a linux-image package was unpacked [default: see ringroad vm kernel --help]; with --kind uml
    /// the package user-mode-linux [default: this machine's]
    #[arg(long, value_name = "DIR")]
    kernel: Option<PathBuf>,
    /// Accelerator of the guest's processors
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = one_of(&ACCELERATORS))]
    accel: Accelerator,
    /// Shell script to run in the guest once it is up, instead of the console; the guest ends after the last script.
    /// May be given several times
    #[arg(long = "run", value_name = "SCRIPT")]
    scripts: Vec<PathBuf>,
    /// Leave the guest running in the background once it is up
    #[arg(long)]
    detach: bool,
    /// Give up if the guest has not booted after this number of seconds [default: 60]
    #[arg(long, value_name = "S", value_parser = seconds)]
    boot_timeout: Option<Duration>,
}

/// Report of a guest that is up.
#[derive(Debug, Serialize)]
struct StartedGuest {
    ready: bool,
    name: String,
    pid: u32,
    kind: MachineKind,
    /// Accelerator of the processors; absent if the guest is a program.
    accelerator: Option<Accelerator>,
    kernel: String,
    console: PathBuf,
    interfaces: Vec<StartedInterface>,
}

#[derive(Debug, Serialize)]
struct StartedInterface {
    name: String,
    port: String,
    mac: String,
    address: Option<String>,
}

impl Start {
    pub(super) fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        self.check()?;
        let scripts: Vec<String> =
            self.scripts.iter().map(|path| read_text(path)).collect::<Result<_, _>>()?;
        let stop = SignalFlag::on_signals()?;
        let kernel = match self.kind {
            MachineKind::Qemu => Kernel::find(self.kernel.as_deref(), |line| output.note(line))?,
            MachineKind::Uml => uml::find(self.kernel.as_deref())?,
        };
        let mut guest = Guest::claim(global, output, &self.name, GuestKind::Vm)?;
        let devices = self.attach(&mut guest)?;
        let plan = VmConfig {
            name: self.name.clone(),
            kind: self.kind,
            folder: guest.folder().to_owned(),
            devices,
            bridge: self.bridge,
            memory_mib: self.memory,
            cpus: self.cpus,
            queues: self.queues,
            packed: self.packed,
            accelerator: self.accel,
            ..VmConfig::default()
        };
        let mut machine = VirtualMachine::start(&plan, &kernel, self.detach)?;
        guest.note(|record| record.process = machine.process)?;
        let mut channel = machine.await_up(self.boot_timeout.unwrap_or(BOOT_LIMIT), &stop.shared())?;
        let started = self.started(&plan, &machine, &kernel);
        output.announce(&started, text)?;
        let status = run_scripts(&mut channel, &scripts, output, &stop)?;
        drop(channel);
        if self.detach {
            guest.hand_over()?;
            machine.let_go();
            let (console, stop) =
                (format!("ringroad vm console {0}", self.name), format!("ringroad vm stop {0}", self.name));
            output.note(&format!("the guest keeps running in the background: {console}, {stop}"));
        } else {
            if scripts.is_empty() {
                self.attend(&mut machine, &plan, output, &stop)?;
            }
            // The guest ends first: a port removed before its guest would cause an error in the guest's log.
            let ended = machine.end();
            guest.end()?;
            ended?;
        }
        if status == 0 { Ok(()) } else { Err(Failure::status(status)) }
    }

    fn check(&self) -> Result<(), Failure> {
        let interfaces = self.ports.len();
        for (count, what) in [(self.addresses.len(), "addresses"), (self.macs.len(), "hardware addresses")] {
            if count > interfaces {
                let problem = format!("{count} {what} for {interfaces} interfaces");
                return Err(Failure::usage(problem, "each --port makes one interface"));
            }
        }
        if self.bridge && interfaces < 2 {
            return Err(Failure::usage("a bridge needs two interfaces", "give two ports with --port"));
        }
        if self.kind == MachineKind::Uml {
            let emulated = self.accel != Accelerator::Auto;
            for (given, option) in
                [(self.cpus > 1, "--cpus"), (self.packed, "--packed"), (emulated, "--accel")]
            {
                if given {
                    let problem = format!("user-mode Linux does not have what {option} sets");
                    return Err(Failure::usage(problem, "leave it out, or take --kind qemu"));
                }
            }
        }
        Ok(())
    }

    /// Attaches the ports. The daemon listens on a socket for each.
    fn attach(&self, guest: &mut Guest) -> Result<Vec<NetworkDevice>, Failure> {
        let mut devices = Vec::new();
        for (number, port) in self.ports.iter().enumerate() {
            let mac = self.macs.get(number).map_or_else(|| mac_of(port), |mac| mac.octets());
            let address = Mac::from(mac).to_string();
            let options: &[(&str, &str)] = match self.kind {
                MachineKind::Qemu => &[],
                // Linux has its address from the port. Its driver begins packed rings with the wrong lap.
                MachineKind::Uml => &[("mac", address.as_str()), ("packed", "0")],
            };
            let socket = guest.attach_socket(port, "vhost-user", self.queues, options)?;
            let address = self.addresses.get(number).map(|address| address.0);
            devices.push(NetworkDevice { socket, mac, address });
        }
        let addresses: Vec<_> = self.addresses.iter().map(InterfaceAddress::to_string).collect();
        guest.note(|record| record.addresses = addresses)?;
        Ok(devices)
    }

    fn started(&self, plan: &VmConfig, machine: &VirtualMachine, kernel: &Kernel) -> StartedGuest {
        let interfaces = plan.devices.iter().zip(&self.ports).enumerate().map(|(number, (device, port))| {
            StartedInterface {
                name: format!("eth{number}"),
                port: port.clone(),
                mac: Mac::from(device.mac).to_string(),
                address: device.address.map(|(address, bits)| format!("{address}/{bits}")),
            }
        });
        StartedGuest {
            ready: true,
            name: self.name.clone(),
            pid: machine.process.pid,
            kind: plan.kind,
            accelerator: machine.accelerator,
            kernel: kernel.version.clone(),
            console: console::socket(&plan.folder),
            interfaces: interfaces.collect(),
        }
    }

    /// Stays with a guest until the guest or its user ends it.
    fn attend(
        &self,
        machine: &mut VirtualMachine,
        plan: &VmConfig,
        output: &Output,
        stop: &SignalFlag,
    ) -> Result<(), Failure> {
        if !output.is_json() {
            output.note("the console, by enter; Ctrl-] ends the guest");
            if console::attach(&plan.folder, &stop.shared())? == ConsoleExit::Ended {
                output.note(&format!("\n{} has ended", self.name));
            }
            return Ok(());
        }
        // Standard output is for JSON, so the console stays on its socket.
        while !stop.is_set() && !machine.has_ended() {
            std::thread::sleep(CHECK_INTERVAL);
        }
        Ok(())
    }
}

/// Runs the scripts until one fails. Returns the exit status of the failed script, or 0.
fn run_scripts(
    channel: &mut CommandChannel,
    scripts: &[String],
    output: &Output,
    stop: &SignalFlag,
) -> Result<u8, Failure> {
    for script in scripts {
        let status = run_script(channel, script, output, stop)?;
        if status != 0 {
            return Ok(status);
        }
    }
    Ok(0)
}

fn text(guest: &StartedGuest) -> String {
    let how = match guest.accelerator {
        Some(Accelerator::Kvm) => "with KVM",
        Some(_) => "emulated (TCG)",
        None => "as a program of this machine",
    };
    let mut text = format!("{}: up, {how}, Linux {}", guest.name, guest.kernel);
    for interface in &guest.interfaces {
        let address = interface.address.as_deref().unwrap_or("no address");
        text += &format!("\n  {}: {}, {}, {address}", interface.name, interface.port, interface.mac);
    }
    text
}
