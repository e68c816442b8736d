//! A guest with the cards of a driver, in which rows of the matrix are judged.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ringroad_guest::command_channel::CommandChannel;
use ringroad_guest::program::find;
use ringroad_guest::{
    EmulatedCard, GuestContents, GuestError, Kernel, UnpackedQemu, VirtualMachine, VmConfig,
};
use ringroad_tests::daemon::binary;
use tempfile::TempDir;

use crate::bed::finish;
use crate::inside::MARK;
use crate::matrix::{CARDS, InterfaceSource, MatrixDriver, MatrixMechanism};
use crate::row::{MatrixRow, today};

/// Time limit for a guest to boot without KVM.
const BOOT: Duration = Duration::from_secs(300);
/// Time limit for the guest to begin with a command.
const BEGIN: Duration = Duration::from_secs(60);
/// Time limit of a row: a row that takes longer hangs.
const ROW: Duration = Duration::from_secs(900);
/// Memory of a guest, MiB.
const MEMORY_MIB: u32 = 1536;

/// A running guest.
pub(crate) struct CardGuest {
    vm: VirtualMachine,
    channel: CommandChannel,
    is_usable: bool,
    _folder: TempDir,
}

impl CardGuest {
    /// Boots a guest for a driver, with QEMU and kernel from the unpacked `packages`.
    pub(crate) fn start(driver: &'static MatrixDriver, packages: &Path) -> Result<Self, String> {
        let began = Instant::now();
        let text = |error: GuestError| error.to_string();
        let kernel = Kernel::find(Some(packages), |_| ()).map_err(text)?;
        let folder = tempfile::Builder::new().prefix("ringroad-cards-").tempdir().unwrap();
        let modules =
            driver.modules.iter().chain(&["af_packet"]).map(|module| (*module).to_owned()).collect();
        let cards = match driver.source {
            InterfaceSource::Cards { model, is_express } => {
                let card = |(number, (_, mac))| EmulatedCard {
                    model: model.to_owned(),
                    is_express,
                    mac,
                    hub: number / 2,
                };
                (0_u16..).zip(CARDS).map(card).collect()
            }
            _ => Vec::new(),
        };
        let share = packages.join("usr/share");
        let plan = VmConfig {
            name: "cards".to_owned(),
            folder: folder.path().to_owned(),
            memory_mib: MEMORY_MIB,
            cpus: 2,
            cards,
            contents: GuestContents { programs: programs(folder.path())?, modules },
            qemu: Some(UnpackedQemu {
                program: packages.join("usr/bin/qemu-system-x86_64"),
                data: ["qemu", "seabios"].map(|name| share.join(name)).to_vec(),
            }),
            ..VmConfig::default()
        };
        let mut vm = VirtualMachine::start(&plan, &kernel, false).map_err(text)?;
        let channel = vm.await_up(BOOT, &AtomicBool::new(false)).map_err(text)?;
        println!(
            "{}: a guest with Linux {} is up after {} s",
            driver.name,
            kernel.version,
            began.elapsed().as_secs()
        );
        Ok(Self { vm, channel, is_usable: true, _folder: folder })
    }

    /// Judges a row in the guest.
    pub(crate) fn row(
        &mut self,
        driver: &'static MatrixDriver,
        mechanism: &'static MatrixMechanism,
    ) -> MatrixRow {
        let script = format!(
            "export PATH=/opt:$PATH RINGROAD_BIN_DIR=/opt; cards --inside --driver {} --mechanism {}",
            driver.name, mechanism.name
        );
        let mut output = RowOutput { driver, mechanism, line: Vec::new(), row: None };
        let result = self.run(&script, &mut output);
        let row = output.row.filter(|_| matches!(result, Ok(0)));
        self.is_usable = row.is_some();
        row.unwrap_or_else(|| {
            let why = match result {
                Ok(status) => format!("the judging program ended with status {status}"),
                Err(GuestError::Interrupted) => format!("the row did not end within {} s", ROW.as_secs()),
                Err(error) => error.to_string(),
            };
            MatrixRow::wrong(driver, mechanism, format!("{why}; the console: {}", self.vm.last_words()))
        })
    }

    /// Whether the last row has left the guest usable.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_usable
    }

    /// Runs a script in the guest, which is ended at the time limit.
    fn run(&mut self, script: &str, output: &mut dyn Write) -> Result<u8, GuestError> {
        let stop = &AtomicBool::new(false);
        let (done, ended) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // The end of the script drops the sender.
                let is_late = ended.recv_timeout(ROW).is_err_and(|error| error == RecvTimeoutError::Timeout);
                stop.store(is_late, Ordering::Relaxed);
            });
            let result = self.channel.run(script, output, BEGIN, stop);
            drop(done);
            result
        })
    }
}

/// Programs for the guest: ours without symbols, in `folder`, and the machine's.
fn programs(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut programs = Vec::new();
    for name in ["ringroad", "ringroadd", "cards"] {
        let stripped = folder.join(name);
        let mut strip = Command::new("strip");
        strip.arg("-o").arg(&stripped).arg(binary(name));
        finish(strip)?;
        programs.push(stripped);
    }
    for (name, package) in [("ip", "iproute2"), ("ethtool", "ethtool")] {
        programs.push(find(name, package).map_err(|error| error.to_string())?);
    }
    Ok(programs)
}

/// Output of the judging program: lines that are shown, and the row.
struct RowOutput {
    driver: &'static MatrixDriver,
    mechanism: &'static MatrixMechanism,
    line: Vec<u8>,
    row: Option<MatrixRow>,
}

impl Write for RowOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.line.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            match line.strip_prefix(MARK).map(serde_json::from_str) {
                // The guest's clock can be wrong.
                Some(row) => self.row = row.ok().map(|row: MatrixRow| MatrixRow { date: today(), ..row }),
                None => println!("{} {}: {line}", self.driver.name, self.mechanism.name),
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}
