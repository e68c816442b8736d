//! A port for Python.

use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use ringroad::{Interest, OpenOptions, ProcessMark, Queue};

use crate::batch::{RxBatch, TxBatch};
use crate::errors::{self, PortBusy, PortGone, of_opening, of_port};

/// Maximum time of a wait before the interpreter checks for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of frames of a long list after which they are published to the other side.
const BURST: usize = 256;

/// Slots that a port has lent to a batch.
#[derive(Debug)]
pub(crate) struct Lent {
    /// Whether the batch is over.
    pub(crate) is_over: Arc<AtomicBool>,
    pub(crate) queue: usize,
    /// Number of slots of a batch of received frames.
    pub(crate) slots: u32,
    /// Number of the port's reconnections at the time of lending: after another one the port has other slots.
    pub(crate) generation: u64,
}

/// A port behind its lock.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) port: ringroad::Port,
    pub(crate) received: Option<Lent>,
    pub(crate) to_send: Option<Lent>,
    /// Queue that is read first next time.
    turn: usize,
    frame: Vec<u8>,
}

impl Opened {
    pub(crate) fn generation(&self) -> u64 {
        self.port.reconnections().count
    }

    pub(crate) fn queue(&mut self, number: usize) -> PyResult<&mut Queue> {
        let count = self.port.queues().len();
        let none = || PyIndexError::new_err(format!("there is no queue {number}: the port has {count}"));
        self.port.queues().get_mut(number).ok_or_else(none)
    }

    /// Takes back the slots of batches that are over.
    fn settle(&mut self) {
        let generation = self.generation();
        if let Some(lent) = self.received.take_if(|lent| lent.is_over.load(Ordering::Acquire))
            && lent.generation == generation
            && let Some(queue) = self.port.queues().get_mut(lent.queue)
        {
            queue.rx().release(lent.slots);
        }
        self.to_send.take_if(|lent| lent.is_over.load(Ordering::Acquire));
    }

    fn expect_no_received(&self) -> PyResult<()> {
        let message = "a batch of received frames is open: release it first";
        if self.received.is_some() { Err(PortBusy::new_err(message)) } else { Ok(()) }
    }

    fn expect_none_to_send(&self) -> PyResult<()> {
        let message = "a batch of frames to send is open: send it first";
        if self.to_send.is_some() { Err(PortBusy::new_err(message)) } else { Ok(()) }
    }

