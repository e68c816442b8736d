//! An engine on a thread of its own: commands, spinning while there is work and a little longer, then sleep.
//!
//! Nothing here is on the path of a packet but the loop itself. Commands are closures that run between two turns; the
//! sleep follows [`ringroad_ring::wakeup`]: announce, check once more, wait in epoll.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ringroad_port::clock::Clock;
use ringroad_ring::core_sharing::CoreSharing;
use ringroad_ring::epoll_wait::epoll_wait;
use ringroad_ring::wakeup::Sleeper;
use rustix::event::epoll;

use crate::busy_time::{BusyTime, Stopwatch};
use crate::engine::{BELL, Engine};
use crate::exchange::Doorbell;
use crate::scheduler::TURN_COST;

/// Settings of a worker.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    /// Number of the worker, from 0.
    pub index: u16,
    /// Processor to run on; `None` leaves it to the kernel.
    pub cpu: Option<u32>,
    /// Time for which an idle worker polls its queues before it sleeps.
    pub spin: Duration,
    /// Whether the worker never sleeps.
    pub busy: bool,
}

/// Number of ranges of [`WorkerStats::turn_frames`]: the last is above 1024 frames.
pub const TURN_FRAMES: usize = 12;

/// Counters of a worker, readable at any time.
#[derive(Debug, Default)]
pub struct WorkerStats {
    /// Turns made.
    pub loops: AtomicU64,
    /// Turns that moved frames.
    pub busy_loops: AtomicU64,
    /// Frames that turns moved.
    pub frames: AtomicU64,
    /// Turns that moved one frame, up to two, up to four, and so on; the last range has no upper end.
    pub turn_frames: [AtomicU64; TURN_FRAMES],
    /// Time of the turns that moved frames.
    pub busy_time: BusyTime,
    /// Times that the worker went to sleep.
    pub sleeps: AtomicU64,
    /// Wake-ups by programs.
    pub kicks_received: AtomicU64,
    /// Kernel thread id, 0 until the thread runs.
    pub thread_id: AtomicU32,
    sleeping: AtomicBool,
}

impl WorkerStats {
    /// Counts a turn that moved frames.
    #[inline]
    fn note_busy_turn(&self, frames: usize) {
        add(&self.busy_loops, 1);
        add(&self.frames, frames as u64);
        let range = (usize::BITS - (frames - 1).leading_zeros()) as usize;
        add(&self.turn_frames[range.min(TURN_FRAMES - 1)], 1);
    }

    /// Whether the worker sleeps at this moment.
    #[must_use]
    pub fn is_sleeping(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed)
    }
}

/// Reason why a worker cannot be started or reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The kernel refused the thread or one of its resources.
    #[error("starting worker {index}: {source}")]
    Start { index: u16, source: std::io::Error },
    /// The thread has ended.
    #[error("worker {0} has stopped; restart ringroadd and report its log")]
    Gone(u16),
}

type Command = Box<dyn FnOnce(&mut Engine) + Send>;

/// State that a worker's thread shares with its owner.
#[derive(Debug)]
struct SharedWorkerState {
    /// Whether a command waits.
    pending: AtomicBool,
    stop: AtomicBool,
    stay_awake: AtomicBool,
    bell: Arc<Doorbell>,
    stats: WorkerStats,
}

/// A running worker.
#[derive(Debug)]
pub struct Worker {
    config: WorkerConfig,
    commands: Sender<Command>,
    shared: Arc<SharedWorkerState>,
    thread: Option<JoinHandle<Box<WorkerThread>>>,
    /// State of the thread, once it has ended.
    ended: Option<Box<WorkerThread>>,
}

