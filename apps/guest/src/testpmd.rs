//! The command line of DPDK's testpmd, as a guest and otherwise (testpmd's user guide, DPDK 22.11).

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::GuestError;
use crate::program;

/// Memory of a guest, MiB: its packet buffers and rings.
pub const MEBIBYTES: u64 = 256;
/// Number of packet buffers: several times the size of all rings.
const BUFFERS: u32 = 16_384;
/// Number of descriptors in a ring.
const DESCRIPTORS: u32 = 1024;
/// File in which the kernel reports its free 2 MiB pages (Documentation/admin-guide/mm/hugetlbpage.rst).
const FREE_HUGEPAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// Arguments of every testpmd, independent of its ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    /// Processors: the first for the main thread, the others for forwarding. A single processor does both.
    pub cores: Vec<usize>,
    /// Memory of the process, MiB.
    pub mebibytes: u64,
    /// Whether the memory consists of 2 MiB pages.
    pub huge_pages: bool,
    /// Prefix that distinguishes testpmd's files from those of other DPDK programs.
    pub prefix: String,
    /// Paths of drivers that are not part of the installed DPDK.
    pub plugins: Vec<PathBuf>,
    /// Devices, as arguments of `--vdev`.
    pub devices: Vec<OsString>,
    /// Further arguments for testpmd itself.
    pub options: Vec<OsString>,
}

impl CommandLine {
    #[must_use]
    pub fn arguments(&self) -> Vec<OsString> {
        let (main, forwarding) = match self.cores.as_slice() {
            [] => (0, vec![0]),
            [only] => (*only, vec![*only]),
            [main, others @ ..] => (*main, others.to_vec()),
        };
        let lcores = std::iter::once(main).chain(forwarding.iter().copied()).enumerate();
        let lcores: Vec<_> = lcores.map(|(lcore, cpu)| format!("{lcore}@{cpu}")).collect();
        let mut arguments: Vec<OsString> = vec![
            "--lcores".into(),
            lcores.join(",").into(),
            "--no-pci".into(),
            "-m".into(),
            self.mebibytes.to_string().into(),
            format!("--file-prefix={}", self.prefix).into(),
        ];
        // `--no-huge` excludes the options for 2 MiB pages.
        let memory: &[&str] =
            if self.huge_pages { &["--in-memory", "--single-file-segments"] } else { &["--no-huge"] };
        arguments.extend(memory.iter().map(OsString::from));
        arguments.extend(self.plugins.iter().flat_map(|plugin| ["-d".into(), plugin.clone().into()]));
        arguments.extend(self.devices.iter().map(|device| {
            let mut argument = OsString::from("--vdev=");
            argument.push(device);
            argument
        }));
        let own = [
            "--".to_owned(),
            format!("--nb-cores={}", forwarding.len()),
            format!("--total-num-mbufs={BUFFERS}"),
            "--no-mlockall".to_owned(),
        ];
        arguments.extend(own.map(OsString::from));
        arguments.extend(self.options.iter().cloned());
        arguments
    }
}

/// Returns a virtio device, connected to the vhost-user port at `socket`, as an argument of `--vdev`. Its rings have
/// 1024 descriptors.
#[must_use]
pub fn virtio_user(number: usize, socket: &Path, queues: u16) -> OsString {
    let mut device = OsString::from(format!("net_virtio_user{number},path="));
    device.push(socket);
    device.push(format!(",queues={queues},queue_size={DESCRIPTORS}"));
    device
}

/// Protocol between testpmd's ports and the switch's ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestpmdTransport {
    /// virtio-user in testpmd, vhost-user in the switch.
    VhostUser,
    /// memif at both ends.
    Memif,
}

/// Finds the program testpmd.
///
/// # Errors
/// [`GuestError::ProgramMissing`]: testpmd is not installed.
pub fn find() -> Result<PathBuf, GuestError> {
    program::find("dpdk-testpmd", "dpdk-dev")
}

/// Whether enough 2 MiB pages are free.
#[must_use]
pub fn has_huge_pages() -> bool {
    let free = fs::read_to_string(FREE_HUGEPAGES).ok().and_then(|text| text.trim().parse::<u64>().ok());
    free.is_some_and(|pages| pages * 2 >= MEBIBYTES)
}

/// Returns the device of a guest for the port at `socket`, which must have a listener. Packed rings are those of virtio
/// 1.1.
#[must_use]
pub fn device(
    transport: TestpmdTransport,
    number: usize,
    socket: &Path,
    queues: u16,
    packed: bool,
) -> OsString {
    match transport {
        TestpmdTransport::VhostUser => {
            let mut device = virtio_user(number, socket, queues);
            if packed {
                device.push(",packed_vq=1");
            }
            device
        }
        TestpmdTransport::Memif => {
            let mut device =
                OsString::from(format!("net_memif{number},role=client,id=0,socket-abstract=no,socket="));
            device.push(socket);
            device
        }
    }
}

/// Returns the options of a guest: the value of `--forward-mode`, and the queue pairs of each port.
#[must_use]
pub fn options(forward: &str, queues: u16) -> Vec<OsString> {
    let options = [
        format!("--forward-mode={forward}"),
        format!("--rxq={queues}"),
        format!("--txq={queues}"),
        format!("--rxd={DESCRIPTORS}"),
        format!("--txd={DESCRIPTORS}"),
    ];
    options.map(OsString::from).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &CommandLine) -> String {
        let words = line.arguments();
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    fn line(transport: TestpmdTransport) -> CommandLine {
        let sockets = ["/run/p0", "/run/p1"].into_iter().enumerate();
        CommandLine {
            cores: vec![0, 1],
            mebibytes: MEBIBYTES,
            huge_pages: false,
            prefix: "rr7".into(),
            plugins: Vec::new(),
            devices: sockets.map(|(number, at)| device(transport, number, Path::new(at), 2, true)).collect(),
            options: [options("macswap", 2), vec!["--stats-period=1".into()]].concat(),
        }
    }

    #[test]
    fn vhost_user_ports_are_devices_of_virtio_user() {
        let line = text(&line(TestpmdTransport::VhostUser));
        assert!(
            line.starts_with("--lcores 0@0,1@1 --no-pci -m 256 --file-prefix=rr7 --no-huge --vdev"),
            "{line}"
        );
        assert!(
            line.contains("--vdev=net_virtio_user1,path=/run/p1,queues=2,queue_size=1024,packed_vq=1 -- "),
            "{line}"
        );
        assert!(
            line.contains("-- --nb-cores=1 --total-num-mbufs=16384 --no-mlockall --forward-mode=macswap "),
            "{line}"
        );
        assert!(line.ends_with("--rxq=2 --txq=2 --rxd=1024 --txd=1024 --stats-period=1"), "{line}");
    }

    #[test]
    fn memif_ports_are_clients_and_one_processor_is_enough() {
        let line = text(&CommandLine { cores: vec![1], huge_pages: true, ..line(TestpmdTransport::Memif) });
        assert!(line.starts_with("--lcores 0@1,1@1 "), "{line}");
        assert!(
            line.contains("--in-memory --single-file-segments --vdev=net_memif0,role=client,id=0,"),
            "{line}"
        );
        assert!(line.contains("socket-abstract=no,socket=/run/p1 -- "), "{line}");
        assert!(!line.contains("--no-huge"), "{line}");
    }
}
