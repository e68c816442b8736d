//! `ringroad otg`: the generator under the Open Traffic Generator model.

use std::path::PathBuf;

use clap::Args;
use ringroad::OpenOptions;
use ringroad_otg::{Encryption, Listen, Locations, OtgServer, ServerOptions, Token};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::session_arguments::SessionArguments;
use crate::verb::MainVerb;

/// Serve the Open Traffic Generator model, for clients such as snappi
///
/// Clients configure ports and flows, start and stop them and read their metrics; docs/otg.md lists the supported parts
/// of the model. A port's location is its Ringroad name, such as vale0:a or veth0. By default the server speaks HTTPS
/// with a certificate made at the start, which clients cannot verify (snappi: verify=False). It also makes a token,
/// prints it, and requires it from clients; snappi takes it in its location: https://otg:TOKEN@127.0.0.1:8443. Clients
/// can open ports of switches, pipes and null ports; --allow-location allows more.
#[derive(Debug, Args)]
pub(crate) struct OtgArgs {
    /// Address to listen at: ADDR:PORT, where port 0 takes a free port, or unix:PATH for a socket that only this user
    /// may open
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8443")]
    listen: Listen,
    /// Read the token from a file that others may not read (chmod 600), instead of generating one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Require no token: every user of this machine can then send any traffic as this user, from all ports that clients
    /// may open
    #[arg(long, conflicts_with = "token_file")]
    no_token: bool,
    /// Accept requests to this name too, besides localhost and the address; may be given several times
    #[arg(long, value_name = "NAME")]
    host_name: Vec<String>,
    /// Let clients open ports that match this pattern too: 'veth*', 'memif:/run/lab/*', 'pcap:out=/srv/*.pcap'; * is
    /// for any characters but /, ** for any folders, and '**' alone for everything; may be given several times
    #[arg(long, value_name = "PATTERN")]
    allow_location: Vec<String>,
    /// Serve plain HTTP
    #[arg(long, conflicts_with_all = ["cert", "key"])]
    http: bool,
    /// Certificate of the server, with its chain (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    #[command(flatten)]
    session: SessionArguments,
    /// CPUs for the threads (one for each queue of each port), in turn
    #[arg(long, value_name = "N", value_delimiter = ',')]
    cpu: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct Ready {
    ready: bool,
    url: String,
    address: String,
    /// Generated token; `None` if the token is in a file, or none is required.
    token: Option<String>,
    /// The server's location for snappi.
    location: String,
}

impl MainVerb for OtgArgs {
    const EXAMPLES: &str = "\
ringroad otg
# A socket that only this user may open, without a token
ringroad otg --listen unix:/run/lab/otg.sock";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let encryption = match (&self.cert, &self.key) {
            (Some(certificate), Some(key)) => {
                Encryption::Files { certificate: certificate.clone(), key: key.clone() }
            }
            _ if self.http => Encryption::None,
            _ => Encryption::SelfSigned,
        };
        // A UNIX socket needs no token: the permissions of the file decide who can open it.
        let asks = !self.no_token && matches!(self.listen, Listen::Tcp(_));
        let made = (asks && self.token_file.is_none()).then(Token::random).transpose()?;
        let given = self.token_file.as_deref().map(Token::read).transpose()?;
        let options = ServerOptions {
            listen: self.listen.clone(),
            encryption,
            token: given.or_else(|| made.clone()),
            host_names: self.host_name.clone(),
            locations: Locations::allowing(&self.allow_location)?,
            ports: OpenOptions { socket: global.socket.clone(), ..OpenOptions::default() },
            session: self.session.options(&self.cpu),
        };
        let server = OtgServer::bind(&options)?;
        let watch = |error| Failure::new(format!("watching for signals: {error}"), "");
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(watch)?;
        let ready = Ready {
            ready: true,
            url: server.url(None),
            address: server.listen().to_string(),
            location: server.url(made.as_ref()),
            token: made.map(|token| token.text().to_owned()),
        };
        output.result(&ready, |ready| {
            let token = ready
                .token
                .iter()
                .map(|token| format!("\ntoken: {token}\nlocation for snappi: {}", ready.location));
            format!("serving the Open Traffic Generator model at {}{}", ready.url, token.collect::<String>())
        })?;
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
        server.run();
        Ok(())
    }
}
