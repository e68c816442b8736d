//! User-mode Linux as a guest: Linux as a program of this machine, whose cards are vhost-user ports without an emulated
//! processor between (Documentation/virt/uml/user_mode_linux_howto_v2.rst).
//!
//! Linux has its consoles at descriptors, and its sockets have no server. So a process of `ringroad`, the *keeper*, is
//! its parent: it joins the console and the channel for commands with the clients of their sockets, and ends all
//! processes of the guest.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::GuestError;
use crate::kernel::Kernel;
use crate::process::{ProcessIdentity, ends_within, in_own_session, signal_at_callers_end};
use crate::program::{self, output_of};
use crate::virtual_machine::{CONSOLE_LOG, CONSOLE_SOCKET, VmConfig, command_socket};

/// Verb of `ringroad` that runs a keeper: its arguments are the guest's folder and the command line of Linux.
pub const KEEPER_VERB: &str = "keep-uml";

/// Time limit for Linux to end on request.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// Time for which the guest waits for a client that does not read. The client loses output then.
const CLIENT_PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait between two checks of the stop flag.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Finds user-mode Linux and its modules: in the folder into which the package was unpacked, or on this machine.
///
/// # Errors
/// [`GuestError`]: it is not installed, or not in the folder.
pub fn find(folder: Option<&Path>) -> Result<Kernel, GuestError> {
    let image = match folder {
        Some(folder) => folder.join("usr/bin/linux.uml"),
        None => program::find("linux.uml", "user-mode-linux")?,
    };
    let missing = || GuestError::NoUserModeLinux(image.clone());
    if !image.is_file() {
        return Err(missing());
    }
    let told = output_of(Command::new(&image).arg("--version"))?;
    let version = String::from_utf8_lossy(&told).trim().to_owned();
    let modules = folder.unwrap_or(Path::new("/")).join("usr/lib/uml/modules").join(&version);
    if version.is_empty() || !modules.is_dir() {
        return Err(missing());
    }
    Ok(Kernel { version, image, modules })
}

/// Returns the command of the keeper of `plan`'s guest.
///
/// # Errors
/// [`GuestError::OddPath`]: Linux would read a path as several words.
pub(crate) fn keeper_command(
    plan: &VmConfig,
    kernel: &Kernel,
    initramfs: &Path,
) -> Result<Command, GuestError> {
    let mut command = Command::new("/proc/self/exe");
    command.arg(KEEPER_VERB).arg(&plan.folder).arg("--").arg(&kernel.image);
    command.args(arguments(plan, initramfs)?);
    // Linux makes the file of its memory here, and the switch maps only memory.
    command.env("TMPDIR", "/dev/shm");
    Ok(command)
}

/// Returns the arguments of Linux, but for its consoles.
fn arguments(plan: &VmConfig, initramfs: &Path) -> Result<Vec<OsString>, GuestError> {
    let mut arguments = vec![OsString::from(format!("mem={}M", plan.memory_mib))];
    let mut option = |name: &str, path: &Path, end: &str| {
        if path
            .as_os_str()
            .as_bytes()
            .iter()
            .any(|byte| byte.is_ascii_whitespace() || b":,\"'".contains(byte))
        {
            return Err(GuestError::OddPath(path.to_owned()));
        }
        let mut argument = OsString::from(name);
        argument.push(path);
        argument.push(end);
        arguments.push(argument);
        Ok(())
    };
    option("initrd=", initramfs, "")?;
    option("uml_dir=", &plan.folder, "/")?;
    for (number, device) in plan.devices.iter().enumerate() {
        // 1 is the number of network cards in the specification.
        option("virtio_uml.device=", &device.socket, &format!(":1:{number}"))?;
    }
    arguments.extend(["umid=uml", "con=null", "ssl=null", "quiet"].map(OsString::from));
    Ok(arguments)
}

