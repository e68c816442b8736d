//! Memory that Python accesses without a copy, by its buffer protocol: `memoryview(view)`, `numpy.asarray(view)`.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use ringroad::{Mapping, PortError};

use crate::errors::of_port;

/// Value that keeps the memory of a view mapped. Others may change the content of a ring's region.
pub(crate) type MemoryOwner = Arc<dyn Any + Send + Sync>;

/// A view of memory of one or two dimensions. The memory stays mapped while the view, or any object made from it,
/// exists. In a child of the process that opened the port, objects made before read zeros.
#[pyclass(frozen, module = "ringroad")]
#[derive(Debug)]
pub(crate) struct View {
    start: *mut c_void,
    shape: Box<[ffi::Py_ssize_t]>,
    strides: Box<[ffi::Py_ssize_t]>,
    item_bytes: ffi::Py_ssize_t,
    format: &'static CStr,
    is_readonly: bool,
    keeper: MemoryOwner,
}

// SAFETY: the memory is shared with other processes anyway, and the pointer is given only to Python, whose code may
// read and write any buffer in any thread.
unsafe impl Send for View {}
// SAFETY: a view never changes, and the memory is shared with other processes anyway.
unsafe impl Sync for View {}

impl View {
    /// Makes a view of `rows` buffers of `bytes` bytes, the first at `start`, and each `stride` bytes after the one
    /// before.
    ///
    /// # Safety
    /// All buffers are in the memory of `keeper`.
    pub(crate) unsafe fn of_buffers(
        keeper: MemoryOwner,
        start: *mut u8,
        (rows, bytes): (usize, usize),
        stride: isize,
        is_readonly: bool,
    ) -> Self {
        Self::new(keeper, start.cast(), [rows, bytes], [stride, 1], c"B", is_readonly)
    }

    /// Makes a view of `bytes` bytes at `start`.
    ///
    /// # Safety
    /// The bytes are in the memory of `keeper`.
    pub(crate) unsafe fn of_frame(
        keeper: MemoryOwner,
        start: *mut u8,
        bytes: usize,
        is_readonly: bool,
    ) -> Self {
        Self::new(keeper, start.cast(), [bytes], [1], c"B", is_readonly)
    }

    /// Makes a view of lengths, which Python may write unless `is_readonly` is set.
    pub(crate) fn of_lengths(lengths: &Arc<[AtomicU32]>, is_readonly: bool) -> Self {
        let start = lengths.as_ptr().cast_mut().cast();
        Self::new(Arc::new(Arc::clone(lengths)), start, [lengths.len()], [4], c"I", is_readonly)
    }

    /// Makes a view of points in time.
    pub(crate) fn of_times(times: &Arc<[u64]>) -> Self {
        let start = times.as_ptr().cast_mut().cast();
        Self::new(Arc::new(Arc::clone(times)), start, [times.len()], [8], c"Q", true)
    }

    /// Makes a view of `shape` items. The last of the `strides` is the size of an item, bytes.
    fn new<const DIMENSIONS: usize>(
        keeper: MemoryOwner,
        start: *mut c_void,
        shape: [usize; DIMENSIONS],
        strides: [isize; DIMENSIONS],
        format: &'static CStr,
        is_readonly: bool,
    ) -> Self {
        Self {
            start,
            shape: Box::new(shape.map(|items| items as isize)),
            item_bytes: strides[DIMENSIONS - 1],
            strides: Box::new(strides),
            format,
            is_readonly,
            keeper,
        }
    }

    /// Whether the memory is one run of bytes.
    fn is_contiguous(&self) -> bool {
        let mut expected = self.item_bytes;
        self.shape.iter().zip(&self.strides).rev().all(|(&count, &stride)| {
            let fits = stride == expected || count <= 1;
            expected *= count;
            fits
        })
    }
}

#[pymethods]
impl View {
    /// Fills a `Py_buffer`, as the C API requires it (`PyObject_GetBuffer`).
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let own = slf.get();
        if own.keeper.downcast_ref::<Mapping>().is_some_and(|mapping| !mapping.is_own_process()) {
            // SAFETY: the caller's view is writable.
            unsafe { (*view).obj = ptr::null_mut() };
            return Err(of_port(PortError::OtherProcess));
        }
        let asks = |wanted: c_int| flags & wanted == wanted;
        let refusal = if own.is_readonly && asks(ffi::PyBUF_WRITABLE) {
            Some("received frames cannot be written: copy them")
        } else if !asks(ffi::PyBUF_STRIDES) && !own.is_contiguous() {
            Some("the buffers do not lie side by side: take them by numpy.asarray or memoryview")
        } else if (asks(ffi::PyBUF_C_CONTIGUOUS) || asks(ffi::PyBUF_ANY_CONTIGUOUS)) && !own.is_contiguous() {
            Some("the buffers do not lie side by side")
        } else {
            None
        };
        if let Some(refusal) = refusal {
            // SAFETY: the caller's view is writable.
            unsafe { (*view).obj = ptr::null_mut() };
            return Err(PyBufferError::new_err(refusal));
        }
        let given = |wanted: c_int, numbers: &[isize]| {
            if asks(wanted) { numbers.as_ptr().cast_mut() } else { ptr::null_mut() }
        };
        let filled = ffi::Py_buffer {
            buf: own.start,
            len: own.shape.iter().product::<isize>() * own.item_bytes,
            itemsize: own.item_bytes,
            readonly: own.is_readonly.into(),
            format: if asks(ffi::PyBUF_FORMAT) { own.format.as_ptr().cast_mut() } else { ptr::null_mut() },
            ndim: own.shape.len() as c_int,
            shape: given(ffi::PyBUF_ND, &own.shape),
            strides: given(ffi::PyBUF_STRIDES, &own.strides),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
            obj: slf.clone().into_any().into_ptr(),
        };
        // SAFETY: the caller's view is writable. Shape, strides and format live as long as the object, which the view
        // holds, and so does the memory.
        unsafe { view.write(filled) };
        Ok(())
    }

    fn __repr__(&self) -> String {
        let access = if self.is_readonly { "read" } else { "written" };
        format!("<ringroad.View of shape {:?}, to be {access}>", self.shape)
    }
}
