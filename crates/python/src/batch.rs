//! Batches: slots of a ring that are lent to Python, with the frames in place.
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PyTuple};
use ringroad::{Mapping, SharedBytes};

use crate::errors::{FrameTooLong, PortGone, of_port};
use crate::port::{Lent, Opened, SharedPort, closed};
use crate::view::{MemoryOwner, View};

/// Buffers at equal distances.
#[derive(Debug, Clone)]
struct Run {
    start: *mut u8,
    stride: isize,
    count: usize,
    buffer_bytes: usize,
    mapping: Mapping,
}

// SAFETY: a run only names memory that other processes write as well; Python decides how the memory is used.
unsafe impl Send for Run {}
// SAFETY: a run never changes, and the memory is shared with other processes anyway.
unsafe impl Sync for Run {}

impl Run {
    /// Makes the longest run of buffers that begins with the first. `buffer` returns the address and the bytes of a
    /// buffer by its index.
    fn new(most: u32, mapping: Mapping, mut buffer: impl FnMut(u32) -> (*mut u8, usize)) -> Self {
        let mut run = Self { start: std::ptr::null_mut(), stride: 0, count: 0, buffer_bytes: 0, mapping };
        for index in 0..most {
            let (address, bytes) = buffer(index);
            // A buffer has no bytes if the other side named it wrongly.
            if bytes == 0 {
                break;
            }
            let distance = (address as isize).wrapping_sub(run.start as isize);
            match index {
                0 => (run.start, run.buffer_bytes) = (address, bytes),
                1 => run.stride = distance,
                _ if distance != run.stride * index as isize => break,
                _ => {}
            }
            run.count += 1;
        }
        run
    }

    fn buffers(&self, is_readonly: bool) -> View {
        let keeper = Arc::new(self.mapping.clone());
        let shape = (self.count, self.buffer_bytes);
        // SAFETY: each buffer of the run was checked, and the mapping keeps them mapped.
        unsafe { View::of_buffers(keeper, self.start, shape, self.stride, is_readonly) }
    }

    /// Returns the first `bytes` bytes of a buffer, or the whole buffer if it is shorter.
    fn frame(&self, number: usize, bytes: usize, is_readonly: bool) -> View {
        let keeper = Arc::new(self.mapping.clone());
        let start = self.start.wrapping_offset(self.stride * number as isize);
        // SAFETY: each buffer of the run was checked, and the mapping keeps them mapped.
        unsafe { View::of_frame(keeper, start, bytes.min(self.buffer_bytes), is_readonly) }
    }
}

/// Address of a buffer, and its size, bytes.
fn extent(buffer: &SharedBytes<'_>) -> (*mut u8, usize) {
    (buffer.as_ptr(), buffer.len())
}

fn checked_index(index: isize, count: usize) -> PyResult<usize> {
    let index = if index < 0 { index.wrapping_add(count as isize) } else { index };
    let index = usize::try_from(index).ok().filter(|&index| index < count);
    index.ok_or_else(|| PyIndexError::new_err(format!("the batch has {count} frames")))
}

fn memoryview<'py>(py: Python<'py>, view: View) -> PyResult<Bound<'py, PyMemoryView>> {
    PyMemoryView::from(Bound::new(py, view)?.as_any())
}

/// Frames of a batch.
#[derive(Debug)]
enum Frames {
    None,
    /// Frames in the ring.
    Lent(Run),
    /// A copy of one frame that was in several buffers.
    Joined(Arc<[u8]>),
}

/// Received frames, in their buffers until the batch is released.
#[pyclass(frozen, module = "ringroad")]
#[derive(Debug)]
pub(crate) struct RxBatch {
    frames: Frames,
    lengths: Arc<[AtomicU32]>,
    times: Arc<[u64]>,
    shared: Option<Arc<SharedPort>>,
    is_over: Arc<AtomicBool>,
}

impl RxBatch {
    pub(crate) fn empty() -> Self {
        let is_over = Arc::new(AtomicBool::new(true));
        Self { frames: Frames::None, lengths: Arc::default(), times: Arc::default(), shared: None, is_over }
    }

