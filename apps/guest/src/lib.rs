//! Guests of a switch: small virtual machines under QEMU or as user-mode Linux, DPDK's testpmd, and the records that are used to find and
//! clean up guests of every kind.
//!
//! A virtual machine is Debian's kernel with an initramfs made for that machine: busybox, the modules it needs, and a
//! script that configures its interfaces. Each interface is a virtio-net device whose rings a vhost-user port of the
//! switch serves. This crate does not depend on the daemon: the program that starts a guest attaches the guest's ports
//! first, and detaches them at the guest's end.

mod archive;
pub mod busybox;
pub mod command_channel;
pub mod console;
pub mod error;
mod initramfs;
pub mod kernel;
mod kernel_fetch;
mod kernel_modules;
pub mod process;
pub mod program;
mod qemu;
pub mod record;
pub mod testpmd;
pub mod uml;
pub mod virtual_machine;

pub use error::GuestError;
pub use kernel::Kernel;
pub use record::{GuestKind, GuestRecord, GuestRegistry};
pub use virtual_machine::{
    Accelerator, EmulatedCard, GuestContents, MachineKind, NetworkDevice, UnpackedQemu, VirtualMachine,
    VmConfig,
};
