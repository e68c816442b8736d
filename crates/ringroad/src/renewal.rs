//! A port that outlives its daemon ([`OpenOptions::reconnect`](crate::OpenOptions::reconnect)): a queue opens the port
//! again when a new daemon runs. Then the thread of each ring replaces the ring by the new attachment's.
//!
//! The path of frames does not call this module. A ring calls it instead of reporting that the daemon is gone; a queue
//! calls it before it sleeps.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringroad_control::ControlError;
use ringroad_control::connection::Introduction;
use ringroad_control::message::ErrorKind;
use ringroad_control::report::StartedBy;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::attach::{Attachment, OpenRequest, connect};
use crate::daemon_start::StartError;
use crate::error::{OpenError, PortError};
use crate::port::{Port, Reconnections};
use crate::queue::Queue;
use crate::ring::{RxRing, TxRing};
use crate::waiter::Binding;

/// Time between the first two tries to reach a daemon; it doubles up to the longest delay.
const FIRST_DELAY: Duration = Duration::from_millis(10);
const LONGEST_DELAY: Duration = Duration::from_millis(320);
/// Maximum duration of a try, which runs in the thread that syncs or waits.
const TRY_TIMEOUT: Duration = Duration::from_secs(2);

/// State shared by the queues of a port that survives its daemon's end.
#[derive(Debug)]
pub(crate) struct Renewal {
    request: OpenRequest,
    /// Number of queues, number of slots, and bytes of a buffer, which programs rely on.
    sizes: (usize, u32, u32),
    /// Timer that expires when the next try is due, and stays readable until that try: it ends the waits of all queues.
    timer: OwnedFd,
    newest: Mutex<Newest>,
}

/// The newest attachment, of which each queue takes its part.
#[derive(Debug)]
pub(crate) struct Newest {
    pub(crate) binding: Arc<Binding>,
    daemon: Introduction,
    parts: Vec<Parts>,
    reconnections: Reconnections,
    next_try: Option<Instant>,
    delay: Duration,
}

/// Parts of an attachment that a queue has not taken yet.
#[derive(Debug, Default)]
struct Parts {
    tx: Option<TxRing>,
    rx: Option<RxRing>,
    notify: Option<OwnedFd>,
}

/// Part of one queue in the renewal of its port.
#[derive(Debug, Clone)]
pub(crate) struct RenewalQueue {
    renewal: Arc<Renewal>,
    queue: usize,
}

/// Makes the port that begins with this first attachment.
pub(crate) fn renewable(request: OpenRequest, first: Attachment) -> Result<Port, OpenError> {
    let Attachment { info, mut queues, binding, daemon } = first;
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)
        .map_err(|source| OpenError::System { what: "making a timer", source: source.into() })?;
    let newest = Newest {
        binding,
        daemon,
        parts: Vec::new(),
        reconnections: Reconnections::default(),
        next_try: None,
        delay: FIRST_DELAY,
    };
    let sizes = sizes(&mut queues);
    let renewal = Arc::new(Renewal { request, sizes, timer, newest: Mutex::new(newest) });
    for (queue, renewed) in queues.iter_mut().enumerate() {
        renewed.outlive_the_daemon(RenewalQueue { renewal: Arc::clone(&renewal), queue });
    }
    Port::new(info, queues)
}

fn sizes(queues: &mut [Queue]) -> (usize, u32, u32) {
    let rings = queues.first_mut().map(|queue| (queue.tx().slot_count(), queue.tx().buffer_bytes()));
    let (slots, buffer_bytes) = rings.unwrap_or_default();
    (queues.len(), slots, buffer_bytes)
}