    /// Lends up to `most` frames of a queue, which has at least one.
    pub(crate) fn lend(
        shared: &Arc<SharedPort>,
        opened: &mut Opened,
        queue: usize,
        most: u32,
    ) -> PyResult<Self> {
        let generation = opened.generation();
        let rx = opened.queue(queue)?.rx();
        let lengths = |lengths: &[u32]| lengths.iter().map(|&length| AtomicU32::new(length)).collect();
        let shared = Some(Arc::clone(shared));
        let of_first = rx.frame_slots(0);
        let whole = (0..most.min(rx.available())).take_while(|&offset| rx.frame_slots(offset) == 1);
        let whole = whole.count() as u32;
        let run = Run::new(whole, rx.mapping(), |offset| extent(&rx.buffer(offset)));
        if run.count == 0 {
            let times = Arc::new([rx.timestamp_ns(0)]);
            let mut frame = Vec::new();
            if of_first > 0 && most > 0 {
                rx.receive(&mut frame);
            }
            let lengths = lengths(&[frame.len() as u32]);
            let is_over = Arc::new(AtomicBool::new(false));
            return Ok(Self { frames: Frames::Joined(frame.into()), lengths, times, shared, is_over });
        }
        let slots = run.count as u32;
        let bytes: Vec<u32> = (0..slots).map(|offset| rx.frame(offset).len() as u32).collect();
        let times = (0..slots).map(|offset| rx.timestamp_ns(offset)).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        opened.received = Some(Lent { is_over: Arc::clone(&is_over), queue, slots, generation });
        Ok(Self { frames: Frames::Lent(run), lengths: lengths(&bytes), times, shared, is_over })
    }

    fn expect_open(&self) -> PyResult<()> {
        self.shared.as_ref().map_or(Ok(()), |shared| shared.expect_own_process())?;
        let is_over = self.shared.is_some() && self.is_over.load(Ordering::Acquire);
        if is_over { Err(PyValueError::new_err("the batch was released")) } else { Ok(()) }
    }
}

#[pymethods]
impl RxBatch {
    fn __len__(&self) -> usize {
        self.lengths.len()
    }

    /// Returns a frame, in place.
    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyMemoryView>> {
        self.expect_open()?;
        let index = checked_index(index, self.lengths.len())?;
        let bytes = self.lengths.get(index).map_or(0, |length| length.load(Ordering::Relaxed)) as usize;
        let view = match &self.frames {
            Frames::Lent(run) => run.frame(index, bytes, true),
            Frames::Joined(frame) => {
                let start = frame.as_ptr().cast_mut();
                // SAFETY: the keeper holds the bytes of the frame.
                unsafe { View::of_frame(Arc::new(Arc::clone(frame)), start, bytes, true) }
            }
            Frames::None => return Err(PyIndexError::new_err("the batch has 0 frames")),
        };
        memoryview(py, view)
    }

    /// Returns all buffers: a row for each frame, with the number of valid bytes in `lengths`.
    #[getter]
    fn buffers(&self) -> PyResult<View> {
        self.expect_open()?;
        let (keeper, start, shape): (MemoryOwner, _, _) = match &self.frames {
            Frames::Lent(run) => return Ok(run.buffers(true)),
            Frames::Joined(frame) => {
                (Arc::new(Arc::clone(frame)), frame.as_ptr().cast_mut(), (1, frame.len()))
            }
            Frames::None => (Arc::new(()), std::ptr::dangling_mut(), (0, 0)),
        };
        // SAFETY: the keeper holds the bytes of the frame, or there are none.
        Ok(unsafe { View::of_buffers(keeper, start, shape, shape.1 as isize, true) })
    }

    /// Length of each frame, bytes (uint32).
    #[getter]
    fn lengths(&self) -> View {
        View::of_lengths(&self.lengths, true)
    }

    /// Time at which each frame came to its interface, ns since the Unix epoch, or 0 if the driver does not know it
    /// (uint64).
    #[getter]
    fn timestamps(&self) -> View {
        View::of_times(&self.times)
    }

    /// Gives the buffers back. Views of them show what others write there from now on.
    fn release(&self) {
        self.is_over.store(true, Ordering::Release);
        // If another thread uses the port, its next use takes the buffers back.
        if let Some(shared) = &self.shared {
            drop(shared.lock());
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_details))]
    fn __exit__(&self, _details: &Bound<'_, PyTuple>) {
        self.release();
    }

    fn __repr__(&self) -> String {
        format!("<ringroad.RxBatch of {} frames>", self.lengths.len())
    }
}