/// Runs user-mode Linux for the guest in `folder` until it ends, or until `stop` is set. All of its processes have
/// ended then.
///
/// # Errors
/// [`GuestError`]: the sockets cannot be made, or Linux cannot be started.
pub fn keep(folder: &Path, linux: &[OsString], stop: &AtomicBool) -> Result<(), GuestError> {
    let log = folder.join(CONSOLE_LOG);
    let log = File::create(&log).map_err(GuestError::file("make", &log))?;
    let (console, console_end) = GuestLine::new(&folder.join(CONSOLE_SOCKET), Some(log))?;
    let (commands, commands_end) = GuestLine::new(&command_socket(folder), None)?;
    let (program, arguments) = linux.split_first().ok_or_else(|| GuestError::Start {
        program: "user-mode Linux".to_owned(),
        source: io::ErrorKind::InvalidInput.into(),
    })?;
    let start = |source| GuestError::Start { program: program.to_string_lossy().into_owned(), source };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(io::stderr());
    // The guest's scripts know the second serial port.
    for (line, end) in [("con0", &console_end), ("ssl1", &commands_end)] {
        fcntl_setfd(end, FdFlags::empty()).map_err(|errno| start(errno.into()))?;
        command.arg(format!("{line}=fd:{0},fd:{0}", end.as_raw_fd()));
    }
    // Its processes for programs of the guest are in its process group.
    in_own_session(&mut command);
    // Linux ends most of its processes when it is asked to end. A kill would leave them behind.
    signal_at_callers_end(&mut command, Signal::TERM);
    let mut process = command.spawn().map_err(start)?;
    drop((console_end, commands_end));
    let guard = Guard::start(process.id()).map_err(start)?;
    let output = [console.serve().map_err(start)?, commands.serve().map_err(start)?];
    if let Some(running) = ProcessIdentity::of(process.id()).and_then(ProcessIdentity::descriptor) {
        while !ends_within(&running, LONGEST_WAIT) {
            if stop.load(Ordering::Relaxed) {
                // Processes that do not end are killed below.
                let _ = process_group(&process).map(|group| kill_process_group(group, Signal::TERM));
                let _ = ends_within(&running, END_PATIENCE);
                break;
            }
        }
    }
    // A killed Linux leaves its processes behind. The group is Linux's as long as it is not waited for.
    let _ = process_group(&process).map(|group| kill_process_group(group, Signal::KILL));
    guard.end();
    let _ = process.wait();
    // Nobody has the guest's ends any more, so these threads end, after the last output.
    output.into_iter().for_each(|thread| drop(thread.join()));
    Ok(())
}

/// A process that kills a process group when the keeper has been killed: some processes of Linux would stay, and keep
/// the sockets of its cards open.
struct Guard {
    process: Child,
    keeper: Option<ChildStdin>,
}

impl Guard {
    /// Starts the guard of the process group `group`.
    fn start(group: u32) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        // The input ends with the keeper. A line from it means that the group has ended.
        command.args(["-c", "read -r ended || kill -s KILL -- \"-$0\"", &group.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        in_own_session(&mut command);
        let mut process = command.spawn()?;
        let keeper = process.stdin.take();
        Ok(Self { process, keeper })
    }

    /// Ends the guard, because the group has ended. Its number may be given to another group soon.
    fn end(mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            let _ = keeper.write_all(b"ended\n");
        }
        let _ = self.process.wait();
    }
}

fn process_group(process: &Child) -> Option<Pid> {
    Pid::from_raw(process.id().cast_signed())
}

/// A line between the guest and the client that is connected to a socket, one at a time.
struct GuestLine {
    listener: UnixListener,
    guest: UnixStream,
    log: Option<File>,
}

impl GuestLine {
    /// Makes the socket, and returns the guest's end of the line, too.
    fn new(path: &Path, log: Option<File>) -> Result<(Self, UnixStream), GuestError> {
        let made = UnixListener::bind(path).and_then(|listener| Ok((listener, UnixStream::pair()?)));
        let (listener, (guest, end)) = made.map_err(GuestError::file("make", path))?;
        Ok((Self { listener, guest, log }, end))
    }

