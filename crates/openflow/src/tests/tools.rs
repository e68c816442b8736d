//! Other projects' programs that read OpenFlow.

use std::io::Write;
use std::process::Command;

use crate::{ControllerMessage, SwitchMessage};

pub(crate) fn request(request: &ControllerMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(1, &mut bytes).unwrap();
    bytes
}

pub(crate) fn reply(reply: &SwitchMessage) -> Vec<u8> {
    let mut bytes = Vec::new();
    reply.encode(1, &mut bytes).unwrap();
    bytes
}

/// Runs a program on a file with these contents, whose path follows the arguments. Returns its output.
fn printed(program: &str, arguments: &[&str], contents: &[u8]) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(contents).unwrap();
    let output = Command::new(program).args(arguments).arg(file.path()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the output of `ovs-ofctl` about flows, a line for each.
pub(crate) fn ovs_parsed_flows(flows: &[impl AsRef<str>]) -> String {
    let arguments = ["-O", "OpenFlow13", "--no-names", "parse-flows"];
    let lines: String = flows.iter().map(|flow| format!("{}\n", flow.as_ref())).collect();
    let text = printed("ovs-ofctl", &arguments, lines.as_bytes());
    text.lines().filter(|line| line.starts_with("OFPT")).map(|line| format!("{line}\n")).collect()
}

/// Returns the output of `ovs-ofctl` about messages, one after the other.
pub(crate) fn ovs_printed(messages: &[u8]) -> String {
    printed("ovs-ofctl", &["-O", "OpenFlow13", "--no-names", "ofp-parse"], messages)
}

/// Returns fields of messages as tshark reads them, a line for each message.
pub(crate) fn tshark_fields(messages: &[Vec<u8>], fields: &[&str]) -> Vec<String> {
    let mut capture = Vec::new();
    let header = pcap_file::pcap::PcapHeader {
        // Link type 147 is for private use: tshark is configured to decode it as OpenFlow.
        datalink: pcap_file::DataLink::from(147),
        ..Default::default()
    };
    let mut writer = pcap_file::pcap::PcapWriter::with_header(&mut capture, header).unwrap();
    for message in messages {
        let length = message.len() as u32;
        let packet = pcap_file::pcap::PcapPacket::new(std::time::Duration::ZERO, length, message).unwrap();
        writer.write_packet(&packet).unwrap();
    }
    let mut arguments =
        vec!["-n", "-o", "uat:user_dlts:\"User 0 (DLT=147)\",\"openflow\",\"0\",\"\",\"0\",\"\""];
    arguments.extend(["-T", "fields", "-E", "separator=|"]);
    fields.iter().for_each(|field| arguments.extend(["-e", field]));
    arguments.push("-r");
    printed("tshark", &arguments, &capture).lines().map(str::to_owned).collect()
}
