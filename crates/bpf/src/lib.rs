//! The small eBPF programs that steer frames out of the kernel's path, loaded with bpf(2) and attached with bpf links.
//!
//! Programs are a handful of instructions from this crate, without a compiler or object files at run time. A descriptor
//! ([`link::BpfLink`]) holds each attachment, so the kernel detaches the program when the process ends or is killed.
//!
//! Interfaces are named by index in the calling thread's network namespace. All functions need `CAP_BPF` and
//! `CAP_NET_ADMIN`, or root.

pub mod attached;
pub mod error;
mod instruction;
mod kernel_function;
pub mod link;
pub mod map;
pub mod program;
pub mod shortcut;
mod syscall;
