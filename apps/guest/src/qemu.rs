//! QEMU's command line for a guest (qemu(1)).

use std::ffi::OsString;
use std::path::Path;

use ringroad_wire::mac::Mac;

use crate::kernel::Kernel;
use crate::virtual_machine::{CONSOLE_LOG, CONSOLE_SOCKET, EmulatedCard, VmConfig, command_socket};

/// Kernel command line: console, few messages, and an immediate end of the machine after a panic. The kernel's check of
/// its timer would panic where QEMU gets no processor for some time.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 no_timer_check";

/// Returns the arguments for `plan`. `kvm` decides between KVM and emulation.
pub(crate) fn arguments(plan: &VmConfig, kvm: bool, kernel: &Kernel, initramfs: &Path) -> Vec<OsString> {
    let mut arguments = Vec::new();
    let mut option = |name: &str, value: OsString| arguments.extend([OsString::from(name), value]);
    // One shared file for all memory, since the switch maps the guest's memory.
    option("-M", "q35,memory-backend=memory".into());
    option("-object", format!("memory-backend-memfd,id=memory,size={}M,share=on", plan.memory_mib).into());
    option("-accel", if kvm { "kvm" } else { "tcg" }.into());
    option("-cpu", if kvm { "host" } else { "max" }.into());
    option("-m", plan.memory_mib.to_string().into());
    option("-smp", plan.cpus.to_string().into());
    option("-display", "none".into());
    let console = server("console", &plan.folder.join(CONSOLE_SOCKET));
    option("-chardev", joined(&[console, ",logfile=".into(), escaped(&plan.folder.join(CONSOLE_LOG))]));
    option("-serial", "chardev:console".into());
    option("-chardev", server("command", &command_socket(&plan.folder)));
    option("-serial", "chardev:command".into());
    for (number, device) in plan.devices.iter().enumerate() {
        let port = format!("socket,id=port{number},reconnect=1,path=");
        option("-chardev", joined(&[port.into(), escaped(&device.socket)]));
        let net = format!("vhost-user,id=net{number},chardev=port{number},queues={}", plan.queues);
        option("-netdev", net.into());
        let mac = Mac::from(device.mac);
        let mut card = format!(
            "virtio-net-pci,netdev=net{number},mac={mac},packed={}",
            if plan.packed { "on" } else { "off" }
        );
        if plan.queues > 1 {
            card += ",mq=on";
        }
        // QEMU 7.2 crashes when a vhost-user device with MSI-X starts without KVM to deliver the interrupts.
        if !kvm {
            card += ",vectors=0";
        }
        option("-device", card.into());
    }
    for (number, EmulatedCard { model, is_express, mac, hub }) in plan.cards.iter().enumerate() {
        option("-netdev", format!("hubport,id=card{number},hubid={hub}").into());
        let mut card = format!("{model},netdev=card{number},mac={},romfile=", Mac::from(*mac));
        if *is_express {
            let slot = number + 1;
            option("-device", format!("pcie-root-port,id=slot{slot},chassis={slot},slot={slot}").into());
            card += &format!(",bus=slot{slot}");
        }
        option("-device", card.into());
    }
    for folder in plan.qemu.iter().flat_map(|unpacked| &unpacked.data) {
        option("-L", folder.into());
    }
    option("-kernel", kernel.image.clone().into());
    option("-initrd", initramfs.into());
    option("-append", KERNEL_ARGUMENTS.into());
    arguments.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(OsString::from));
    arguments
}

/// Makes a character device that listens on a socket, and lets the guest start without a connection.
fn server(id: &str, path: &Path) -> OsString {
    joined(&[format!("socket,id={id},server=on,wait=off,path=").into(), escaped(path)])
}

fn joined(parts: &[OsString]) -> OsString {
    parts.iter().fold(OsString::new(), |mut whole, part| {
        whole.push(part);
        whole
    })
}

/// Escapes a path in an option: a comma separates suboptions, and two commas stand for one.
fn escaped(path: &Path) -> OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let doubled = path.as_os_str().as_bytes().iter().flat_map(|byte| {
        let count = if *byte == b',' { 2 } else { 1 };
        std::iter::repeat_n(*byte, count)
    });
    OsString::from_vec(doubled.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtual_machine::{MachineKind, NetworkDevice, UnpackedQemu};

    fn plan() -> VmConfig {
        VmConfig {
            name: "g".into(),
            kind: MachineKind::Qemu,
            folder: "/run/g,h".into(),
            devices: vec![NetworkDevice {
                socket: "/run/p0.sock".into(),
                mac: [2, 0, 0, 0, 0xab, 1],
                address: None,
            }],
            memory_mib: 256,
            cpus: 2,
            queues: 1,
            ..VmConfig::default()
        }
    }

    fn line(plan: &VmConfig, kvm: bool) -> String {
        let kernel = Kernel { version: "6.1".into(), image: "/k/vmlinuz".into(), modules: "/k/m".into() };
        let words = arguments(plan, kvm, &kernel, Path::new("/run/initramfs"));
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn an_emulated_guest_shares_memory_and_has_no_msix() {
        let line = line(&plan(), false);
        for part in [
            "-M q35,memory-backend=memory -object memory-backend-memfd,id=memory,size=256M,share=on",
            "-accel tcg -cpu max",
            "-chardev socket,id=port0,reconnect=1,path=/run/p0.sock -netdev vhost-user,id=net0,chardev=port0,queues=1",
            "-device virtio-net-pci,netdev=net0,mac=02:00:00:00:ab:01,packed=off,vectors=0 ",
            "-kernel /k/vmlinuz -initrd /run/initramfs -append console=ttyS0",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(line.contains("path=/run/g,,h/console.sock,logfile=/run/g,,h/console.log"), "{line}");
    }

    #[test]
    fn emulated_cards_are_cabled_by_their_hub_and_each_express_card_has_a_slot() {
        let card = |model: &str, is_express: bool, number: u8| EmulatedCard {
            model: model.to_owned(),
            is_express,
            mac: [2, 0, 0, 0, 0, number],
            hub: 3,
        };
        let cards = vec![card("igb", true, 1), card("rtl8139", false, 2)];
        let unpacked = UnpackedQemu { program: "/q/bin/qemu".into(), data: vec!["/q/share".into()] };
        let line = line(&VmConfig { cards, qemu: Some(unpacked), ..plan() }, false);
        for part in [
            "-netdev hubport,id=card0,hubid=3 -device pcie-root-port,id=slot1,chassis=1,slot=1 \
             -device igb,netdev=card0,mac=02:00:00:00:00:01,romfile=,bus=slot1 ",
            "-netdev hubport,id=card1,hubid=3 -device rtl8139,netdev=card1,mac=02:00:00:00:00:02,romfile= -L /q/share ",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }

    #[test]
    fn queues_packed_rings_and_kvm_become_qemu_options() {
        let line = line(&VmConfig { queues: 2, packed: true, ..plan() }, true);
        assert!(
            line.contains(
                "queues=2 -device virtio-net-pci,netdev=net0,mac=02:00:00:00:ab:01,packed=on,mq=on "
            )
        );
        assert!(line.contains("-accel kvm -cpu host"), "{line}");
    }
}
