//! A network namespace for one test. It ends with the test's thread, so tests can run side by side and leave nothing
//! behind.
#![allow(unsafe_code)]

use rustix::thread::UnshareFlags;

/// Runs `test` in a new, empty network namespace. Without root it prints a message and returns.
pub(crate) fn in_new_namespace(test: impl FnOnce() + Send) {
    if !ringroad_test_needs::is_root() {
        return;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare_network();
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Moves the calling thread into a new network namespace.
pub(crate) fn unshare_network() {
    // SAFETY: only the network namespace changes; no table of descriptors is unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.expect("a new network namespace");
}

/// A descriptor of a new network namespace, which exists until the descriptor is closed.
pub(crate) fn new_namespace() -> std::os::fd::OwnedFd {
    let made = || {
        unshare_network();
        crate::Namespace::Current.open().expect("its own namespace")
    };
    std::thread::spawn(made).join().expect("a thread")
}

/// Runs `test` on a thread that has only the rights of user nobody.
pub(crate) fn without_rights(test: impl FnOnce() + Send) {
    let nobody = rustix::process::Uid::from_raw(65534);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("to become nobody");
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
}
