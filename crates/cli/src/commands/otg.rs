//! `ringroad otg`: the generator under the Open Traffic Generator model.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use ringroad::OpenOptions;
use ringroad_otg::{Encryption, Server, ServerOptions};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::arguments::Global;
use crate::failure::Failure;
use crate::output::Output;
use crate::session_arguments::SessionArguments;

/// Serve the Open Traffic Generator model, for clients such as snappi
///
/// Clients configure ports and flows, start and stop them and read their metrics; see docs/otg.md for what of the model
/// is supported. A port's location is its name here, such as vale0:a or veth0. By default the server speaks HTTPS with a
/// certificate made at the start, which clients cannot verify (snappi: verify=False). Whoever reaches the server can
/// send any traffic: it listens on this machine alone unless told otherwise.
#[derive(Debug, Args)]
pub(crate) struct Otg {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// Serve plain HTTP
    #[arg(long, conflicts_with_all = ["cert", "key"])]
    http: bool,
    /// Certificate of the server, and those that vouch for it (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    #[command(flatten)]
    session: SessionArguments,
    /// CPUs for the threads, of which each port has one for each queue; in turn
    #[arg(long, value_name = "N", value_delimiter = ',')]
    cpu: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct Ready {
    ready: bool,
    /// What clients give as the server's location.
    url: String,
    address: String,
}

impl Otg {
    pub(crate) fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let encryption = match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => {
                Encryption::Files { certificate: certificate.clone(), key: key.clone() }
            }
            _ if self.http => Encryption::None,
            _ => Encryption::SelfSigned,
        };
        let ports = OpenOptions { socket: global.socket.clone(), ..OpenOptions::default() };
        let session = self.session.options(&self.cpu);
        let server = Server::bind(&ServerOptions { listen: self.listen, encryption, ports, session })?;
        let watch = |error| Failure::new(format!("watching for signals: {error}"), "");
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(watch)?;
        let ready = Ready { ready: true, url: server.url(), address: server.address().to_string() };
        output
            .result(&ready, |ready| format!("serving the Open Traffic Generator model at {}", ready.url))?;
        let stopper = server.stopper();
        std::thread::spawn(move || {
            let mut signals = signals.forever();
            if signals.next().is_some() {
                stopper.stop();
            }
            // A second signal ends the process at once.
            if let Some(signal) = signals.next() {
                std::process::exit(128 + signal);
            }
        });
        Ok(server.run()?)
    }
}
