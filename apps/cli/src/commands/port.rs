//! `ringroad port`.

use clap::Args;
use ringroad_control::Request;

use crate::failure::Failure;
use crate::options::{Global, switch_port};
use crate::output::Output;
use crate::verb::{MainVerb, ask};

/// Change the VLANs, the isolation or the storm limit of a port while it is in use
///
/// The port then has exactly the options given here with its name. Frames in flight are not lost; if its VLANs change,
/// the addresses behind the port are learned anew. Options that a [[port_policy]] of the configuration fixes cannot be
/// changed. A port of the configuration begins with the configuration's options when the daemon starts again.
#[derive(Debug, Args)]
pub(crate) struct PortArgs {
    /// The port with its options: vlan=, trunk=, native=, isolated, storm=, such as vale0:guest@vlan=20,isolated
    #[arg(value_name = "PORT@OPTIONS", value_parser = switch_port, required_unless_present = "unset")]
    name: Option<String>,
    /// Remove all these options from a port
    #[arg(long, value_name = "PORT", value_parser = switch_port, conflicts_with = "name")]
    unset: Option<String>,
}

impl MainVerb for PortArgs {
    const EXAMPLES: &str = "\
# Into VLAN 20, apart from other isolated ports
ringroad port vale0:guest@vlan=20,isolated
ringroad port --unset vale0:guest";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let (name, done) = match (&self.name, &self.unset) {
            (Some(name), _) if name.contains('@') => (name, "options set"),
            (None, Some(name)) if !name.contains('@') => (name, "options removed"),
            _ => {
                let advice =
                    "append the options to the name: vale0:a@vlan=10,isolated; or --unset vale0:a for none";
                return Err(Failure::usage("write the options with the port's name", advice));
            }
        };
        let port = name.split('@').next();
        ask(global, output, &Request::SetPortOptions { name: name.clone() }, done, port)
    }
}