impl Drop for RxBatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// Free buffers of a transmit ring, to be written and sent.
#[pyclass(frozen, module = "ringroad")]
#[derive(Debug)]
pub(crate) struct TxBatch {
    run: Run,
    lengths: Arc<[AtomicU32]>,
    shared: Arc<SharedPort>,
    queue: usize,
    generation: u64,
    is_over: Arc<AtomicBool>,
}

impl TxBatch {
    /// Lends up to `most` buffers of a queue, which has at least as many.
    pub(crate) fn lend(
        shared: &Arc<SharedPort>,
        opened: &mut Opened,
        queue: usize,
        most: u32,
    ) -> PyResult<Self> {
        let generation = opened.generation();
        let tx = opened.queue(queue)?.tx();
        let run = Run::new(most, tx.mapping(), |offset| extent(&tx.buffer(offset)));
        let lengths = (0..run.count).map(|_| AtomicU32::new(0)).collect();
        let is_over = Arc::new(AtomicBool::new(run.count == 0));
        let slots = run.count as u32;
        opened.to_send = Some(Lent { is_over: Arc::clone(&is_over), queue, slots, generation });
        Ok(Self { run, lengths, shared: Arc::clone(shared), queue, generation, is_over })
    }

    fn expect_open(&self) -> PyResult<()> {
        self.shared.expect_own_process()?;
        let is_over = !self.lengths.is_empty() && self.is_over.load(Ordering::Acquire);
        if is_over { Err(PyValueError::new_err("the batch was sent")) } else { Ok(()) }
    }
}

#[pymethods]
impl TxBatch {
    fn __len__(&self) -> usize {
        self.run.count
    }

    /// Returns a whole buffer, to be written.
    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyMemoryView>> {
        self.expect_open()?;
        let index = checked_index(index, self.run.count)?;
        memoryview(py, self.run.frame(index, self.run.buffer_bytes, false))
    }

    /// Returns all buffers, a row for each, to be written.
    #[getter]
    fn buffers(&self) -> PyResult<View> {
        self.expect_open()?;
        Ok(self.run.buffers(false))
    }

    /// Length of each frame, bytes (uint32), to be written.
    #[getter]
    fn lengths(&self) -> PyResult<View> {
        self.expect_open()?;
        Ok(View::of_lengths(&self.lengths, false))
    }

    /// Sends the first `count` frames, or all of them. They have `length` bytes each, or the lengths in `lengths`.
    /// Returns the number of frames sent.
    #[pyo3(signature = (count = None, *, length = None))]
    fn send(&self, count: Option<usize>, length: Option<u32>) -> PyResult<usize> {
        self.expect_open()?;
        let count = count.unwrap_or(self.run.count);
        if count > self.run.count {
            return Err(PyValueError::new_err(format!("{count} frames of a batch of {}", self.run.count)));
        }
        let mut opened = self.shared.lock()?;
        let opened = opened.as_mut().ok_or_else(closed)?;
        if opened.generation() != self.generation {
            self.is_over.store(true, Ordering::Release);
            return Err(PortGone::new_err("the port was opened again meanwhile: take a new batch"));
        }
        let tx = opened.queue(self.queue)?.tx();
        let most = self.run.buffer_bytes.min(usize::from(u16::MAX)) as u32;
        for (offset, own) in (0..count as u32).zip(self.lengths.iter()) {
            let bytes = length.unwrap_or_else(|| own.load(Ordering::Relaxed));
            let fits = u16::try_from(bytes).ok().filter(|_| bytes <= most);
            let bytes = fits.ok_or_else(|| {
                FrameTooLong::new_err(format!("frame {offset} has {bytes} bytes: a buffer has {most}"))
            })?;
            tx.set(offset, bytes, 0);
        }
        tx.advance(count as u32);
        self.is_over.store(true, Ordering::Release);
        opened.to_send = None;
        opened.queue(self.queue)?.tx().sync().map_err(of_port)?;
        Ok(count)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Ends the batch. Frames that were not sent are discarded.
    #[pyo3(signature = (*_details))]
    fn __exit__(&self, _details: &Bound<'_, PyTuple>) {
        self.is_over.store(true, Ordering::Release);
    }

    fn __repr__(&self) -> String {
        format!("<ringroad.TxBatch of {} buffers of {} bytes>", self.run.count, self.run.buffer_bytes)
    }
}

impl Drop for TxBatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}
