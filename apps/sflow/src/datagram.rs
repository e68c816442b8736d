//! Datagrams in XDR (RFC 4506): big-endian words of 32 bits. A byte string of variable length has its length before it,
//! and zeros after it to the next word.

use std::net::IpAddr;

/// Longest datagram, bytes: it fits a link with an MTU of 1500, with IPv6, UDP and some tunnel (section 5).
pub const MAX_DATAGRAM_BYTES: usize = 1400;
/// Maximum number of bytes of a frame in a sample.
pub const MAX_HEADER_BYTES: usize = 256;
/// Longest name of a port in a sample, bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Bytes of version, agent with an IPv6 address, sub-agent, sequence, uptime, number of samples.
const DATAGRAM_HEADER_BYTES: usize = 40;
/// Bytes of the FCS. The datapath does not see the FCS. A sample counts it in the frame's length, and as stripped
/// (section 5).
pub(crate) const FCS_BYTES: u32 = 4;

/// Format of a standard structure. Its enterprise is 0, so the format alone is the data format.
const FLOW_SAMPLE: u32 = 1;
const COUNTERS_SAMPLE: u32 = 2;
const SAMPLED_HEADER: u32 = 1;
const IF_COUNTERS: u32 = 1;
const PORT_NAME: u32 = 1005;

/// `header_protocol`: Ethernet of ISO 8023.
const ETHERNET: u32 = 1;
/// `ifType` of IANA: `ethernetCsmacd`.
const ETHERNET_CSMACD: u32 = 6;
const FULL_DUPLEX: u32 = 1;
/// Value of a counter that does not exist.
const UNKNOWN: u32 = u32::MAX;

/// Destination of a sampled frame (`interface`, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampledOutput {
    /// One interface, by index.
    Interface(u32),
    /// Several ports, by number.
    Several(u32),
    /// No destination, for an unreported reason.
    Nowhere,
}

impl SampledOutput {
    fn word(self) -> u32 {
        match self {
            Self::Interface(index) => index,
            Self::Nowhere => 1 << 30 | 256,
            Self::Several(count) => 2 << 30 | count,
        }
    }
}

/// A sampled frame (`flow_sample` with one `sampled_header`).
#[derive(Debug, Clone, Copy)]
pub struct FlowSample<'a> {
    /// Sequence number among the samples of the source.
    pub sequence: u32,
    /// ifIndex of the port that received the frame, which is also the data source. 24 bits.
    pub input: u32,
    /// Sampling rate N: one of N frames is sampled.
    pub sampling_rate: u32,
    /// Number of frames from which the samples of the source were taken.
    pub sample_pool: u32,
    /// Number of samples that were lost before they reached the exporter.
    pub drops: u32,
    /// Destination of the frame.
    pub output: SampledOutput,
    /// Length of the frame, bytes, without FCS.
    pub frame_bytes: u32,
    /// First bytes of the frame; bytes beyond [`MAX_HEADER_BYTES`] are left out.
    pub header: &'a [u8],
}

/// The state of a port (`counters_sample` with `if_counters` and `port_name`).
#[derive(Debug, Clone, Copy)]
pub struct CounterSample<'a> {
    /// Sequence number among the samples of the source.
    pub sequence: u32,
    /// ifIndex of the port, 24 bits.
    pub interface: u32,
    /// Name of the port, cut off at [`MAX_NAME_BYTES`].
    pub name: &'a str,
    /// `ifSpeed`, bit/s; 0 if unknown.
    pub speed_bps: u64,
    /// `ifAdminStatus`: true for up.
    pub is_enabled: bool,
    /// `ifOperStatus`: true for up.
    pub is_up: bool,
    /// Counters of received frames.
    pub received: DirectionCounters,
    /// Counters of sent frames.
    pub sent: DirectionCounters,
}

/// Counters of an interface in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirectionCounters {
    /// Number of bytes, with FCS.
    pub octets: u64,
    /// Frames of all kinds, since the datapath does not distinguish them.
    pub frames: u64,
    /// Number of valid frames that were dropped.
    pub discards: u64,
    /// Number of invalid frames that were dropped.
    pub errors: u64,
}

/// Sender and time of a datagram.
#[derive(Debug, Clone, Copy)]
pub struct DatagramSender {
    /// Address of the agent.
    pub agent: IpAddr,
    /// Number that distinguishes processes with the same agent address.
    pub sub_agent: u32,
    /// Sequence number among the sender's datagrams.
    pub sequence: u32,
    /// Time since the start, ms.
    pub uptime_ms: u32,
}

