//! Warning of a program that is more urgent than the daemon's workers, for which it waits.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use ringroad_ring::real_time;

/// Whether the program has been told.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Writes a line to standard error, once in this process, if the calling thread has a higher real-time priority than
/// `workers`, which is the highest that the daemon's workers take for this program.
#[cold]
pub(crate) fn warn_if_above(workers: u8) {
    if TOLD.load(Ordering::Relaxed) {
        return;
    }
    let own = real_time::own_priority();
    if own <= workers || TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    // This may be a signal handler: no memory from the heap, no lock.
    let mut line = [0; 256];
    let mut rest = &mut line[..];
    let _ = writeln!(
        rest,
        "ringroad: this program has real-time priority {own}, and the daemon's workers take {workers} for it: they may \
         get no processor while it computes. See workers.real_time in the daemon's configuration"
    );
    let unused = rest.len();
    let _ = rustix::io::write(rustix::stdio::stderr(), &line[..line.len() - unused]);
}
