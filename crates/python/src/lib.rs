//! The compiled half of the Python package `ringroad`: ports, batches of their frames, and requests to the daemon.
//!
//! A port is a handle of `crates/ringroad` behind a lock that is only tried: a thread gets an error if another one has
//! the lock. [`view`] shows Python the memory of the rings without a copy. [`batch`] lends slots, [`port`] waits with
//! the interpreter released, [`control`] passes requests as JSON, whose types `ringroad/reports.py` declares.

use pyo3::prelude::*;

mod batch;
mod control;
mod errors;
mod port;
mod view;

#[pymodule]
fn _ringroad(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<port::Port>()?;
    module.add_class::<batch::RxBatch>()?;
    module.add_class::<batch::TxBatch>()?;
    module.add_class::<view::View>()?;
    module.add_class::<control::Daemon>()?;
    errors::add_to(module)
}
