//! Arguments that describe the frames, for all commands that send frames.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use ringroad_capture::CaptureReader;
use ringroad_traffic::definition::{StreamDefinition, StreamList};
use ringroad_traffic::frame_size_mix::FrameSizeMix;
use ringroad_traffic::header::{
    DEFAULT_SOURCE_PORT, DISCARD_PORT, Ethernet, Header, HexBytes, Icmp, Ipv4, Ipv6, Tcp, Udp, Vlan, Vxlan,
};
use ringroad_wire::mac::Mac;

use crate::failure::Failure;
use crate::number_parsers::count;
use crate::text_files::read_text;

/// Arguments that describe the frames.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Frames")]
pub(crate) struct FrameOptions {
    /// Frame size in bytes, FCS included; the slot has 4 bytes less. 64, 64,512,1518 in turn, 64-1518, imix, or sizes
    /// with weights: 64:7,594:4,1518:1
    #[arg(long, value_name = "SIZES", default_value = "64")]
    size: FrameSizeMix,
    /// Protocol above IP
    #[arg(long, value_enum, default_value_t = Protocol::Udp)]
    protocol: Protocol,
    /// Destination Ethernet address
    #[arg(long, value_name = "MAC", default_value_t = Ethernet::default().destination)]
    dst_mac: Mac,
    /// Source Ethernet address
    #[arg(long, value_name = "MAC", default_value_t = Ethernet::default().source)]
    src_mac: Mac,
    /// VLAN of the frames; two are the outer and the inner one
    #[arg(long, value_name = "ID[,ID]", value_delimiter = ',', num_args = 1..=2)]
    vlan: Vec<u16>,
    /// Source IP address, IPv4 or IPv6
    #[arg(long, value_name = "IP", default_value_t = Ipv4::default().source.into())]
    src_ip: IpAddr,
    /// Destination IP address, of the same family
    #[arg(long, value_name = "IP", default_value_t = Ipv4::default().destination.into())]
    dst_ip: IpAddr,
    /// Source UDP or TCP port, of the first flow
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SOURCE_PORT)]
    src_port: u16,
    /// Destination UDP or TCP port
    #[arg(long, value_name = "N", default_value_t = DISCARD_PORT)]
    dst_port: u16,
    /// Put the frames into a VXLAN tunnel with this network identifier
    #[arg(long, value_name = "VNI")]
    vxlan: Option<u32>,
    /// Number of flows, by different source ports, and by different source IP addresses once ports run out
    #[arg(long, value_name = "N", default_value = "1", value_parser = count)]
    flows: u64,
    /// Give each flow its own source Ethernet address too
    #[arg(long)]
    flow_macs: bool,
    /// Send frames without number, time and checksum in their last bytes: receivers cannot measure them
    #[arg(long)]
    no_signature: bool,
    /// Send this frame instead of described ones: its bytes without FCS, in hexadecimal digits
    #[arg(long, value_name = "HEX", conflicts_with_all = ["pcap", "size", "vlan", "vxlan"])]
    frame: Option<HexBytes>,
    /// Send a frame of a capture file instead: FILE, or FILE#N for the frame after N others
    #[arg(long, value_name = "FILE[#N]", conflicts_with_all = ["size", "vlan", "vxlan"])]
    pcap: Option<String>,
    /// Send this stream instead, as TOML: 'size = "imix", packet = [{ethernet = {}}, {ipv6 = {}}, {udp = {}}]'; may be
    /// given several times
    #[arg(long = "stream", value_name = "TOML", conflicts_with_all = ["frame", "pcap", "size"])]
    stream: Vec<String>,
    /// Send the streams that this TOML file defines
    #[arg(long, value_name = "FILE", conflicts_with_all = ["frame", "pcap", "size", "stream"])]
    streams: Option<PathBuf>,
}

/// The protocol above IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    Udp,
    /// TCP segments without a connection, one per frame
    Tcp,
    /// Echo requests
    Icmp,
}