    /// Returns the next queue with a whole frame, after a check of all.
    fn readable(&mut self) -> PyResult<Option<usize>> {
        let count = self.port.queues().len();
        for step in 0..count {
            let number = (self.turn + step) % count;
            let rx = self.queue(number)?.rx();
            if rx.available() == 0 || rx.frame_slots(0) == 0 {
                rx.sync().map_err(of_port)?;
            }
            if rx.available() > 0 && rx.frame_slots(0) > 0 {
                self.turn = number + 1;
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// Waits with the interpreter released until the port is ready or the time is over. Returns whether the port is
    /// ready.
    fn wait(&mut self, py: Python<'_>, interest: Interest, until: Option<Instant>) -> PyResult<bool> {
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let slice = left.map_or(SIGNAL_INTERVAL, |left| left.min(SIGNAL_INTERVAL));
            let port = &mut self.port;
            if py.detach(|| port.wait(interest, Some(slice))).map_err(of_port)? {
                return Ok(true);
            }
            py.check_signals()?;
            if left.is_some_and(|left| left <= slice) {
                return Ok(false);
            }
        }
    }

    /// Waits for a whole frame. Returns its queue, or `None` if the time is over.
    pub(crate) fn await_frame(&mut self, py: Python<'_>, until: Option<Instant>) -> PyResult<Option<usize>> {
        self.expect_no_received()?;
        loop {
            if let Some(number) = self.readable()? {
                return Ok(Some(number));
            }
            if !self.wait(py, Interest::Rx, until)? {
                return Ok(None);
            }
        }
    }

    /// Waits for free slots in a queue. Returns their number.
    pub(crate) fn await_room(
        &mut self,
        py: Python<'_>,
        number: usize,
        until: Option<Instant>,
    ) -> PyResult<u32> {
        self.expect_none_to_send()?;
        loop {
            let tx = self.queue(number)?.tx();
            if tx.available() == 0 {
                tx.sync().map_err(of_port)?;
            }
            let room = tx.available();
            if room > 0 || !self.wait(py, Interest::Tx, until)? {
                return Ok(room);
            }
        }
    }

    /// Puts a frame into a queue. Returns `false` if the time is over.
    fn push(
        &mut self,
        py: Python<'_>,
        number: usize,
        frame: &[u8],
        until: Option<Instant>,
    ) -> PyResult<bool> {
        loop {
            let tx = self.queue(number)?.tx();
            if tx.send(frame).map_err(of_port)? {
                return Ok(true);
            }
            tx.sync().map_err(of_port)?;
            if tx.send(frame).map_err(of_port)? {
                return Ok(true);
            }
            if !self.wait(py, Interest::Tx, until)? {
                return Ok(false);
            }
        }
    }

    fn receive<'py>(&mut self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyBytes>> {
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        self.queue(number)?.rx().receive(&mut frame);
        let bytes = PyBytes::new(py, &frame);
        self.frame = frame;
        Ok(bytes)
    }
}

/// State that a port shares with its batches. `None` once the port is closed.
#[derive(Debug)]
pub(crate) struct SharedPort {
    opened: Mutex<Option<Opened>>,
    /// Process that opened the port.
    process: ProcessMark,
}

impl SharedPort {
    /// Locks the port for this thread. Fails if another thread uses it, or if its process forked this one.
    pub(crate) fn lock(&self) -> PyResult<MutexGuard<'_, Option<Opened>>> {
        // In a child a thread that does not run there may hold the lock.
        self.expect_own_process()?;
        match self.opened.try_lock() {
            Ok(mut opened) => {
                if let Some(opened) = &mut *opened {
                    opened.settle();
                }
                Ok(opened)
            }
            Err(TryLockError::WouldBlock) => Err(PortBusy::new_err("another thread uses the port")),
            Err(TryLockError::Poisoned(_)) => Err(PortGone::new_err("the port failed; open it again")),
        }
    }

    /// Fails in a child of the process that opened the port.
    pub(crate) fn expect_own_process(&self) -> PyResult<()> {
        errors::expect_own_process(self.process)
    }
}

pub(crate) fn closed() -> PyErr {
    PortGone::new_err("the port is closed")
}

/// Time at which a timeout of this many seconds expires; `None` is no limit.
pub(crate) fn end_of(timeout: Option<f64>) -> PyResult<Option<Instant>> {
    let Some(seconds) = timeout else { return Ok(None) };
    let time = Duration::try_from_secs_f64(if seconds < 0.0 { 0.0 } else { seconds });
    let time = time.map_err(|error| PyValueError::new_err(format!("timeout {seconds}: {error}")))?;
    Ok(Instant::now().checked_add(time))
}

fn interest_of(interest: &str) -> PyResult<Interest> {
    match interest {
        "rx" => Ok(Interest::Rx),
        "tx" => Ok(Interest::Tx),
        "both" => Ok(Interest::Both),
        other => Err(PyValueError::new_err(format!("interest is 'rx', 'tx' or 'both', not {other:?}"))),
    }
}

/// Calls a function with the bytes of one object, such as `bytes`, `bytearray`, `memoryview` or an array. Returns
/// `None` if the object has no bytes.
fn with_bytes<T>(
    object: &Bound<'_, PyAny>,
    use_bytes: impl FnOnce(&[u8]) -> PyResult<T>,
) -> PyResult<Option<T>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return use_bytes(bytes.as_bytes()).map(Some);
    }
    let Ok(buffer) = PyBuffer::<u8>::get(object) else { return Ok(None) };
    // The buffer is copied once and then read, because others may write it meanwhile.
    use_bytes(&buffer.to_vec(object.py())?).map(Some)
}

