//! A session: ports open, threads running, loads started and stopped together, and the results.
//!
//! Each queue of each port has a thread, or the caller's own thread serves them all in turn. All loads of one start
//! begin at the same moment of one clock.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ringroad::{CoreSharing, OpenOptions, Port, PortInfo, Queue};
use ringroad_traffic::pacing::AWAKE_NS;

use crate::clock::{ClockReader, SessionClock};
use crate::control::Control;
use crate::error::SessionError;
use crate::lineup::line_up;
use crate::open_port::{KeptPorts, OpenPort};
use crate::plan::TestPlan;
use crate::queue_task::{QueueTask, TaskTurn};
use crate::report::SessionReport;
use crate::series::{Interval, Series};
use crate::shared::{FrameCount, Shared, lock};
use crate::totals::{ThreadTotals, TotalsRequest};

/// Default of the greatest number of frames per sync.
pub const DEFAULT_BURST_FRAMES: u32 = 256;
/// Time between the command and the common start, ns. Several times the delay after which a sleeping thread sees the
/// command, so that no thread begins late.
const START_AHEAD_NS: u64 = 20_000_000;
/// Time for which a thread stays awake after the last frame, ns.
const SPIN_NS: u64 = 200_000;
/// Time before a frame is due for which a thread keeps its core, ns.
const CLOSE_NS: u64 = 10_000;
/// Longest sleep, so that commands are seen soon.
const MAX_SLEEP: Duration = Duration::from_millis(5);
/// Longest time without progress while the other side takes the last frames, ns.
const FLUSH_NS: u64 = 1_000_000_000;

/// The threads that do the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Threads {
    /// A thread for each queue of each port.
    #[default]
    PerQueue,
    /// One thread for all queues.
    One,
    /// No thread: the caller calls [`TestSession::turn`], as simulations do.
    Caller,
}

/// Threads and clock of a session.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// The clock of all threads.
    pub clock: SessionClock,
    pub threads: Threads,
    /// Processors for the threads, in turn; the kernel chooses if the list is empty.
    pub cpus: Vec<usize>,
    /// Greatest number of frames per sync, 1 to 4096.
    pub burst: u32,
    /// Whether threads never sleep. They then have the least latency, and use a processor each.
    pub busy: bool,
    /// Whether a frame arrives when it comes to its interface, where the port's driver knows this time (AF_PACKET), and
    /// not when its thread sees it. Latency then has no part of this program's scheduling at the receiving side.
    pub port_times: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            clock: SessionClock::new(),
            threads: Threads::PerQueue,
            cpus: Vec::new(),
            burst: DEFAULT_BURST_FRAMES,
            busy: false,
            port_times: false,
        }
    }
}

/// Open ports, and threads that serve them.
#[derive(Debug)]
pub struct TestSession {
    plan: TestPlan,
    shared: Shared,
    control: Arc<Control>,
    inquiry: Arc<TotalsRequest>,
    clock: ClockReader,
    threads: Vec<JoinHandle<Worked>>,
    /// The tasks, if the caller does the work.
    own: Option<SessionThread>,
    started_ns: Option<u64>,
    series: Series,
}

/// A thread's tasks and clock.
#[derive(Debug)]
struct SessionThread {
    tasks: Vec<QueueTask>,
    clock: ClockReader,
    control: Arc<Control>,
    inquiry: Arc<TotalsRequest>,
    /// Number of the last answered request.
    answered: u64,
    busy: bool,
    idle_since_ns: Option<u64>,
    sharing: CoreSharing,
}

/// Result of a thread: its tasks with their queues, their counts, and the reason if it ended without an order.
#[derive(Debug)]
struct Worked {
    tasks: Vec<QueueTask>,
    totals: ThreadTotals,
    failure: Option<(usize, ringroad::PortError)>,
}

