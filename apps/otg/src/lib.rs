//! The generator under the Open Traffic Generator model, over HTTP and HTTPS.
//!
//! [`OtgServer`] answers the requests of the model's OpenAPI definition
//! (<https://github.com/open-traffic-generator/models>), so that its clients, such as the Python package `snappi`,
//! configure ports and flows, start and stop them and read their metrics. A request is a JSON document; requests that
//! use unsupported parts of the model are refused as a whole, with the paths of those parts. `docs/otg.md` has the
//! table of supported parts.
//!
//! A client of the server can send any traffic from the ports that the server can open. [`Token`] identifies clients,
//! [`Locations`] limits the ports. Every byte before the token is untrusted: only the head of a request is read, within
//! limits of time and size, on a connection that can be closed in favour of others.

mod access;
mod certificate;
mod config;
mod connection_limit;
mod controller;
mod document;
mod locations;
mod metrics;
mod refusal;
mod requests;
mod server;
mod traffic;

pub use access::Token;
pub use locations::Locations;
pub use server::{Encryption, Listen, OtgServer, OtgServerError, ServerOptions, Stopper};