/// Samples for one datagram. Their memory is allocated once.
#[derive(Debug)]
pub struct Samples {
    bytes: Vec<u8>,
    count: u32,
    datagram: Vec<u8>,
}

impl Default for Samples {
    fn default() -> Self {
        let memory = || Vec::with_capacity(MAX_DATAGRAM_BYTES);
        Self { bytes: memory(), count: 0, datagram: memory() }
    }
}

impl Samples {
    /// Returns the number of samples.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Adds a sampled frame. Returns `false`, and adds nothing, if there is no room left.
    #[must_use]
    pub fn add_flow(&mut self, sample: &FlowSample<'_>) -> bool {
        let header = sample.header.get(..MAX_HEADER_BYTES).unwrap_or(sample.header);
        self.add(FLOW_SAMPLE, |bytes| {
            words(
                bytes,
                &[
                    sample.sequence,
                    sample.input,
                    sample.sampling_rate,
                    sample.sample_pool,
                    sample.drops,
                    sample.input,
                    sample.output.word(),
                    1,
                ],
            );
            structure(bytes, SAMPLED_HEADER, |bytes| {
                words(bytes, &[ETHERNET, sample.frame_bytes.saturating_add(FCS_BYTES), FCS_BYTES]);
                opaque(bytes, header);
            });
        })
    }

    /// Adds the state of a port. Returns `false`, and adds nothing, if there is no room left.
    #[must_use]
    pub fn add_counters(&mut self, sample: &CounterSample<'_>) -> bool {
        let CounterSample { interface, received, sent, .. } = *sample;
        let name = sample.name.as_bytes();
        let name = name.get(..MAX_NAME_BYTES).unwrap_or(name);
        self.add(COUNTERS_SAMPLE, |bytes| {
            words(bytes, &[sample.sequence, interface, 2]);
            structure(bytes, IF_COUNTERS, |bytes| {
                words(bytes, &[interface, ETHERNET_CSMACD]);
                long(bytes, sample.speed_bps);
                words(bytes, &[FULL_DUPLEX, u32::from(sample.is_enabled) | u32::from(sample.is_up) << 1]);
                // A counter of 32 bits wraps. Multicasts and broadcasts are included in the frames.
                long(bytes, received.octets);
                let DirectionCounters { frames, discards, errors, .. } = received;
                words(bytes, &[frames as u32, UNKNOWN, UNKNOWN, discards as u32, errors as u32, UNKNOWN]);
                long(bytes, sent.octets);
                let DirectionCounters { frames, discards, errors, .. } = sent;
                words(bytes, &[frames as u32, UNKNOWN, UNKNOWN, discards as u32, errors as u32]);
                // `ifPromiscuousMode`.
                words(bytes, &[0]);
            });
            structure(bytes, PORT_NAME, |bytes| opaque(bytes, name));
        })
    }

    fn add(&mut self, format: u32, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let before = self.bytes.len();
        structure(&mut self.bytes, format, write);
        let has_room = DATAGRAM_HEADER_BYTES + self.bytes.len() <= MAX_DATAGRAM_BYTES;
        if has_room {
            self.count += 1;
        } else {
            self.bytes.truncate(before);
        }
        has_room
    }

    /// Makes the datagram of the samples (`sample_datagram_v5`), which are removed.
    pub fn take(&mut self, sender: DatagramSender) -> &[u8] {
        let Self { bytes, count, datagram } = self;
        datagram.clear();
        words(datagram, &[5]);
        match sender.agent {
            IpAddr::V4(address) => {
                words(datagram, &[1]);
                datagram.extend(address.octets());
            }
            IpAddr::V6(address) => {
                words(datagram, &[2]);
                datagram.extend(address.octets());
            }
        }
        words(datagram, &[sender.sub_agent, sender.sequence, sender.uptime_ms, *count]);
        datagram.append(bytes);
        *count = 0;
        datagram
    }
}

fn words(bytes: &mut Vec<u8>, words: &[u32]) {
    bytes.extend(words.iter().flat_map(|word| word.to_be_bytes()));
}

fn long(bytes: &mut Vec<u8>, value: u64) {
    bytes.extend(value.to_be_bytes());
}

