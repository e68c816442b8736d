//! Fuzz target: any bytes from a front end, with descriptors or without. The port reports the front end, drops it, and
//! serves the next one.
#![no_main]

use std::io::{IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use ringroad_drivers::catalogue::{open_device, plan_device};
use ringroad_drivers::device::{Device, DeviceRole};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Port that serves all front ends, one after the other, and the thread that steps it.
static PORT: LazyLock<String> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("ringroad-fuzz-{}", std::process::id()));
    let name = format!("vhost-user:{}@queues=2", path.display()).parse().unwrap();
    let plan = plan_device(&name, None).unwrap();
    let Device { mut queues, keep, .. } = open_device(&name, plan, DeviceRole::SwitchPort, None).unwrap();
    std::thread::spawn(move || {
        let _keep = keep;
        loop {
            queues
                .iter_mut()
                .filter_map(|queue| queue.sleeper())
                .for_each(|sleeper| sleeper.prepare_sleep(false));
            std::thread::yield_now();
        }
    });
    path.display().to_string()
});

fuzz_target!(|data: &[u8]| {
    let mut socket = UnixStream::connect(&*PORT).unwrap();
    let memory = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, 1 << 16).unwrap();
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    // A message is a request, a byte that selects flags and descriptors, a length, and a payload.
    let mut rest = data;
    while let Some((&[request, extra, size], behind)) = rest.split_first_chunk::<3>() {
        let size = usize::from(size).min(behind.len());
        let (payload, behind) = behind.split_at(size);
        rest = behind;
        let flags = 1 | u32::from(extra & 0xc);
        let header = [u32::from(request % 45), flags, size as u32].map(u32::to_ne_bytes).concat();
        let descriptors = match extra % 3 {
            0 => vec![],
            1 => vec![event.as_fd()],
            _ => vec![memory.as_fd()],
        };
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        }
        let sent = sendmsg(&socket, &[IoSlice::new(&header)], &mut ancillary, SendFlags::NOSIGNAL);
        if sent.is_err() || socket.write_all(payload).is_err() {
            return;
        }
    }
    let _ = socket.shutdown(std::net::Shutdown::Write);
    // The port has read all bytes when it closes the connection.
    let _ = socket.read_to_end(&mut Vec::new());
});
