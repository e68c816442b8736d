//! `ringroad metrics`.

use clap::Args;
use ringroad_metrics::{Endpoint, exposition};
use serde::Serialize;

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::MainVerb;

/// Print the daemon's counters for Prometheus, or serve them
///
/// The format is OpenMetrics 1.0. With --listen the command serves it at /metrics until it is ended, and for probes
/// /healthz (the daemon answers, and its workers live) and /readyz (in addition, no port waits for its device). See
/// docs/metrics.md.
#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Serve over HTTP at this address, such as 127.0.0.1:9464, or at the path of a UNIX socket
    #[arg(long, value_name = "ADDRESS|PATH", value_parser = endpoint)]
    listen: Option<String>,
}

/// Parses an address with a port, or the path of a socket.
fn endpoint(text: &str) -> Result<String, String> {
    let is_address = || text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match text.contains('/') || is_address() {
        true => Ok(text.to_owned()),
        false => Err("give an address such as 127.0.0.1:9464, or a path such as ./metrics.sock".to_owned()),
    }
}

#[derive(Debug, Serialize)]
struct Exposition {
    openmetrics: String,
}

#[derive(Debug, Serialize)]
struct Listening {
    ready: bool,
    address: String,
}

impl MainVerb for MetricsArgs {
    const EXAMPLES: &str = "\
# For Prometheus, at http://127.0.0.1:9464/metrics
ringroad metrics --listen 127.0.0.1:9464";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let Some(address) = &self.listen else {
            let printed = Exposition { openmetrics: exposition(global.connect()?.status()?) };
            return output.result(&printed, |printed| printed.openmetrics.clone());
        };
        let endpoint = Endpoint::listen(address, &global.socket_path())
            .map_err(|error| Failure::new(error.to_string(), ""))?;
        let address = endpoint.address().map_err(|error| Failure::new(error.to_string(), ""))?;
        output.result(&Listening { ready: true, address }, |listening| {
            format!("serving /metrics, /healthz and /readyz at {}", listening.address)
        })?;
        endpoint.serve()
    }
}