impl Worker {
    /// Starts `engine` on a thread. Other workers ring `bell`, through the exchanges, to wake this one.
    ///
    /// # Errors
    /// [`WorkerError::Start`].
    pub fn start(engine: Engine, bell: Arc<Doorbell>, config: WorkerConfig) -> Result<Self, WorkerError> {
        let failed = |source: std::io::Error| WorkerError::Start { index: config.index, source };
        let (commands, receiver) = channel();
        let shared = Arc::new(SharedWorkerState {
            pending: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            stay_awake: AtomicBool::new(config.busy),
            bell,
            stats: WorkerStats::default(),
        });
        let mut running = Box::new(WorkerThread {
            engine,
            commands: receiver,
            shared: Arc::clone(&shared),
            sleeper: Sleeper::default(),
            config: config.clone(),
            spent_at_check: 0,
        });
        let thread = std::thread::Builder::new()
            .name(format!("worker-{}", config.index))
            .spawn(move || {
                running.run();
                running
            })
            .map_err(failed)?;
        Ok(Self { config, commands, shared, thread: Some(thread), ended: None })
    }

    /// Runs `command` on the worker's engine between two turns, and waits for its result.
    ///
    /// # Errors
    /// [`WorkerError::Gone`] if the thread has ended.
    pub fn call<T: Send + 'static>(
        &self,
        command: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Result<T, WorkerError> {
        let gone = || WorkerError::Gone(self.config.index);
        let (answer, result) = channel();
        let wrapped: Command = Box::new(move |engine| {
            // A caller that no longer waits needs no reply.
            let _ = answer.send(command(engine));
        });
        self.commands.send(wrapped).map_err(|_| gone())?;
        self.shared.pending.store(true, Ordering::Release);
        self.shared.bell.ring();
        result.recv().map_err(|_| gone())
    }

    /// Keeps the worker awake, or lets it sleep again if its settings permit it.
    pub fn keep_awake(&self, awake: bool) {
        self.shared.stay_awake.store(awake || self.config.busy, Ordering::Relaxed);
        self.shared.bell.ring();
    }

    /// Counters of the worker, which it updates while it runs.
    #[must_use]
    pub fn stats(&self) -> &WorkerStats {
        &self.shared.stats
    }

    /// Settings of the worker.
    #[must_use]
    pub fn config(&self) -> &WorkerConfig {
        &self.config
    }