impl FrameOptions {
    /// Returns the requested streams.
    pub(crate) fn streams(&self) -> Result<Vec<StreamDefinition>, Failure> {
        let mut list = if let Some(file) = &self.streams {
            read_list(file)?
        } else if self.stream.is_empty() {
            StreamList { streams: vec![self.single()?] }
        } else {
            let streams: Result<_, _> = self.stream.iter().map(|text| inline(text)).collect();
            StreamList { streams: streams? }
        };
        list.name_streams().map_err(|error| Failure::new(error.to_string(), ""))?;
        list.streams.into_iter().map(with_template).collect()
    }

    fn single(&self) -> Result<StreamDefinition, Failure> {
        let plain = StreamDefinition {
            signature: !self.no_signature,
            flows: self.flows,
            flow_macs: self.flow_macs,
            ..StreamDefinition::default()
        };
        if let Some(frame) = &self.frame {
            return Ok(plain.with_template(frame.0.clone()));
        }
        if let Some(template) = &self.pcap {
            let (file, index) = template.rsplit_once('#').unwrap_or((template.as_str(), "0"));
            let index = index.parse().map_err(|_| {
                let message = format!("\"{index}\" is not a frame number");
                Failure::usage(message, "write FILE#N, counted from 0")
            })?;
            return Ok(plain.with_template(frame_of(Path::new(file), index)?));
        }
        Ok(StreamDefinition { size: Some(self.size.clone()), packet: Some(self.packet()?), ..plain })
    }

    fn packet(&self) -> Result<Vec<Header>, Failure> {
        let ethernet = Header::Ethernet(Ethernet {
            source: self.src_mac,
            destination: self.dst_mac,
            ..Ethernet::default()
        });
        let mut packet = Vec::new();
        if let Some(vni) = self.vxlan {
            packet.extend([
                Header::Ethernet(Ethernet::default()),
                Header::Ipv4(Ipv4::default()),
                Header::Udp(Udp::default()),
                Header::Vxlan(Vxlan { vni }),
            ]);
        }
        packet.push(ethernet);
        packet.extend(self.vlan.iter().map(|id| Header::Vlan(Vlan { id: *id, ..Vlan::default() })));
        let is_ipv6 = self.src_ip.is_ipv6();
        packet.push(match (self.src_ip, self.dst_ip) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Header::Ipv4(Ipv4 { source, destination, ..Ipv4::default() })
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Header::Ipv6(Ipv6 { source, destination, ..Ipv6::default() })
            }
            (source, destination) => {
                return Err(Failure::usage(
                    format!("{source} and {destination} are of different families"),
                    "give both --src-ip and --dst-ip as IPv4 or as IPv6 addresses",
                ));
            }
        });
        packet.push(match self.protocol {
            Protocol::Udp => {
                Header::Udp(Udp { source: self.src_port, destination: Some(self.dst_port), ..Udp::default() })
            }
            Protocol::Tcp => {
                Header::Tcp(Tcp { source: self.src_port, destination: self.dst_port, ..Tcp::default() })
            }
            Protocol::Icmp if is_ipv6 => Header::Icmpv6(Icmp::default()),
            Protocol::Icmp => Header::Icmp(Icmp::default()),
        });
        Ok(packet)
    }
}

fn read_list(file: &Path) -> Result<StreamList, Failure> {
    let list = parse(&read_text(file)?).map_err(|error| in_file(file, &error))?;
    if list.streams.is_empty() {
        return Err(in_file(file, "it defines no [[stream]]"));
    }
    Ok(list)
}

fn parse(text: &str) -> Result<StreamList, String> {
    let toml = toml::Deserializer::parse(text).map_err(|error| error.to_string())?;
    StreamList::read(toml).map_err(|error| error.to_string())
}

fn in_file(file: &Path, error: &str) -> Failure {
    Failure::new(
        format!("{}: {}", file.display(), error.trim_end()),
        "see docs/generator.md for how streams are defined",
    )
}