    /// Starts the threads that pass on bytes. Returns that for the guest's output, which ends with the guest.
    fn serve(self) -> io::Result<JoinHandle<()>> {
        let Self { listener, mut guest, mut log } = self;
        let client: Arc<Mutex<Option<UnixStream>>> = Arc::default();
        let (mut to_guest, shown) = (guest.try_clone()?, Arc::clone(&client));
        let set = move |stream: Option<UnixStream>| {
            *client.lock().unwrap_or_else(PoisonError::into_inner) = stream;
        };
        let pass_input = move || {
            for stream in listener.incoming() {
                // A client that is gone meanwhile, or has no room in this process, is left out.
                let Ok(mut stream) = stream else { continue };
                let _ = stream.set_write_timeout(Some(CLIENT_PATIENCE));
                set(stream.try_clone().ok());
                let _ = io::copy(&mut stream, &mut to_guest);
                set(None);
            }
        };
        let pass_output = move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = guest.read(&mut bytes) {
                let said = bytes.get(..count).unwrap_or_default();
                if let Some(log) = &mut log {
                    // A full disk must not stop the guest.
                    let _ = log.write_all(said);
                }
                let shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
                let client = shown.as_ref().and_then(|client| client.try_clone().ok());
                drop(shown);
                if let Some(mut client) = client {
                    let _ = client.write_all(said);
                }
            }
        };
        std::thread::Builder::new().name("input".to_owned()).spawn(pass_input)?;
        std::thread::Builder::new().name("output".to_owned()).spawn(pass_output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtual_machine::{MachineKind, NetworkDevice};

    fn plan(folder: &str) -> VmConfig {
        let device = |number: u8| NetworkDevice {
            socket: format!("{folder}/port{number}.sock").into(),
            mac: [2, 0, 0, 0, 0, number],
            address: None,
        };
        VmConfig {
            name: "g".into(),
            kind: MachineKind::Uml,
            folder: folder.into(),
            devices: [0, 1].map(device).to_vec(),
            memory_mib: 256,
            cpus: 1,
            queues: 2,
            ..VmConfig::default()
        }
    }

    #[test]
    fn each_port_is_a_card_in_its_order() {
        let words = arguments(&plan("/run/g"), Path::new("/run/g/initramfs")).unwrap();
        let line = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        assert_eq!(
            line,
            "mem=256M initrd=/run/g/initramfs uml_dir=/run/g/ virtio_uml.device=/run/g/port0.sock:1:0 \
             virtio_uml.device=/run/g/port1.sock:1:1 umid=uml con=null ssl=null quiet"
        );
        let odd = arguments(&plan("/run/a:b"), Path::new("/run/a:b/initramfs")).unwrap_err();
        assert!(odd.to_string().contains("/run/a:b/initramfs"), "{odd}");
    }

    #[test]
    fn a_keeper_passes_bytes_on_and_ends_with_its_program() {
        let folder = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        // In place of Linux, a program that answers what it reads at the descriptors of its last two arguments.
        let script = "c=${1#*fd:}; c=${c%%,*}; m=${2#*fd:}; m=${m%%,*}; \
                      echo up >&$c; read -r line <&$m; echo \"got $line\" >&$m; read -r line <&$m; sleep 1000 &";
        let linux = ["bash", "-c", script, "linux"].map(OsString::from);
        std::thread::scope(|scope| {
            let kept = scope.spawn(|| keep(folder.path(), &linux, &stop));
            let mut client = loop {
                match UnixStream::connect(command_socket(folder.path())) {
                    Ok(client) => break client,
                    Err(_) => std::thread::yield_now(),
                }
            };
            client.write_all(b"one\n").unwrap();
            let mut answer = [0; 8];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"got one\n");
            assert!(!kept.is_finished());
            client.write_all(b"end\n").unwrap();
            kept.join().unwrap().unwrap();
        });
        assert_eq!(std::fs::read_to_string(folder.path().join(CONSOLE_LOG)).unwrap(), "up\n");
    }

    #[test]
    fn a_keeper_ends_its_program_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let linux = ["sh", "-c", "sleep 1000 & wait", "linux"].map(OsString::from);
        keep(folder.path(), &linux, &AtomicBool::new(true)).unwrap();
    }
}