    /// Whether the thread still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends the thread. The engine stays with its queues, since other workers may still copy frames out of the queues.
    pub(crate) fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // A held worker waits for a command.
        let _ = self.commands.send(Box::new(|_| ()));
        self.shared.bell.ring();
        if let Some(thread) = self.thread.take() {
            self.ended = thread.join().ok();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

#[derive(Debug)]
struct WorkerThread {
    engine: Engine,
    commands: Receiver<Command>,
    shared: Arc<SharedWorkerState>,
    sleeper: Sleeper,
    config: WorkerConfig,
    /// Cost of all turns when the wake set was last polled.
    spent_at_check: u64,
}

/// Maximum sleep of a worker while an event is due that sends no wake-up: a device has slots of a program, or frames
/// are held back for a time.
const UNANNOUNCED_POLL: Duration = Duration::from_millis(1);
/// Empty turns between two readings of the clock.
const TURNS_PER_CLOCK: u32 = 16;
/// Queues that get an announcement of sleep between two turns: an announcement takes about as long as a check.
const TOLD_AT_ONCE: usize = 512;

impl WorkerThread {
    fn run(&mut self) {
        let thread = rustix::thread::gettid();
        self.shared.stats.thread_id.store(thread.as_raw_nonzero().get() as u32, Ordering::Relaxed);
        if let Some(cpu) = self.config.cpu {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu as usize);
            // The daemon has checked the number; a processor taken offline since leaves the thread unpinned.
            let _ = rustix::thread::sched_setaffinity(None, &set);
        }
        let (clock, mut sharing) = (Clock::system(), CoreSharing::default());
        let mut watch = Stopwatch::start();
        let spin_ns = u64::try_from(self.config.spin.as_nanos()).unwrap_or(u64::MAX);
        let mut empty_turns = 0u32;
        let mut idle_since_ns = 0;
        while !self.shared.stop.load(Ordering::Relaxed) {
            if self.shared.pending.load(Ordering::Relaxed) {
                self.run_commands();
                watch.leave_out();
                empty_turns = 0;
            }
            add(&self.shared.stats.loops, 1);
            let frames = self.engine.turn();
            watch.end_turn(frames != 0, &self.shared.stats.busy_time);
            if self.engine.spent() - self.spent_at_check >= TURN_COST {
                self.collect_wakes();
                sharing.between_turns(|| clock.now_ns());
                watch.leave_out();
            }
            if frames != 0 {
                self.shared.stats.note_busy_turn(frames);
                empty_turns = 0;
                continue;
            }
            std::hint::spin_loop();
            empty_turns = empty_turns.wrapping_add(1);
            if !empty_turns.is_multiple_of(TURNS_PER_CLOCK) {
                continue;
            }
            sharing.while_idle(|| clock.now_ns());
            watch.leave_out();
            if self.shared.stay_awake.load(Ordering::Relaxed) {
                continue;
            }
            let now_ns = clock.now_ns();
            if empty_turns == TURNS_PER_CLOCK {
                idle_since_ns = now_ns;
            }
            if now_ns - idle_since_ns >= spin_ns {
                self.sleep();
                watch.leave_out();
                empty_turns = 0;
            }
        }
    }

    fn run_commands(&mut self) {
        self.shared.pending.store(false, Ordering::Release);
        // `pending` is cleared first: a command sent after this point sets the flag again.
        while let Ok(command) = self.commands.try_recv() {
            command(&mut self.engine);
        }
        // A held worker does not touch rings that another process may be about to take over.
        while self.engine.is_held() && !self.shared.stop.load(Ordering::Acquire) {
            let Ok(command) = self.commands.recv() else { break };
            command(&mut self.engine);
        }
    }

    fn sleep(&mut self) {
        self.shared.bell.announce_sleep(&mut self.sleeper);
        if self.engine.fall_asleep(TOLD_AT_ONCE)
            && !self.shared.pending.load(Ordering::Acquire)
            && !self.shared.stop.load(Ordering::Acquire)
        {
            add(&self.shared.stats.sleeps, 1);
            self.shared.stats.sleeping.store(true, Ordering::Relaxed);
            // Failure of the wait (out of descriptors) turns sleeping into polling: slower, never wrong.
            let _ = self.wait();
            self.shared.stats.sleeping.store(false, Ordering::Relaxed);
        }
        self.engine.awake();
        self.shared.bell.awake();
    }

    fn wait(&mut self) -> rustix::io::Result<()> {
        // Sleep has an upper limit, because a test may stop a queue's clock.
        let lent = self.engine.has_lent().then_some(UNANNOUNCED_POLL);
        let due = self.engine.due_in().map(|due| due.min(UNANNOUNCED_POLL));
        self.take_wakes(lent.into_iter().chain(due).min())
    }

    /// Wakes the queues whose programs kicked while others had work.
    #[cold]
    fn collect_wakes(&mut self) {
        self.spent_at_check = self.engine.spent();
        if self.engine.has_unwatched() {
            // A failed poll is repeated next time.
            let _ = self.take_wakes(Some(Duration::ZERO));
        }
    }

    /// Waits for wake-ups, at most for `most`, and handles some.
    fn take_wakes(&mut self, most: Option<Duration>) -> rustix::io::Result<()> {
        let mut events: [epoll::Event; 32] =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 32];
        let set = self.engine.wake_set(self.shared.bell.descriptor())?;
        let ready = match epoll_wait(set, &mut events, most) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            result => result?,
        };
        for event in events.iter().take(ready) {
            let token = event.data.u64();
            if token != BELL && self.engine.woken(token) {
                add(&self.shared.stats.kicks_received, 1);
            }
        }
        Ok(())
    }
}

/// Adds without a locked instruction, since there is one writer.
fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}