/// A session that has ended.
#[derive(Debug)]
pub struct SessionResult {
    /// Results of the session.
    pub report: SessionReport,
    /// Ports that stay open. Ports that failed are closed, and so are ports with slots that the other side has not
    /// taken: their frames would arrive late.
    pub ports: KeptPorts,
    /// Error if a port failed, or [`SessionError::Panic`].
    pub outcome: Result<(), SessionError>,
}

impl TestSession {
    /// Opens the plan's ports and prepares the start.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn open(plan: TestPlan, ports: &OpenOptions, options: &SessionOptions) -> Result<Self, SessionError> {
        Self::open_keeping(plan, &mut KeptPorts::default(), ports, options)
    }

    /// Opens a session as [`TestSession::open`] does, and reuses the ports of an earlier session that the plan names.
    /// The other ports of that session close. If a port cannot be opened, the open ports stay in `kept`. Pass the same
    /// clock as to the earlier session: its frames still in flight are recognised by their time, and counted
    /// separately.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn open_keeping(
        mut plan: TestPlan,
        kept: &mut KeptPorts,
        ports: &OpenOptions,
        options: &SessionOptions,
    ) -> Result<Self, SessionError> {
        plan.check()?;
        let opened = kept.take(&plan.ports, ports)?;
        Self::new(plan, opened, options, kept.next_wire_stream)
    }

    /// Prepares a session over ports that are open already, in the plan's order.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn over(
        mut plan: TestPlan,
        ports: Vec<Port>,
        options: &SessionOptions,
    ) -> Result<Self, SessionError> {
        plan.check()?;
        Self::new(plan, ports.into_iter().map(OpenPort::from).collect(), options, 0)
    }

    /// Prepares a session over open ports, for a plan that was checked.
    fn new(
        plan: TestPlan,
        ports: Vec<OpenPort>,
        options: &SessionOptions,
        first_wire_stream: u16,
    ) -> Result<Self, SessionError> {
        let mut clock = options.clock.reader();
        let control = Arc::new(Control::new(plan.loads.len()));
        let (tasks, shared) = line_up(&plan, ports, &control, options, clock.now_ns(), first_wire_stream)?;
        let inquiry = Arc::new(TotalsRequest::default());
        let worker = |tasks| SessionThread {
            tasks,
            clock: options.clock.reader(),
            control: Arc::clone(&control),
            inquiry: Arc::clone(&inquiry),
            answered: 0,
            busy: options.busy,
            idle_since_ns: None,
            sharing: CoreSharing::default(),
        };
        let (mut threads, mut own) = (Vec::new(), None);
        let parts: Vec<Vec<QueueTask>> = match options.threads {
            Threads::PerQueue => tasks.into_iter().map(|task| vec![task]).collect(),
            Threads::One => vec![tasks],
            Threads::Caller => {
                own = Some(worker(tasks));
                Vec::new()
            }
        };
        for (index, tasks) in parts.into_iter().enumerate() {
            let cpu = options.cpus.get(index % options.cpus.len().max(1)).copied();
            let thread = spawn(worker(tasks), index, cpu);
            match thread {
                Ok(thread) => threads.push(thread),
                Err(source) => {
                    control.end();
                    return Err(SessionError::Thread { index, source });
                }
            }
        }
        Ok(Self {
            plan,
            shared,
            control,
            inquiry,
            clock,
            threads,
            own,
            started_ns: None,
            series: Series::default(),
        })
    }

    /// Properties of the open ports, in the plan's order.
    #[must_use]
    pub fn ports(&self) -> &[PortInfo] {
        &self.shared.info
    }

    /// The plan, with every load named.
    #[must_use]
    pub fn plan(&self) -> &TestPlan {
        &self.plan
    }

    /// Starts all loads at one moment.
    pub fn start(&mut self) {
        let all: Vec<usize> = (0..self.plan.loads.len()).collect();
        self.start_loads(&all);
    }

    /// Starts the loads with these indexes at one moment. Loads that are sending begin anew.
    pub fn start_loads(&mut self, loads: &[usize]) {
        let now_ns = self.clock.now_ns();
        // There are no threads to wait for if the caller's own thread does the work.
        let start_ns = if self.own.is_some() { now_ns } else { now_ns + START_AHEAD_NS };
        for load in loads.iter().copied().filter(|load| *load < self.plan.loads.len()) {
            self.control.start(load, self.shared.lanes_of(load), start_ns);
        }
        self.control.publish();
        self.started_ns.get_or_insert(start_ns);
    }

    /// Stops all loads.
    pub fn stop(&mut self) {
        let all: Vec<usize> = (0..self.plan.loads.len()).collect();
        self.stop_loads(&all);
    }

    /// Stops the loads with these indexes.
    pub fn stop_loads(&mut self, loads: &[usize]) {
        for load in loads.iter().copied().filter(|load| *load < self.plan.loads.len()) {
            self.control.stop(load);
        }
        self.control.publish();
    }

    /// Waits until no load is sending, `limit` at most. Returns whether no load is sending. A thread that failed ends
    /// the wait, too.
    pub fn wait_sent(&self, limit: Duration) -> bool {
        self.control.wait_sent(limit)
    }

    /// Whether the load with this index is sending, or due to send. False once a thread failed.
    #[must_use]
    pub fn is_sending(&self, load: usize) -> bool {
        self.control.is_sending(load)
    }

    /// Whether a port failed: [`TestSession::finish`] returns the port and the reason.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.control.is_ended()
    }

    /// Does a turn of every queue in the caller's thread if the session has [`Threads::Caller`]. Returns whether frames
    /// moved.
    ///
    /// # Errors
    /// [`SessionError::Port`].
    pub fn turn(&mut self) -> Result<bool, SessionError> {
        let Some(worker) = &mut self.own else { return Ok(false) };
        worker.turn().map(|turn| turn.busy).map_err(|failure| failed(&self.shared, failure))
    }

    /// Frames that a load has sent so far.
    #[must_use]
    pub fn sent(&self, load: usize) -> FrameCount {
        self.shared.sent(load)
    }

    /// All frames that a port has received so far.
    #[must_use]
    pub fn received(&self, port: usize) -> FrameCount {
        self.shared.received(port)
    }

    /// Frames sent and received since the last call, by load and port. The report contains them as well.
    pub fn interval(&mut self) -> &Interval {
        let now_ns = self.clock.now_ns();
        self.series.next(&self.plan, &self.shared, self.started_ns.unwrap_or(now_ns), now_ns)
    }

    /// Time since the first start, ns; 0 before.
    pub fn elapsed_ns(&mut self) -> u64 {
        let now_ns = self.clock.now_ns();
        self.started_ns.map_or(0, |start_ns| now_ns.saturating_sub(start_ns))
    }

    /// Counts of a port's meter so far, while the session runs. The meter is copied under its lock, which is too slow
    /// for every second at full speed; use [`TestSession::interval`] for that.
    #[must_use]
    pub fn meter(&self, port: usize) -> ringroad_traffic::meter::MeterReport {
        lock(&self.shared.meters[port]).report()
    }

    /// Indexes of the load and the stream that have this number in signatures.
    #[must_use]
    pub fn wire_stream(&self, number: u16) -> Option<(usize, usize)> {
        let wire = self.shared.wire_streams.get(self.shared.wire_numbers.index(number)?)?;
        Some((wire.load, wire.stream))
    }

    /// Results so far, without the time series. They are exact while no load is sending, apart from frames still in
    /// flight. Sleeping threads take some milliseconds to reply. `None` if a thread ended: [`TestSession::end`] returns
    /// the reason.
    pub fn report(&mut self) -> Option<SessionReport> {
        let counters = match &mut self.own {
            Some(worker) => vec![worker.totals()],
            None => {
                let ended = || self.threads.iter().any(JoinHandle::is_finished);
                self.inquiry.ask(self.threads.len(), &ended)?
            }
        };
        Some(SessionReport::new(&self.plan, &self.shared, &counters, Vec::new()))
    }

    /// Ends the session as [`TestSession::end`] does, and closes the ports.
    ///
    /// # Errors
    /// The error of a port that failed, or [`SessionError::Panic`]. The report up to then comes with the error.
    pub fn finish(self, drain: Duration) -> (SessionReport, Result<(), SessionError>) {
        let SessionResult { report, ports: _, outcome } = self.end(drain);
        (report, outcome)
    }

    /// Stops all loads, waits `drain` for the last frames, ends the threads, reports, and leaves the ports open.
    #[must_use]
    pub fn end(mut self, drain: Duration) -> SessionResult {
        self.stop();
        self.control.wait_sent(MAX_SLEEP * 20);
        let mut workeds = Vec::new();
        let mut outcome = Ok(());
        if let Some(mut worker) = self.own.take() {
            // Under a manual clock there is no time to wait for: turns go on until no frame moves.
            let drained = loop {
                match worker.turn() {
                    Ok(turn) if turn.busy => {}
                    turned => break turned.err(),
                }
            };
            workeds.push(worker.end(drained));
        } else {
            self.drain(drain);
            self.control.end();
            for thread in self.threads.drain(..) {
                match thread.join() {
                    Ok(worked) => workeds.push(worked),
                    Err(_) => outcome = Err(SessionError::Panic),
                }
            }
        }
        let mut queues: Vec<Vec<Queue>> = self.shared.info.iter().map(|_| Vec::new()).collect();
        let mut counters = Vec::with_capacity(workeds.len());
        for worked in workeds {
            let lost = worked.failure.as_ref().map(|(port, _)| *port);
            if let Some(failure) = worked.failure {
                outcome = Err(failed(&self.shared, failure));
            }
            for (task, totals) in worked.tasks.into_iter().zip(&worked.totals.tasks) {
                if lost != Some(task.port) && totals.unsent_slots == 0 {
                    queues[task.port].push(task.queue);
                }
            }
            counters.push(worked.totals);
        }
        let intervals = std::mem::take(&mut self.series.intervals);
        let report = SessionReport::new(&self.plan, &self.shared, &counters, intervals);
        let whole = |(port, queues): (usize, Vec<Queue>)| {
            let is_whole = queues.len() == self.shared.queues_of(port);
            let info = self.shared.info[port].clone();
            is_whole.then(|| (self.plan.ports[port].name.clone(), OpenPort { info, queues }))
        };
        let ports = KeptPorts {
            ports: queues.into_iter().enumerate().filter_map(whole).collect(),
            next_wire_stream: self.shared.wire_numbers.next(),
        };
        SessionResult { report, ports, outcome }
    }

    /// Waits for the drain time, unless a port fails.
    fn drain(&mut self, drain: Duration) {
        let until_ns = self.clock.now_ns().saturating_add(drain.as_nanos().try_into().unwrap_or(u64::MAX));
        loop {
            let now_ns = self.clock.now_ns();
            if now_ns >= until_ns || self.control.is_ended() {
                return;
            }
            std::thread::sleep(Duration::from_nanos(until_ns - now_ns).min(Duration::from_millis(50)));
        }
    }
}