fn opaque(bytes: &mut Vec<u8>, content: &[u8]) {
    words(bytes, &[content.len() as u32]);
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// Writes a structure after its data format and its length.
fn structure(bytes: &mut Vec<u8>, format: u32, write: impl FnOnce(&mut Vec<u8>)) {
    words(bytes, &[format, 0]);
    let begin = bytes.len();
    write(bytes);
    let len = (bytes.len() - begin) as u32;
    if let Some(target) = bytes.get_mut(begin - 4..begin) {
        target.copy_from_slice(&len.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    const SENDER: DatagramSender = DatagramSender {
        agent: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 9)),
        sub_agent: 7,
        sequence: 3,
        uptime_ms: 1500,
    };
    const FLOW: FlowSample<'_> = FlowSample {
        sequence: 11,
        input: 0x80_0102,
        sampling_rate: 1000,
        sample_pool: 10_500,
        drops: 2,
        output: SampledOutput::Interface(0x80_0103),
        frame_bytes: 60,
        header: &[0xaa, 0xbb, 0xcc, 0xdd, 0xee],
    };
    const COUNTERS: CounterSample<'_> = CounterSample {
        sequence: 4,
        interface: 0x80_0102,
        name: "vale0:a",
        speed_bps: 10_000_000_000,
        is_enabled: true,
        is_up: false,
        received: DirectionCounters { octets: 1 << 33, frames: (1 << 32) + 5, discards: 6, errors: 7 },
        sent: DirectionCounters { octets: 8, frames: 9, discards: 10, errors: 11 },
    };

    /// Converts hexadecimal digits to bytes.
    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<_> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
        digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
    }

    #[test]
    fn a_flow_sample_has_these_bytes() {
        let mut samples = Samples::default();
        assert!(samples.add_flow(&FLOW));
        let wanted = hex("00000005 00000001 c0000209 00000007 00000003 000005dc 00000001
             00000001 00000040
             0000000b 00800102 000003e8 00002904 00000002 00800102 00800103 00000001
             00000001 00000018
             00000001 00000040 00000004 00000005 aabbccdd ee000000");
        assert_eq!(samples.take(SENDER), wanted);
        assert_eq!(samples.count(), 0);
    }

    #[test]
    fn a_counter_sample_has_these_bytes() {
        let mut samples = Samples::default();
        assert!(samples.add_counters(&COUNTERS));
        let wanted =
            hex("00000005 00000002 20010db8 00000000 00000000 00000001 00000007 00000003 000005dc 00000001
             00000002 00000080
             00000004 00800102 00000002
             00000001 00000058
             00800102 00000006 00000002540be400 00000001 00000001
             0000000200000000 00000005 ffffffff ffffffff 00000006 00000007 ffffffff
             0000000000000008 00000009 ffffffff ffffffff 0000000a 0000000b 00000000
             000003ed 0000000c
             00000007 76616c65 303a6100");
        let agent = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
        assert_eq!(samples.take(DatagramSender { agent, ..SENDER }), wanted);
    }

    #[test]
    fn an_output_other_than_a_port_has_its_own_format() {
        let words = [SampledOutput::Nowhere, SampledOutput::Several(3)].map(SampledOutput::word);
        assert_eq!(words, [0x4000_0100, 0x8000_0003]);
    }

    proptest! {
        #[test]
        fn a_datagram_is_never_too_long_and_has_the_samples_that_were_added(
            inputs in proptest::collection::vec((any::<bool>(), 0..600usize), 1..40), is_v6: bool,
        ) {
            let agent = if is_v6 { IpAddr::V6(Ipv6Addr::LOCALHOST) } else { SENDER.agent };
            let mut samples = Samples::default();
            for (is_flow, len) in inputs {
                let (header, name) = (vec![1; len], "n".repeat(len));
                let flow = FlowSample { header: &header, ..FLOW };
                let counters = CounterSample { name: &name, ..COUNTERS };
                let add = |samples: &mut Samples| match is_flow {
                    true => samples.add_flow(&flow),
                    false => samples.add_counters(&counters),
                };
                if add(&mut samples) {
                    continue;
                }
                let count = samples.count();
                let datagram = samples.take(DatagramSender { agent, ..SENDER }).to_vec();
                prop_assert!(datagram.len() <= MAX_DATAGRAM_BYTES && datagram.len().is_multiple_of(4));
                let header = if is_v6 { 40 } else { 28 };
                prop_assert_eq!(&datagram[header - 4..header], &count.to_be_bytes());
                // Each sample has its length in its header.
                let (mut rest, mut found) = (&datagram[header..], 0);
                while let Some((head, behind)) = rest.split_first_chunk::<8>() {
                    let len = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
                    rest = &behind[len..];
                    found += 1;
                }
                prop_assert_eq!(found, count);
                prop_assert!(add(&mut samples), "an empty datagram has room for any sample");
            }
        }
    }
}
