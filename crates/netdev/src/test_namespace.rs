//! A network namespace for one test. It ends with the test's thread, so tests can run side by side and leave nothing
//! behind.

use crate::{HeldNamespace, new_namespace};

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
    new_namespace::unshare_network().expect("a new network namespace");
}

/// A new network namespace, which exists until the value is dropped.
pub(crate) fn new_namespace() -> HeldNamespace {
    HeldNamespace::unnamed().expect("a new network namespace")
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
