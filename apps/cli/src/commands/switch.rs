//! `ringroad switch`.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::Args;
use ringroad_control::message::{FailMode, OpenFlow};
use ringroad_control::report::OpenFlowReport;
use ringroad_control::{Reply, Request};

use crate::failure::Failure;
use crate::options::{Choice, Global, one_of, switch_name};
use crate::output::Output;
use crate::output::table::lines;
use crate::verb::{MainVerb, ask, request};

/// Make a switch forward by flow tables, under OpenFlow controllers, or again by learned addresses
///
/// Without options the command lists the switches that have flow tables. With --openflow the switch speaks OpenFlow
/// 1.3: it connects to the controllers, and tools such as ovs-ofctl change its flows through the socket SWITCH.mgmt in
/// the folder of the daemon's socket. Without flows it drops all frames. Ports have the numbers of their indexes, from
/// 1. `ringroad config save` writes the settings into the daemon's configuration, but no flows.
#[derive(Debug, Args)]
pub(crate) struct SwitchArgs {
    /// Name of the switch, such as vale0
    #[arg(value_name = "SWITCH", required_unless_present_any = ["list"], value_parser = switch_name)]
    switch: Option<String>,
    /// List the switches with flow tables
    #[arg(long, conflicts_with_all = ["switch", "openflow", "learn"])]
    list: bool,
    /// Use flow tables, and connect to these controllers (without any, only tools change flows)
    #[arg(long, value_name = "tcp:HOST:PORT|ssl:HOST:PORT", num_args = 0.., conflicts_with = "learn")]
    openflow: Option<Vec<String>>,
    /// Listen for tools at this address too; a prefix ssl: selects TLS
    #[arg(long, value_name = "ADDRESS:PORT", requires = "openflow")]
    listen: Vec<String>,
    /// Behaviour of the switch while no controller is connected
    #[arg(long, value_name = "MODE", default_value = "secure", value_parser = one_of(&FAIL_MODES), requires = "openflow")]
    fail_mode: FailMode,
    /// Number of the switch for controllers, hexadecimal [default: made from its name]
    #[arg(long, value_name = "HEX", requires = "openflow")]
    datapath_id: Option<String>,
    /// The switch's private key for TLS, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["openflow", "certificate", "ca_cert"])]
    private_key: Option<PathBuf>,
    /// The switch's certificate, in PEM, with the certificates between it and its CA
    #[arg(long, value_name = "FILE", requires_all = ["openflow", "private_key", "ca_cert"])]
    certificate: Option<PathBuf>,
    /// Certificates of the CAs of controllers and tools, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["openflow", "private_key", "certificate"])]
    ca_cert: Option<PathBuf>,
    /// Use learned addresses again; all flows are deleted
    #[arg(long)]
    learn: bool,
}

const FAIL_MODES: [Choice<FailMode>; 2] = [
    ("secure", "The switch keeps its flows, and drops frames without a matching flow", FailMode::Secure),
    ("standalone", "The switch is a learning switch until a controller connects", FailMode::Standalone),
];

impl MainVerb for SwitchArgs {
    const EXAMPLES: &str = "\
# Flow tables under a controller
ringroad switch vale0 --openflow tcp:127.0.0.1:6653
# The same by TLS
ringroad switch vale0 --openflow ssl:10.0.0.1 --private-key key.pem --certificate cert.pem --ca-cert ca.pem
# Flow tables that tools alone change, such as ringroad flows and ovs-ofctl
ringroad switch vale0 --openflow
# Learned addresses again
ringroad switch vale0 --learn";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let Some(switch) = self.switch.clone() else { return list(None, global, output) };
        if self.learn {
            let request = Request::RemoveOpenFlow { switch: switch.clone() };
            return ask(global, output, &request, "learned addresses decide", Some(&switch));
        }
        let Some(controllers) = self.openflow.clone() else { return list(Some(&switch), global, output) };
        let settings = OpenFlow {
            switch: switch.clone(),
            controllers,
            listen: self.listen.clone(),
            fail_mode: self.fail_mode,
            datapath_id: self.datapath_id.clone(),
            private_key: whole_path(self.private_key.as_deref())?,
            certificate: whole_path(self.certificate.as_deref())?,
            ca_cert: whole_path(self.ca_cert.as_deref())?,
        };
        ask(global, output, &Request::SetOpenFlow(settings), "flow tables decide", Some(&switch))
    }
}

/// Formats how many tools were refused, and why.
pub(super) fn refused_tools(report: &OpenFlowReport) -> String {
    let causes = report.refused_tools_by_cause.iter().map(|(cause, count)| format!("{cause} {count}"));
    format!("{} tools ({})", report.refused_tools, causes.collect::<Vec<_>>().join(", "))
}

/// Makes a path absolute, since the daemon runs in another folder.
fn whole_path(path: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let failed = |what: &dyn Display| Failure::new(format!("{}: {what}", path.display()), "");
    let whole = std::path::absolute(path).map_err(|error| failed(&error))?;
    whole.into_os_string().into_string().map(Some).map_err(|_| failed(&"a path has to be UTF-8"))
}

/// Formats the memory of the tables, and its limit, MiB.
pub(super) fn memory(report: &OpenFlowReport) -> String {
    format!("{}/{}", report.memory_bytes.div_ceil(1 << 20), report.memory_limit_bytes >> 20)
}

fn list(switch: Option<&str>, global: &Global, output: &Output) -> Result<(), Failure> {
    let mut reports = request!(global.connect()?, &Request::OpenFlow, Reply::OpenFlow(reports) => reports)?;
    reports.retain(|report| switch.is_none_or(|switch| report.settings.switch == switch));
    output.result(&reports, |reports| {
        let headings = ["switch", "datapath", ">flows", ">MiB", "controller", "state"];
        let mut rows = Vec::new();
        for report in reports {
            let mut first = [
                report.settings.switch.clone(),
                report.datapath_id.clone(),
                report.flows.to_string(),
                memory(report),
            ];
            let mut row = |controller: String, state: String| {
                let [switch, datapath, flows, memory] = std::mem::take(&mut first);
                rows.push([switch, datapath, flows, memory, controller, state]);
            };
            if !report.waiting.is_empty() {
                row(String::new(), report.waiting.clone());
            }
            for controller in &report.controllers {
                let state = match (controller.is_connected, controller.problem.as_str()) {
                    (true, _) => "connected".to_owned(),
                    (false, "") => "connecting".to_owned(),
                    (false, problem) => problem.to_owned(),
                };
                row(controller.address.clone(), state);
            }
            if report.controllers.is_empty() && report.waiting.is_empty() {
                row("none".to_owned(), format!("tools: unix:{}", report.socket));
            }
            if report.metered_packet_ins > 0 {
                let frames = report.metered_packet_ins;
                row(String::new(), format!("{frames} frames for controllers metered"));
            }
            if report.refused_tools > 0 {
                let last = &report.refusal;
                row(String::new(), format!("refused {}, last {last}", refused_tools(report)));
            }
        }
        lines(&headings, rows, "no switch has flow tables")
    })
}
