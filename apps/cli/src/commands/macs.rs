//! `ringroad macs`.

use clap::Args;
use ringroad_control::report::MacEntryReport;
use ringroad_control::{Reply, Request};
use serde::Serialize;

use crate::failure::Failure;
use crate::options::{Global, switch_name};
use crate::output::Output;
use crate::output::table::{Column, table};
use crate::verb::{MainVerb, ask, request};

/// Show or change the addresses of a switch
///
/// A static address stays on its port: it does not age, and frames do not move it. Its port need not exist yet. It
/// applies to all VLANs. `ringroad config save` writes static addresses into the daemon's configuration.
#[derive(Debug, Args)]
pub(crate) struct MacsArgs {
    /// Name of the switch, such as vale0
    #[arg(value_name = "SWITCH", value_parser = switch_name)]
    switch: String,
    /// Assign an address to a port of the switch permanently
    #[arg(long, value_name = "MAC=PORT", group = "change", value_parser = placement)]
    set: Option<(String, String)>,
    /// Remove a static address
    #[arg(long, value_name = "MAC", group = "change")]
    unset: Option<String>,
    /// Forget the addresses that the switch has learned
    #[arg(long, group = "change")]
    flush: bool,
    /// Forget only the addresses of this port
    #[arg(long, value_name = "PORT", requires = "flush")]
    port: Option<String>,
}

/// Parses an address, and a port of the switch.
fn placement(text: &str) -> Result<(String, String), String> {
    let (mac, port) = text.split_once('=').ok_or("write MAC=PORT, such as 02:00:00:00:00:01=a")?;
    Ok((mac.to_owned(), port.to_owned()))
}

#[derive(Debug, Serialize)]
struct Forgotten {
    forgotten: u64,
}

impl MainVerb for MacsArgs {
    const EXAMPLES: &str = "\
ringroad macs vale0
# An address that stays on its port
ringroad macs vale0 --set 02:00:00:00:00:01=uplink";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let switch = self.switch.clone();
        if let Some((mac, port)) = &self.set {
            let port = Some(self.on_switch(port)?);
            let request = Request::SetAddress { switch, mac: mac.clone(), port };
            return ask(global, output, &request, "set", None);
        }
        if let Some(mac) = &self.unset {
            let request = Request::SetAddress { switch, mac: mac.clone(), port: None };
            return ask(global, output, &request, "taken back", None);
        }
        if self.flush {
            let port = self.port.as_deref().map(|port| self.on_switch(port)).transpose()?;
            let request = Request::ForgetAddresses { switch, port };
            let forgotten =
                request!(global.connect()?, &request, Reply::Forgotten { addresses } => addresses)?;
            return output.result(&Forgotten { forgotten }, |_| format!("{forgotten} addresses forgotten"));
        }
        let entries = global.connect()?.mac_table(&self.switch)?;
        output.result(&entries, |entries| {
            let columns: [Column<&MacEntryReport>; 3] = [
                ("address", |entry| entry.mac.clone()),
                ("port", |entry| entry.port.clone()),
                (">last seen", |entry| match entry.is_static {
                    true => "static".to_owned(),
                    false => format!("{} s", entry.age_s),
                }),
            ];
            let mut columns = columns.to_vec();
            if entries.iter().any(|entry| entry.vlan.is_some()) {
                let vlan =
                    |entry: &&MacEntryReport| entry.vlan.map_or("none".to_owned(), |vlan| vlan.to_string());
                columns.insert(1, (">VLAN", vlan));
            }
            table(entries, &columns, "no addresses learned")
        })
    }
}

impl MacsArgs {
    /// Returns the full name of a port, which can be given with or without its switch.
    fn on_switch(&self, port: &str) -> Result<String, Failure> {
        match port.split_once(':') {
            None => Ok(port.to_owned()),
            Some((switch, port)) if switch == self.switch => Ok(port.to_owned()),
            Some(_) => {
                Err(Failure::usage(format!("{port} is not on {}", self.switch), "name a port of the switch"))
            }
        }
    }
}