/// Parses a stream on the command line: the content of its TOML table, with or without braces.
fn inline(text: &str) -> Result<StreamDefinition, Failure> {
    let braced = text.trim().starts_with('{');
    let text = if braced { format!("stream = [{text}]") } else { format!("stream = [{{{text}}}]") };
    let told = |error: String| {
        Failure::usage(
            format!("--stream: {}", error.trim_end()),
            "see docs/generator.md for how streams are defined",
        )
    };
    let mut list = parse(&text).map_err(told)?;
    if list.streams.len() != 1 {
        return Err(told("give one stream; for several give --stream several times".to_owned()));
    }
    let mut stream = list.streams.remove(0);
    if stream.name == "stream 0" {
        // An empty name makes the generator name the stream by its position in the list.
        stream.name.clear();
    }
    Ok(stream)
}

/// Adds the frame of the capture file that the stream names, if any.
pub(crate) fn with_template(stream: StreamDefinition) -> Result<StreamDefinition, Failure> {
    match stream.pcap.clone() {
        Some(template) => Ok(stream.with_template(frame_of(&template.file, template.index)?)),
        None => Ok(stream),
    }
}

/// Reads frame number `index` of a capture file.
pub(crate) fn frame_of(file: &Path, index: u64) -> Result<Vec<u8>, Failure> {
    let mut reader = CaptureReader::open(file)?;
    let mut frames = 0;
    while let Some(frame) = reader.next_frame()? {
        if frames == index {
            return Ok(frame.bytes.to_vec());
        }
        frames += 1;
    }
    Err(Failure::new(
        format!("{} has no frame number {index}: it has {frames}", file.display()),
        "frames are counted from 0",
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Parsed {
        #[command(flatten)]
        frames: FrameOptions,
    }

    fn streams(arguments: &[&str]) -> Result<Vec<StreamDefinition>, Failure> {
        let all = std::iter::once("gen").chain(arguments.iter().copied());
        Parsed::try_parse_from(all).unwrap().frames.streams()
    }

    /// Returns the first frame of the only stream.
    fn frame(arguments: &[&str]) -> Vec<u8> {
        streams(arguments).unwrap()[0].compile(0).unwrap().next_frame(0).to_vec()
    }

    #[test]
    fn the_default_frame_is_a_short_udp_datagram() {
        let frame = frame(&[]);
        assert_eq!(frame.len(), 60);
        let packet = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
        assert!(matches!(packet.transport, Some(etherparse::TransportSlice::Udp(_))));
    }

    #[test]
    fn headers_follow_the_arguments() {
        let frame = frame(&[
            "--vlan",
            "10,20",
            "--src-ip",
            "2001:db8::1",
            "--dst-ip",
            "2001:db8::2",
            "--protocol",
            "tcp",
            "--size",
            "128",
        ]);
        let packet = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
        assert_eq!(packet.vlan_ids().iter().map(|id| id.value()).collect::<Vec<_>>(), [10, 20]);
        assert!(packet.net.unwrap().ipv6_ref().is_some());
        assert!(matches!(packet.transport, Some(etherparse::TransportSlice::Tcp(_))));
    }

    #[test]
    fn streams_can_be_given_inline() {
        let both =
            streams(&["--stream", "size = 128, weight = 2", "--stream", "{name = \"b\", size = \"imix\"}"])
                .unwrap();
        let named: Vec<_> = both.iter().map(|stream| (stream.name.as_str(), stream.weight)).collect();
        assert_eq!(named, [("stream 0", 2), ("b", 1)]);
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (arguments, told) in [
            (vec!["--src-ip", "::1"], "different families"),
            (vec!["--pcap", "/nonexistent"], "/nonexistent"),
            (vec!["--streams", "/nonexistent"], "/nonexistent"),
            (vec!["--stream", "size = 63"], "64 to 65539"),
            (vec!["--stream", "sice = 64"], "sice"),
            (vec!["--stream", "size = "], "--stream"),
        ] {
            let failure = streams(&arguments).unwrap_err().to_string();
            assert!(failure.contains(told), "{failure}");
        }
    }
}
