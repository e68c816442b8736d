//! Initramfs of a guest: busybox, modules, and scripts, as one archive in memory.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use crate::archive::Archive;
use crate::busybox::Busybox;
use crate::error::GuestError;
use crate::kernel::Kernel;
use crate::kernel_modules::load_order;
use crate::program;
use crate::virtual_machine::{MachineKind, VmConfig};

const INIT: &str = include_str!("scripts/init");
const COMMANDS: &str = include_str!("scripts/ringroad-commands");
const COMMAND: &str = include_str!("scripts/ringroad-command");

/// Address and length of its network prefix.
pub type NetworkAddress = (IpAddr, u8);

/// Returns the names of the modules that the guest needs.
fn modules(plan: &VmConfig) -> Vec<&str> {
    // Kernels for machines have IPv6 built in.
    let first = match plan.kind {
        MachineKind::Qemu => "virtio_pci",
        MachineKind::Uml => "ipv6",
    };
    let bridge = plan.bridge.then_some("bridge");
    let contents = plan.contents.modules.iter().map(String::as_str);
    [first, "virtio_net"].into_iter().chain(bridge).chain(contents).collect()
}

/// Returns the shell commands for the guest's interfaces `eth0`, `eth1`, ... IPv6 addresses are used immediately,
/// without duplicate address detection.
fn network_script(plan: &VmConfig) -> String {
    let mut script = "for setting in all default; do\n    \
         echo 0 >/proc/sys/net/ipv6/conf/$setting/accept_dad\ndone\nip link set lo up\n"
        .to_owned();
    if plan.bridge {
        script += "brctl addbr br0\nbrctl addif br0 eth0\nbrctl addif br0 eth1\nip link set br0 up\n";
    }
    for (number, device) in plan.devices.iter().enumerate() {
        let interface = if plan.bridge && number == 0 { "br0".to_owned() } else { format!("eth{number}") };
        if let Some((address, bits)) = device.address {
            script += &format!("ip address add {address}/{bits} dev {interface}\n");
        }
        script += &format!("ip link set eth{number} up\n");
    }
    script
}

/// Makes the archive.
pub(crate) fn build(kernel: &Kernel, busybox: &Busybox, plan: &VmConfig) -> Result<Vec<u8>, GuestError> {
    let mut archive = Archive::default();
    for folder in ["dev", "etc", "proc", "root", "run", "sys", "tmp", "var"] {
        archive.folder(folder);
    }
    // Standard streams of the first program: the kernel opens this device before anything is mounted.
    archive.character_device("dev/console", 0o600, (5, 1));
    archive.file("init", 0o755, INIT.as_bytes());
    archive.file("bin/ringroad-commands", 0o755, COMMANDS.as_bytes());
    archive.file("bin/ringroad-command", 0o755, COMMAND.as_bytes());
    let read = |path: &Path| fs::read(path).map_err(GuestError::file("read", path));
    archive.file("bin/busybox", 0o755, &read(&busybox.program)?);
    let mut libraries: BTreeSet<_> = busybox.libraries.iter().cloned().collect();
    for program in &plan.contents.programs {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        archive.file(&format!("opt/{name}"), 0o755, &read(program)?);
        libraries.extend(program::libraries(program)?);
    }
    for library in &libraries {
        archive.file(library.to_string_lossy().trim_start_matches('/'), 0o755, &read(library)?);
    }
    let mut order = String::new();
    for module in load_order(kernel, &modules(plan))? {
        archive.file(&format!("lib/modules/{}.ko", module.name), 0o644, &module.content);
        order += &format!("{}\n", module.name);
    }
    archive.file("etc/ringroad/modules", 0o644, order.as_bytes());
    archive.file("etc/ringroad/network", 0o644, network_script(plan).as_bytes());
    archive.file("etc/hostname", 0o644, plan.name.as_bytes());
    // User database for programs that look up their user.
    archive.file("etc/passwd", 0o644, b"root::0:0:root:/root:/bin/sh\n");
    archive.file("etc/group", 0o644, b"root:x:0:\n");
    archive.symlink("var/run", "/run");
    Ok(archive.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtual_machine::NetworkDevice;

    #[test]
    fn interfaces_get_their_addresses_and_a_bridge_takes_the_first_two() {
        let device = |address: Option<&str>| NetworkDevice {
            socket: "/run/g.sock".into(),
            mac: [2, 0, 0, 0, 0, 1],
            address: address.map(|text| (text.parse().unwrap(), 24)),
        };
        let plan = |bridge| VmConfig {
            name: "g".to_owned(),
            kind: MachineKind::Qemu,
            folder: "/run/g".into(),
            devices: [Some("10.0.0.1"), None, Some("fd00::3")].map(device).to_vec(),
            bridge,
            memory_mib: 256,
            cpus: 1,
            queues: 1,
            ..VmConfig::default()
        };
        let plain = network_script(&plan(false));
        assert!(plain.ends_with(
            "ip address add 10.0.0.1/24 dev eth0\nip link set eth0 up\nip link set eth1 up\n\
             ip address add fd00::3/24 dev eth2\nip link set eth2 up\n"
        ));
        let bridged = network_script(&plan(true));
        assert!(bridged.contains("brctl addif br0 eth1\n"), "{bridged}");
        assert!(bridged.contains("ip address add 10.0.0.1/24 dev br0\n"), "{bridged}");
        assert!(bridged.contains("ip address add fd00::3/24 dev eth2\n"), "{bridged}");
    }
}
