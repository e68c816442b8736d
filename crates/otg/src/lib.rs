//! The generator under the Open Traffic Generator model, over HTTP and HTTPS.
//!
//! [`Server`] answers the requests of the model's OpenAPI definition (<https://github.com/open-traffic-generator/models>),
//! so that its clients, such as the Python package `snappi`, configure ports and flows, start and stop them and read
//! their metrics. A request is a JSON document; what of the model is not supported is refused by the path where it
//! stands, and nothing of such a request is done. `docs/otg.md` has the table of what is supported.
//!
//! Whoever reaches the server can send any traffic from any port that it can open: listen where only they can.

mod certificate;
mod config;
mod controller;
mod document;
mod metrics;
mod refusal;
mod server;
mod traffic;

pub use server::{Encryption, Server, ServerError, ServerOptions, Stopper};