impl Drop for TestSession {
    fn drop(&mut self) {
        self.control.end();
        for thread in self.threads.drain(..) {
            // A thread that panicked has written the panic to standard error.
            let _ = thread.join();
        }
    }
}

/// The error of a port that failed, with the port's name.
fn failed(shared: &Shared, (port, source): (usize, ringroad::PortError)) -> SessionError {
    SessionError::Port { port: shared.info[port].name.clone(), source }
}

/// Starts a thread that is pinned before it serves a queue.
fn spawn(worker: SessionThread, index: usize, cpu: Option<usize>) -> std::io::Result<JoinHandle<Worked>> {
    let (pinned, outcome) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(format!("traffic-{index}")).spawn(move || {
        let result = cpu.map_or(Ok(()), crate::affinity::pin);
        let failed = result.is_err();
        // The receiving end still exists, because it waits for this message.
        let _ = pinned.send(result);
        if failed { worker.end(None) } else { worker.run() }
    })?;
    outcome.recv().unwrap_or(Ok(()))?;
    Ok(thread)
}

impl SessionThread {
    fn run(mut self) -> Worked {
        loop {
            let ended = match self.turn() {
                Ok(_) if self.control.is_ended() => return self.flushed(),
                Ok(turn) => {
                    self.answer();
                    self.pause(turn)
                }
                Err(failure) => Err(failure),
            };
            if let Err(failure) = ended {
                self.control.end();
                return self.end(Some(failure));
            }
        }
    }