/// A port. See `ringroad.Port` in the documentation.
#[pyclass(frozen, subclass, module = "ringroad")]
#[derive(Debug)]
pub(crate) struct Port {
    shared: Arc<SharedPort>,
    #[pyo3(get)]
    name: String,
    #[pyo3(get)]
    driver: String,
    #[pyo3(get)]
    mode: String,
}

impl Port {
    fn with<T>(&self, act: impl FnOnce(&mut Opened) -> PyResult<T>) -> PyResult<T> {
        act(self.shared.lock()?.as_mut().ok_or_else(closed)?)
    }
}

#[pymethods]
impl Port {
    #[new]
    #[pyo3(signature = (name, *, queues = None, slots = None, buffer_bytes = None, socket = None,
                        reconnect = false, start = true))]
    #[expect(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        name: &str,
        queues: Option<u16>,
        slots: Option<u32>,
        buffer_bytes: Option<u32>,
        socket: Option<PathBuf>,
        reconnect: bool,
        start: bool,
    ) -> PyResult<Self> {
        let options = OpenOptions {
            queues,
            slots,
            buffer_bytes,
            socket,
            reconnect,
            no_start: !start,
            ..OpenOptions::default()
        };
        let opened = py.detach(|| ringroad::Port::open_with(name, &options));
        let port = opened.map_err(|error| of_opening(py, error))?;
        let info = port.info().clone();
        let opened = Opened { port, received: None, to_send: None, turn: 0, frame: Vec::new() };
        let shared = Arc::new(SharedPort { opened: Mutex::new(Some(opened)), process: ProcessMark::here() });
        Ok(Self { shared, name: info.name, driver: info.driver, mode: info.mode })
    }

    #[getter]
    fn queues(&self) -> PyResult<usize> {
        self.with(|opened| Ok(opened.port.queues().len()))
    }

    #[getter]
    fn buffer_bytes(&self) -> PyResult<u32> {
        self.with(|opened| Ok(opened.port.tx().buffer_bytes()))
    }

    #[getter]
    fn max_frame_bytes(&self) -> PyResult<usize> {
        self.with(|opened| Ok(opened.port.tx().max_frame_bytes()))
    }

    #[getter]
    fn pending(&self) -> PyResult<u32> {
        self.with(|opened| Ok(opened.port.queues().iter_mut().map(|queue| queue.tx().pending()).sum()))
    }

    #[getter]
    fn reconnections(&self) -> PyResult<u64> {
        self.with(|opened| Ok(opened.generation()))
    }

    /// Sends a frame, or each of an iterable. Returns the number of frames sent before the time was over.
    #[pyo3(signature = (frames, *, timeout = None, queue = 0))]
    fn send(
        &self,
        py: Python<'_>,
        frames: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        queue: usize,
    ) -> PyResult<usize> {
        let until = end_of(timeout)?;
        self.with(|opened| {
            opened.expect_none_to_send()?;
            let mut sent = 0;
            if let Some(pushed) = with_bytes(frames, |frame| opened.push(py, queue, frame, until))? {
                sent = usize::from(pushed);
            } else {
                for frame in frames.try_iter()? {
                    let frame = frame?;
                    let pushed = with_bytes(&frame, |bytes| opened.push(py, queue, bytes, until))?;
                    let no_frame = || PyTypeError::new_err(format!("a frame is bytes-like, not {frame:?}"));
                    if !pushed.ok_or_else(no_frame)? {
                        break;
                    }
                    sent += 1;
                    if sent % BURST == 0 {
                        opened.queue(queue)?.tx().sync().map_err(of_port)?;
                    }
                }
            }
            opened.queue(queue)?.tx().sync().map_err(of_port)?;
            Ok(sent)
        })
    }

    /// Returns the next frame, as bytes; `None` if the time is over.
    #[pyo3(signature = (timeout = None))]
    fn recv<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let until = end_of(timeout)?;
        self.with(|opened| {
            let queue = opened.await_frame(py, until)?;
            queue.map(|queue| opened.receive(py, queue)).transpose()
        })
    }

    /// Returns the available frames, at most `most`, as a list of bytes. Waits for the first.
    #[pyo3(signature = (most = 256, *, timeout = None))]
    fn recv_many<'py>(
        &self,
        py: Python<'py>,
        most: usize,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyList>> {
        let until = end_of(timeout)?;
        self.with(|opened| {
            let frames = PyList::empty(py);
            let mut queue = opened.await_frame(py, until)?;
            while let Some(number) = queue.filter(|_| frames.len() < most) {
                frames.append(opened.receive(py, number)?)?;
                queue = opened.readable()?;
            }
            Ok(frames)
        })
    }

    /// Returns a batch of the available frames, in place. Waits for the first.
    #[pyo3(signature = (most = 256, *, timeout = None))]
    fn recv_batch(&self, py: Python<'_>, most: u32, timeout: Option<f64>) -> PyResult<RxBatch> {
        let until = end_of(timeout)?;
        self.with(|opened| match opened.await_frame(py, until)? {
            Some(queue) => RxBatch::lend(&self.shared, opened, queue, most),
            None => Ok(RxBatch::empty()),
        })
    }

    /// Returns a batch of free buffers, to be written and sent. Waits for free slots.
    #[pyo3(signature = (most = 256, *, timeout = None, queue = 0))]
    fn tx_batch(&self, py: Python<'_>, most: u32, timeout: Option<f64>, queue: usize) -> PyResult<TxBatch> {
        let until = end_of(timeout)?;
        self.with(|opened| {
            let room = opened.await_room(py, queue, until)?;
            TxBatch::lend(&self.shared, opened, queue, most.min(room))
        })
    }

    /// Waits until frames are available ('rx'), slots are free ('tx'), or either ('both'). Returns whether that is so.
    #[pyo3(signature = (interest = "rx", timeout = None))]
    fn wait(&self, py: Python<'_>, interest: &str, timeout: Option<f64>) -> PyResult<bool> {
        let (interest, until) = (interest_of(interest)?, end_of(timeout)?);
        self.with(|opened| opened.wait(py, interest, until))
    }

    /// Publishes sent frames to the other side, and takes received ones.
    fn sync(&self) -> PyResult<()> {
        self.with(|opened| opened.port.sync().map_err(of_port))
    }

    /// Makes `fileno()` readable when the port becomes ready. Returns `True`, and arms nothing, if it is ready now.
    #[pyo3(signature = (interest = "rx"))]
    fn arm(&self, interest: &str) -> PyResult<bool> {
        let interest = interest_of(interest)?;
        self.with(|opened| opened.port.arm(interest).map_err(of_port))
    }

    /// Undoes `arm`.
    fn disarm(&self) -> PyResult<()> {
        self.with(|opened| opened.port.disarm().map_err(of_port))
    }

    /// Descriptor for event loops.
    fn fileno(&self) -> PyResult<i32> {
        self.with(|opened| Ok(opened.port.as_fd().as_raw_fd()))
    }

    /// Closes the port. Frames sent before are still forwarded. A closed port stays closed. In a child of the process
    /// that opened the port, there is nothing to close.
    fn close(&self) -> PyResult<()> {
        if !self.shared.process.is_here() {
            return Ok(());
        }
        let opened = self.shared.lock()?.take();
        drop(opened);
        Ok(())
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(!self.shared.process.is_here() || self.shared.lock()?.is_none())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_details))]
    fn __exit__(&self, _details: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close()
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.recv(py, None)
    }

    fn __repr__(&self) -> String {
        format!("<ringroad.Port {} ({}, {})>", self.name, self.driver, self.mode)
    }
}