impl RenewalQueue {
    /// Returns the attachment after the one of `generation`, if there is one. Makes a try if it is due. After `None`
    /// the caller must call again when the [timer](Self::timer) has expired.
    ///
    /// # Errors
    /// [`PortError::DaemonGone`] if the daemon still runs, so that only the port is gone; [`PortError::Reopen`] if
    /// waiting does not help.
    pub(crate) fn newest(&self, generation: u64) -> Result<Option<MutexGuard<'_, Newest>>, PortError> {
        let mut newest = self.lock();
        if newest.binding.generation != generation {
            return Ok(Some(newest));
        }
        if newest.next_try.is_some_and(|due| Instant::now() < due) {
            return Ok(None);
        }
        match self.renewal.attach_again(&newest) {
            Ok(Some(attachment)) => {
                newest.replace(attachment);
                Ok(Some(newest))
            }
            Ok(None) => Err(PortError::DaemonGone),
            Err(error) if may_pass(&error) => {
                newest.delay_try(&self.renewal.timer)?;
                Ok(None)
            }
            Err(error) => Err(PortError::Reopen(Box::new(error))),
        }
    }

    /// Timer, readable when a try is due.
    pub(crate) fn timer(&self) -> &OwnedFd {
        &self.renewal.timer
    }

    pub(crate) fn queue(&self) -> usize {
        self.queue
    }

    pub(crate) fn reconnections(&self) -> Reconnections {
        self.lock().reconnections
    }

    fn lock(&self) -> MutexGuard<'_, Newest> {
        self.renewal.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Renewal {
    /// Attaches to a new daemon. Returns `None` if the daemon is the one that was lost.
    fn attach_again(&self, lost: &Newest) -> Result<Option<Attachment>, OpenError> {
        // A daemon with a supervisor comes back by itself; a second daemon would conflict with it.
        let may_start = lost.daemon.started == StartedBy::OnDemand && !self.request.options.no_start;
        let met = connect(&self.request, may_start, TRY_TIMEOUT)?;
        if met.daemon.instance == lost.daemon.instance {
            return Ok(None);
        }
        let mut attachment = met.attach(&self.request, lost.binding.generation + 1)?;
        if sizes(&mut attachment.queues) != self.sizes {
            return Err(OpenError::NotHere {
                name: attachment.info.name,
                context: "again",
                why: "it has other numbers of queues or slots, or another size of buffers, than before",
            });
        }
        Ok(Some(attachment))
    }
}

impl Newest {
    fn replace(&mut self, attachment: Attachment) {
        let parts = |queue: Queue| {
            let (tx, rx, notify) = queue.into_parts();
            Parts { tx: Some(tx), rx: Some(rx), notify: Some(notify) }
        };
        self.parts = attachment.queues.into_iter().map(parts).collect();
        self.binding.is_superseded.store(true, Ordering::Relaxed);
        (self.binding, self.daemon) = (attachment.binding, attachment.daemon);
        self.reconnections.count += 1;
        (self.next_try, self.delay) = (None, FIRST_DELAY);
    }

    fn delay_try(&mut self, timer: &OwnedFd) -> Result<(), PortError> {
        let delay = self.delay;
        self.next_try = Some(Instant::now() + delay);
        self.delay = (delay * 2).min(LONGEST_DELAY);
        let value = Timespec { tv_sec: delay.as_secs() as i64, tv_nsec: i64::from(delay.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        rustix::time::timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// Replaces the old transmit ring by the new one, if that was not done yet. Frames in the old ring are lost.
    pub(crate) fn renew_tx(&mut self, queue: usize, ring: &mut TxRing) {
        if let Some(new) = self.parts.get_mut(queue).and_then(|parts| parts.tx.take()) {
            self.reconnections.unacknowledged_slots += u64::from(ring.pending());
            ring.take_up(new);
        }
    }

    /// Replaces the old receive ring by the new one, if that was not done yet.
    pub(crate) fn renew_rx(&mut self, queue: usize, ring: &mut RxRing) {
        if let Some(new) = self.parts.get_mut(queue).and_then(|parts| parts.rx.take()) {
            ring.take_up(new);
        }
    }

    /// Takes the descriptor that ends the queue's waits from now on.
    pub(crate) fn take_notify(&mut self, queue: usize) -> Option<OwnedFd> {
        self.parts.get_mut(queue).and_then(|parts| parts.notify.take())
    }
}

/// Whether an opening with this error can succeed later, with the same options: the daemon does not run yet, an
/// interface comes later, or another program has the name for the time.
fn may_pass(error: &OpenError) -> bool {
    match error {
        OpenError::Control(error) => match error {
            ControlError::Refused(refusal) => !matches!(
                refusal.kind,
                ErrorKind::BadName
                    | ErrorKind::PermissionDenied
                    | ErrorKind::BadRequest
                    | ErrorKind::VersionMismatch
                    | ErrorKind::Unsupported
            ),
            ControlError::ForeignDaemon { .. }
            | ControlError::ProtocolViolation(_)
            | ControlError::Unsendable(_) => false,
            _ => true,
        },
        OpenError::Start(error) => !matches!(error, StartError::NoProgram { .. }),
        _ => false,
    }
}
