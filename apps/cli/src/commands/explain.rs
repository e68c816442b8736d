//! `ringroad explain`.

pub(super) mod words;

use std::path::{Path, PathBuf};

use clap::Args;
use ringroad_control::message::FrameToExplain;
use ringroad_control::{Reply, Request};
use ringroad_flow_tables::sample_frame::sample_frame;
use ringroad_openflow::oxm::OxmField;
use ringroad_openflow::text::Headers;
use ringroad_traffic::header::HexBytes;

use crate::failure::Failure;
use crate::frame_options::frame_of;
use crate::options::{Global, switch_name};
use crate::output::Output;
use crate::verb::{MainVerb, request};

/// Number of leading bytes of a frame that the daemon examines.
const START: usize = 256;

/// Show what would happen to a frame at a switch, rule by rule
///
/// For a switch with flow tables it shows, table by table, the matching entry, the changes by each action and the
/// buckets of groups. It ends with the ports that the frame would leave by and its headers there, or with the reason of
/// a drop. For a learning switch it shows the ports to which the learned addresses send the frame. Nothing is counted,
/// measured or learned.
///
/// The frame is given by its headers, in the syntax of flows; unset fields are zero, and nw_ttl= and mpls_ttl= set the
/// TTLs. in_port= takes the port's number, or its name as `ringroad trace` prints it. The whole frame can be given by
/// --hex or --pcap.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Name of the switch, such as vale0
    #[arg(value_name = "SWITCH", value_parser = switch_name)]
    switch: String,
    /// Headers of the frame, such as in_port=1,tcp,nw_dst=10.0.0.1,nw_ttl=64,tp_dst=80
    #[arg(value_name = "HEADERS", required_unless_present_any = ["hex", "pcap"], conflicts_with_all = ["hex", "pcap"])]
    headers: Option<String>,
    /// Port that receives the frame: its number for flow tables, or its name, such as vale0:a
    #[arg(long, value_name = "PORT")]
    in_port: Option<String>,
    /// Bytes of the whole frame without FCS, in hexadecimal digits
    #[arg(long, value_name = "HEX", conflicts_with = "pcap")]
    hex: Option<HexBytes>,
    /// Capture file that contains the frame
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Number of frames to skip in the file
    #[arg(long, value_name = "N", default_value_t = 0, requires = "pcap")]
    number: u64,
}

impl MainVerb for ExplainArgs {
    const EXAMPLES: &str = "\
ringroad explain vale0 in_port=1,dl_src=02:00:00:00:00:01,tcp,nw_dst=10.0.0.1,nw_ttl=64,tp_dst=80
# The second frame of a capture, as if it came in by port a
ringroad explain vale0 --pcap frames.pcap --number 1 --in-port a";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let request = Request::Explain(self.frame()?);
        let explanation =
            request!(global.connect()?, &request, Reply::Explained(explanation) => explanation)?;
        output.result(&explanation, words::text)
    }
}

impl ExplainArgs {
    fn frame(&self) -> Result<FrameToExplain, Failure> {
        let whole = match (&self.hex, &self.pcap) {
            (Some(HexBytes(bytes)), _) => Some(bytes.clone()),
            (None, Some(file)) => Some(frame_of(Path::new(file), self.number)?),
            (None, None) => None,
        };
        let (headers, named) = without_named_port(self.headers.as_deref().unwrap_or_default());
        let headers = read(&headers)?;
        let value = |field| headers.fields.exact(field);
        let numbered = || value(OxmField::InPort).map(|port| port.to_string());
        let from = self.in_port.clone().or(named).or_else(numbered).ok_or_else(|| {
            Failure::usage(
                "at which port does the frame arrive?",
                "add in_port=1 or in_port=vale0:a to its headers, or --in-port PORT",
            )
        })?;
        let bytes = match whole {
            Some(bytes) => bytes,
            None => sample_frame(&headers).map_err(|field| {
                let message = format!("no frame can be made with this {field}");
                Failure::usage(message, "leave it out, or give the whole frame by --hex")
            })?,
        };
        let number = |field| value(field).unwrap_or(0) as u64;
        Ok(FrameToExplain {
            switch: self.switch.clone(),
            from,
            frame_bytes: Some(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            start: HexBytes(bytes.get(..START).unwrap_or(&bytes).to_vec()).to_string(),
            metadata: number(OxmField::Metadata),
            tunnel_id: number(OxmField::TunnelId),
        })
    }
}

/// Splits headers into those of flows, whose ports are numbers, and the name of the port in `in_port=NAME`.
fn without_named_port(text: &str) -> (String, Option<String>) {
    let name_of = |item: &str| {
        let port = item.trim().strip_prefix("in_port=")?;
        (!port.starts_with("0x") && port.parse::<u32>().is_err()).then(|| port.to_owned())
    };
    let named = text.split(',').find_map(name_of);
    let others = text.split(',').filter(|item| name_of(item).is_none()).collect::<Vec<_>>().join(",");
    (others, named)
}

fn read(text: &str) -> Result<Headers, Failure> {
    text.parse().map_err(|error| {
        Failure::usage(format!("headers {text:?}: {error}"), "man ovs-fields has the fields and their names")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_taken_out_of_headers_by_name_and_left_in_by_number() {
        for (text, others, named) in [
            ("in_port=vale0:a,tcp,tp_dst=80", "tcp,tp_dst=80", Some("vale0:a")),
            ("tcp, in_port=eth0^", "tcp", Some("eth0^")),
            ("in_port=7,tcp", "in_port=7,tcp", None),
            ("in_port=0x7", "in_port=0x7", None),
            ("in_port=vale0:7", "", Some("vale0:7")),
            ("", "", None),
        ] {
            assert_eq!(without_named_port(text), (others.to_owned(), named.map(str::to_owned)), "{text}");
        }
    }
}
