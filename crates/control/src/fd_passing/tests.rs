use std::os::unix::net::UnixStream;

use rustix::io::{FdFlags, fcntl_getfd};

use super::*;

#[test]
fn descriptors_arrive_in_order_and_close_on_exec() {
    let (from, to) = UnixStream::pair().unwrap();
    let files: Vec<_> = (0..MAX_DESCRIPTORS).map(|_| tempfile::tempfile().unwrap()).collect();
    for (size, file) in files.iter().enumerate() {
        file.set_len(size as u64).unwrap();
    }
    let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    assert_eq!(send(&from, b"frame", &borrowed).unwrap(), 5);

    let mut descriptors = Vec::new();
    let received = receive(&to, &mut [0; 1], &mut descriptors).unwrap();
    assert_eq!(received, ReceivedMessage { bytes: 1, descriptors_lost: false });
    assert_eq!(descriptors.len(), MAX_DESCRIPTORS);
    for (size, descriptor) in descriptors.iter().enumerate() {
        assert!(fcntl_getfd(descriptor).unwrap().contains(FdFlags::CLOEXEC));
        assert_eq!(rustix::fs::fstat(descriptor).unwrap().st_size, size as i64);
    }
}

#[test]
fn the_kernel_reports_descriptors_dropped_for_lack_of_room() {
    let (from, to) = UnixStream::pair().unwrap();
    send(&from, b"x", &[from.as_fd()]).unwrap();
    let received = receive_bytes(&to, &mut [0; 8]).unwrap();
    assert_eq!(received, ReceivedMessage { bytes: 1, descriptors_lost: true });
}

#[test]
fn too_many_descriptors_are_not_sent() {
    let (from, to) = UnixStream::pair().unwrap();
    let error = send(&from, b"x", &[from.as_fd(); MAX_DESCRIPTORS + 1]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(receive_bytes(&to, &mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_closed_peer_is_an_error_and_no_signal() {
    let (from, to) = UnixStream::pair().unwrap();
    drop(to);
    assert_eq!(send(&from, b"x", &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(receive_bytes(&from, &mut [0; 8]).unwrap().bytes, 0);
}