    /// Reports the thread's counts, if the session requested them.
    #[inline]
    fn answer(&mut self) {
        let number = self.inquiry.number();
        if number != self.answered {
            self.answered = number;
            let totals = self.totals();
            self.inquiry.answer(number, totals);
        }
    }

    #[cold]
    fn totals(&mut self) -> ThreadTotals {
        ThreadTotals::new(&mut self.tasks, self.clock.error())
    }

    /// Does a turn of every task.
    #[inline]
    fn turn(&mut self) -> Result<TaskTurn, (usize, ringroad::PortError)> {
        let mut all = TaskTurn { busy: false, next_due_ns: None, blocked: false };
        for task in &mut self.tasks {
            let turn = task.turn(&mut self.clock).map_err(|error| (task.port, error))?;
            all.busy |= turn.busy;
            all.blocked |= turn.blocked;
            all.next_due_ns = all.next_due_ns.into_iter().chain(turn.next_due_ns).min();
        }
        Ok(all)
    }

    /// Continues, spins, or sleeps between two turns.
    fn pause(&mut self, turn: TaskTurn) -> Result<(), (usize, ringroad::PortError)> {
        let Self { sharing, clock, .. } = self;
        sharing.between_turns(|| clock.now_ns());
        if turn.busy || self.busy {
            self.idle_since_ns = None;
            return Ok(());
        }
        let now_ns = clock.now_ns();
        let idle_ns = now_ns - *self.idle_since_ns.get_or_insert(now_ns);
        let due_ns = turn.next_due_ns.filter(|_| !turn.blocked).unwrap_or(u64::MAX);
        let until_due_ns = due_ns.saturating_sub(now_ns);
        if idle_ns < SPIN_NS || until_due_ns <= AWAKE_NS {
            // An additional offer of the core this close to the time of a frame would delay the frame.
            if until_due_ns > CLOSE_NS {
                sharing.while_idle(|| clock.now_ns());
            }
            std::hint::spin_loop();
            return Ok(());
        }
        let limit = MAX_SLEEP.min(Duration::from_nanos(until_due_ns - AWAKE_NS));
        match self.tasks.as_mut_slice() {
            [task] => task.rest(turn.blocked, limit).map_err(|error| (task.port, error)),
            // A short sleep costs less than arming the wake-ups of several queues.
            _ => {
                std::thread::sleep(limit.min(Duration::from_micros(50)));
                Ok(())
            }
        }
    }

    /// Serves the queues until the other side has taken every slot, or has taken none for [`FLUSH_NS`].
    fn flushed(mut self) -> Worked {
        let mut fewest = u32::MAX;
        let mut progress_ns = self.clock.now_ns();
        loop {
            if let Err(failure) = self.turn() {
                return self.end(Some(failure));
            }
            let left = self.tasks.iter_mut().map(QueueTask::unsent_slots).sum();
            let now_ns = self.clock.now_ns();
            if left < fewest {
                (fewest, progress_ns) = (left, now_ns);
            }
            if left == 0 || now_ns - progress_ns > FLUSH_NS {
                return self.end(None);
            }
            std::hint::spin_loop();
        }
    }

    fn end(mut self, failure: Option<(usize, ringroad::PortError)>) -> Worked {
        let now_ns = self.clock.now_ns();
        for task in &mut self.tasks {
            task.sender.finish(now_ns);
        }
        Worked { totals: self.totals(), tasks: self.tasks, failure }
    }
}
