//! The generator under the Open Traffic Generator model, over HTTP and HTTPS.
//!
//! [`Server`] answers the requests of the model's OpenAPI definition
//! (<https://github.com/open-traffic-generator/models>), so that its clients, such as the Python package `snappi`,
//! configure ports and flows, start and stop them and read their metrics. A request is a JSON document; what of the
//! model is not supported is refused by the path where it stands, and nothing of such a request is done. `docs/otg.md`
//! has the table of what is supported.
//!
//! Whoever may use the server can send any traffic from the ports that it may open. [`Token`] says who that is,
//! [`Locations`] which ports these are. Every byte before the token is a stranger's: the head of a request alone is
//! read, within a time and a size, on a connection that gives way to others.

mod access;
mod certificate;
mod config;
mod controller;
mod crowd;
mod document;
mod locations;
mod metrics;
mod refusal;
mod requests;
mod server;
mod traffic;

pub use access::Token;
pub use locations::Locations;
pub use server::{Encryption, Listen, Server, ServerError, ServerOptions, Stopper};
