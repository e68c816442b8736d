//! Exceptions of the package. Each is a [`RingroadError`], and also the built-in exception that fits.

use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use ringroad::control::ControlError;
use ringroad::{OpenError, PortError, ProcessMark};

/// Defines exceptions, each with the built-in exception or [`RingroadError`] that it is, and adds them to the module.
macro_rules! exceptions {
    ($($name:ident($base:ty): $about:literal;)*) => {
        $(create_exception!(ringroad, $name, $base, $about);)*

        pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add(stringify!($name), module.py().get_type::<$name>())?;)*
            Ok(())
        }
    };
}

exceptions! {
    RingroadError(PyRuntimeError): "What Ringroad refused, or could not do.";
    PortGone(RingroadError): "The port does not work any more: close it, and open it again.";
    PortBusy(RingroadError): "Another thread uses the port, or a batch of it is open.";
    ForkError(RingroadError): "A process that forked this one opened the port or connection: open another one here.";
    FrameTooLong(PyValueError): "A frame that no ring of the port can hold.";
    DaemonRefused(RingroadError): "The daemon's reason, in words; `kind` names it for programs, `advice` is the remedy.";
}

/// Makes the exception for a port that stopped working, or a frame that does not fit.
pub(crate) fn of_port(error: PortError) -> PyErr {
    match error {
        PortError::FrameTooLong { .. } => FrameTooLong::new_err(error.to_string()),
        PortError::OtherProcess => ForkError::new_err(error.to_string()),
        _ => PortGone::new_err(error.to_string()),
    }
}

/// Fails if the process with the mark `process` forked this one. Objects of Python then belong to the parent.
pub(crate) fn expect_own_process(process: ProcessMark) -> PyResult<()> {
    if process.is_here() { Ok(()) } else { Err(of_port(PortError::OtherProcess)) }
}

/// Makes the exception for a port that cannot be opened.
pub(crate) fn of_opening(py: Python<'_>, error: OpenError) -> PyErr {
    match error {
        OpenError::Name(error) => PyValueError::new_err(error.to_string()),
        OpenError::Control(error) => of_control(py, &error),
        _ => RingroadError::new_err(error.to_string()),
    }
}

/// Makes the exception for a request that was not served.
pub(crate) fn of_control(py: Python<'_>, error: &ControlError) -> PyErr {
    let ControlError::Refused(reply) = error else { return RingroadError::new_err(error.to_string()) };
    let raised = DaemonRefused::new_err(reply.to_string());
    let kind = serde_json::to_value(reply.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
    let value = raised.value(py);
    let named = value.setattr("kind", kind).and_then(|()| value.setattr("advice", &reply.advice));
    named.err().unwrap_or(raised)
}
