//! Library that, preloaded into a program (`LD_PRELOAD`), makes `/dev/netmap` a device of the Ringroad daemon; the
//! program is neither changed nor rebuilt.
//!
//! `open` returns a real descriptor: the end of a connection to the daemon. The library serves only calls on such
//! descriptors, and passes all others to the C library. Programs that never touch the device behave as without the
//! library: it prints nothing, starts no thread and makes no connection.
//!
//! - Calls: [`open`], [`control`] (ioctl, read, write), [`memory`], [`poll`], [`select`], [`epoll`], [`copies`] (close,
//!   dup, fcntl, daemon), [`passing`] (recvmsg), [`status`] (stat, access).
//! - Behind them: `hooks`, which defines these calls and finds the C library's functions; `tracked`, the descriptors
//!   that are devices, in a `descriptor_table`; `wait`, sleeping on devices and other descriptors at once;
//!   `time_limit`, the waiting times of calls; `epoll_interests`, devices in epoll sets; `mapping_ledger`, the handles
//!   that keep mapped devices bound; `process`, forks.
//!
//! These cases do not work: programs that are linked statically, or make system calls without the C library; calls that
//! the library makes within itself (`fopen` of the device); an epoll set with devices, if `poll` or another epoll set
//! waits for it, or if a process got it by `exec` or over a socket. Edge-triggered interests in devices are served as
//! level-triggered ones. If netmap's own kernel module has made `/dev/netmap`, the library uses that device.
#![allow(unsafe_code)]

pub mod control;
pub mod copies;
mod descriptor_table;
pub mod epoll;
mod epoll_interests;
mod errno;
mod hooks;
mod mapping_ledger;
pub mod memory;
pub mod open;
pub mod passing;
pub mod poll;
mod process;
pub mod select;
mod signal_safe_lock;
pub mod status;
mod time_limit;
mod tracked;
mod wait;
