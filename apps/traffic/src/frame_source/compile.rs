//! Compiles a definition to a plan for each size.

use std::ops::Range;

use super::plan::{LiveChecksum, MAX_LIVE_CHECKSUMS, SizePlan, Sums, checksum, counting, put_word, zero};
use super::{FrameSource, Modifier, Writer};
use crate::definition::{Problem, StreamDefinition, StreamError};
use crate::header::{HeaderKind, Layout, Span, set_bits};
use crate::line_rate::{FCS_BYTES, FrameSize};
use crate::modifier::{self, FrameMap, MAX_MODIFIERS, Varied};
use crate::rotation::Rotation;
use crate::signature::{SignatureForm, Signer};
use ringroad_wire::checksum::{counted, sum_bytes};

/// The frame of a definition, its sizes and its varying parts.
struct FrameTemplate {
    layout: Layout,
    /// The longest frame; varying and computed bytes are 0.
    pristine: Vec<u8>,
    varied: Vec<Varied>,
    checksums: Vec<Coverage>,
    /// The stream's number, if frames are signed.
    signed: Option<u16>,
    /// Offset after all headers and all modified bytes.
    constant_from: usize,
    /// Sum of the payload up to each of its bytes, computed once because there may be thousands of sizes.
    payload_sums: Vec<u64>,
}

/// Coverage of a computed checksum.
struct Coverage {
    at: usize,
    start: usize,
    /// End of the covered bytes; `None` is the end of the frame.
    end: Option<usize>,
    /// Covered addresses and protocol in the IP header before `start`.
    pseudo_header: Option<(Range<usize>, u8)>,
    zero_is_none: bool,
    /// Whether the checksum varies between frames of one size.
    live: bool,
}

impl FrameSource {
    pub(crate) fn compile(definition: &StreamDefinition, wire_stream: u16) -> Result<Self, StreamError> {
        let (layout, mut pristine, sizes, rotation) = frame_of(definition)?;
        let signed = definition.signature.then_some(wire_stream);
        let shortest = sizes.iter().map(|size| size.slot_bytes()).min().unwrap_or(0);
        if let Some(needed) = (layout.payload_start() > shortest).then_some(layout.payload_start()) {
            return Err(too_short(shortest, needed, 0, signed.is_some()));
        }
        let varied = varied(definition, &FrameMap { layout: &layout, frame: &pristine, shortest })?;
        for varied in &varied {
            set_bits(&mut pristine, varied.bit, varied.bits, 0);
        }
        for at in layout.spans.iter().flat_map(Span::computed) {
            put_word(&mut pristine, at as u16, 0);
        }
        let modified_to = varied.iter().map(|varied| varied.bytes().end).max().unwrap_or(0);
        let constant_from = modified_to.max(layout.payload_start());
        let checksums = coverages(&layout, &varied, signed.is_some())?;
        let payload_start = layout.payload_start();
        let mut payload_sums = vec![0];
        for (at, byte) in pristine.iter().enumerate().skip(payload_start) {
            let before = payload_sums.last().copied().unwrap_or(0);
            payload_sums.push(before + sum_bytes(&[*byte], at));
        }
        let mut blueprint =
            FrameTemplate { layout, pristine, varied, checksums, signed, constant_from, payload_sums };
        let plans: Result<Box<[SizePlan]>, _> = sizes.iter().map(|size| blueprint.plan(*size)).collect();
        let plans = plans?;
        if let [only] = &*plans {
            only.write_words(&mut blueprint.pristine);
        }
        let pristine = blueprint.pristine.clone().into_boxed_slice();
        let mut frame = pristine.clone();
        if let Some(first) = plans.first() {
            first.write_words(&mut frame);
        }
        let (next, writer) = (rotation.current(), blueprint.writer()?);
        Ok(Self { pristine, frame, next, shown: 0, plans, rotation, writer })
    }
}

/// The headers, the longest frame, the sizes and their order.
fn frame_of(
    definition: &StreamDefinition,
) -> Result<(Layout, Vec<u8>, Vec<FrameSize>, Rotation), StreamError> {
    if let Some(pcap) = &definition.pcap {
        let advice = format!(
            "frame {} of {} must be read before the stream is compiled",
            pcap.index,
            pcap.file.display()
        );
        return Err(StreamError::combination("pcap", advice));
    }
    let Some(template) = &definition.frame else {
        return frame_of_packet(definition);
    };
    let others = [
        ("packet", definition.packet.is_some()),
        ("size", definition.size.is_some()),
        ("payload", definition.payload.is_some()),
    ];
    if let Some((other, _)) = others.into_iter().find(|(_, given)| *given) {
        return Err(StreamError::combination(other, "a template has its own: leave it or the template out"));
    }
    let mut frame = template.0.clone();
    let given = frame.len();
    frame.resize(given.max(FrameSize::MIN.slot_bytes()), 0);
    let size = u32::try_from(frame.len())
        .ok()
        .and_then(|bytes| bytes.checked_add(FCS_BYTES))
        .and_then(|bytes| FrameSize::new(bytes).ok())
        .ok_or_else(|| {
            let allowed = format!("1 to {} bytes", FrameSize::MAX.slot_bytes());
            StreamError::out_of_range("frame", format!("a template of {given} bytes"), allowed)
        })?;
    let layout = Layout::of_frame(&frame, definition.fix_checksums.unwrap_or(true));
    Ok((layout, frame, vec![size], Rotation::in_turn(1)))
}

fn frame_of_packet(
    definition: &StreamDefinition,
) -> Result<(Layout, Vec<u8>, Vec<FrameSize>, Rotation), StreamError> {
    if definition.fix_checksums.is_some() {
        let advice = "it is for templates: set checksum in the headers instead";
        return Err(StreamError::combination("fix_checksums", advice));
    }
    let headers = definition.headers();
    if headers.is_empty() {
        return Err(StreamError::out_of_range("packet", "no header", "1 header at least"));
    }
    let layout = Layout::of_packet(&headers)?;
    let (sizes, rotation) = definition.size.clone().unwrap_or_default().rotation()?;
    let longest = sizes.iter().map(|size| size.slot_bytes()).max().unwrap_or(0);
    let mut frame = layout.bytes.clone();
    let payload = definition.payload.clone().unwrap_or_default();
    frame.extend(payload.bytes().take(longest.saturating_sub(layout.payload_start())));
    if frame.len() < longest {
        return Err(StreamError::out_of_range("payload", "no bytes", "1 byte at least"));
    }
    Ok((layout, frame, sizes, rotation))
}

fn varied(definition: &StreamDefinition, map: &FrameMap<'_>) -> Result<Vec<Varied>, StreamError> {
    let mut all = modifier::flows(map, definition.flows, definition.flow_macs)?;
    for (index, modifier) in definition.modify.iter().enumerate() {
        let varied = modifier::resolve(map, modifier, index)?;
        let overlaps =
            |other: &&Varied| varied.bit < other.bit + other.bits && other.bit < varied.bit + varied.bits;
        if let Some(other) = all.iter().find(overlaps) {
            let problem = Problem::Overlap { given: modifier.field.clone(), other: other.by.clone() };
            return Err(StreamError::at(format!("{}.field", varied.by), problem));
        }
        all.push(varied);
    }
    if all.len() > MAX_MODIFIERS {
        let allowed = format!("at most {MAX_MODIFIERS}, those of flows included");
        return Err(StreamError::out_of_range("modify", format!("{} modifiers", all.len()), allowed));
    }
    Ok(all)
}

fn too_short(slot_bytes: usize, headers: usize, modified: usize, signed: bool) -> StreamError {
    let fcs = FCS_BYTES as usize;
    let signature = if signed { SignatureForm::Tiny.bytes() } else { 0 };
    let mut needs = format!("{headers} bytes of headers");
    if modified > 0 {
        needs.push_str(&format!(", {modified} to the end of what is modified in the payload"));
    }
    if signed {
        needs.push_str(&format!(", {signature} of the shortest signature"));
    }
    let (size, least) = (slot_bytes + fcs, headers + modified + signature + fcs);
    StreamError::at("size", Problem::TooShort { size, least, needs })
}

/// The checksums to compute, the innermost first, because outer checksums cover inner ones.
fn coverages(layout: &Layout, varied: &[Varied], signed: bool) -> Result<Vec<Coverage>, StreamError> {
    let mut coverages: Vec<Coverage> = Vec::new();
    for (index, span) in layout.spans.iter().enumerate().rev() {
        let Some(at) = span.computed_checksum() else { continue };
        let end = (span.kind == HeaderKind::Ipv4).then(|| span.end());
        let ip = layout.ip_before(index).filter(|_| span.kind.spec().has_pseudo_header);
        let pseudo_header = ip.map(|ip| {
            let addresses = if ip.kind == HeaderKind::Ipv4 { 12..20 } else { 8..40 };
            let protocol = span.kind.spec().ip_protocol.unwrap_or(0);
            (ip.start + addresses.start..ip.start + addresses.end, protocol)
        });
        let mut coverage = Coverage {
            at,
            start: span.start,
            end,
            pseudo_header,
            zero_is_none: span.kind == HeaderKind::Udp,
            live: signed && end.is_none(),
        };
        for varied in varied {
            coverage.live |= coverage.counts(varied)?;
        }
        coverage.live |= coverages.iter().any(|inner| inner.live && coverage.covers(inner.at));
        coverages.push(coverage);
    }
    let live = coverages.iter().filter(|coverage| coverage.live).count();
    if live > MAX_LIVE_CHECKSUMS {
        let given = format!("{live} checksums that vary");
        let allowed = format!("at most {MAX_LIVE_CHECKSUMS}, others with checksum = \"zero\"");
        return Err(StreamError::out_of_range("packet", given, allowed));
    }
    Ok(coverages)
}

impl Coverage {
    /// Whether the checksum covers the byte at `at`.
    fn covers(&self, at: usize) -> bool {
        let within = at >= self.start && self.end.is_none_or(|end| at < end);
        within || self.pseudo_header.as_ref().is_some_and(|(addresses, _)| addresses.contains(&at))
    }

    /// Whether the checksum covers the field.
    fn counts(&self, varied: &Varied) -> Result<bool, StreamError> {
        let covered = varied.bytes().filter(|at| self.covers(*at)).count();
        match covered {
            0 => Ok(false),
            bytes if bytes == varied.bytes().len() => Ok(true),
            _ => Err(StreamError::combination(
                format!("{}.field", varied.by),
                "a checksum covers some of its bytes and some not: make it two modifiers, one on each side",
            )),
        }
    }
}

impl FrameTemplate {
    fn plan(&self, size: FrameSize) -> Result<SizePlan, StreamError> {
        let slot_bytes = size.slot_bytes();
        let signer = self.signed.map(|wire_stream| self.signer(slot_bytes, wire_stream)).transpose()?;
        let signature_at = slot_bytes - signer.as_ref().map_or(0, |signer| signer.form().bytes());

        let payload_start = self.layout.payload_start();
        let mut headers = self.pristine[..payload_start].to_vec();
        let payload_sum = self.payload_sums[signature_at - payload_start];
        let mut words = Vec::new();
        let mut put = |headers: &mut Vec<u8>, at: usize, word: u16| {
            put_word(headers, at as u16, word);
            words.push((at as u16, word));
        };
        for (at, from) in self.layout.spans.iter().filter_map(Span::computed_length) {
            put(&mut headers, at, (slot_bytes - from) as u16);
        }
        let mut sums = Sums::default();
        let mut live_sums = sums.iter_mut();
        for coverage in &self.checksums {
            let in_headers = coverage.start..coverage.end.unwrap_or(payload_start);
            let mut total = sum_bytes(&headers[in_headers], coverage.start);
            if coverage.end.is_none() {
                total += payload_sum;
            }
            if let Some((addresses, protocol)) = &coverage.pseudo_header {
                total += sum_bytes(&headers[addresses.clone()], addresses.start);
                for word in [(slot_bytes - coverage.start) as u16, u16::from(*protocol)] {
                    total += u64::from(counted(word, coverage.start));
                }
            }
            if coverage.live {
                if let Some(sum) = live_sums.next() {
                    *sum = total;
                }
            } else {
                let checksum = checksum(total, zero(coverage.zero_is_none));
                put(&mut headers, coverage.at, counted(checksum, coverage.at));
            }
        }
        Ok(SizePlan {
            slot_bytes,
            sums,
            words: words.into_boxed_slice(),
            signer,
            signature_at,
            signature_sum_shift: if signature_at.is_multiple_of(2) { 0 } else { 8 },
        })
    }

    /// The signer for the longest signature that there is room for. The signature covers all constant bytes before it.
    fn signer(&self, slot_bytes: usize, wire_stream: u16) -> Result<Signer, StreamError> {
        let room = slot_bytes.checked_sub(self.constant_from);
        let Some(form) = room.and_then(SignatureForm::longest_within) else {
            let headers = self.layout.payload_start();
            return Err(too_short(slot_bytes, headers, self.constant_from - headers, true));
        };
        let covered = &self.pristine[self.constant_from..slot_bytes - form.bytes()];
        Signer::new(form, wire_stream, covered).map_err(|error| {
            let size = slot_bytes + FCS_BYTES as usize;
            StreamError::combination("signature", format!("in frames of {size} bytes: {error}"))
        })
    }

    fn writer(&self) -> Result<Writer, StreamError> {
        let live: Vec<&Coverage> = self.checksums.iter().filter(|coverage| coverage.live).collect();
        let modifiers = self.varied.iter().map(|varied| {
            let counts: Result<Vec<bool>, _> = live.iter().map(|coverage| coverage.counts(varied)).collect();
            Ok(Modifier {
                field: varied.field,
                progress: varied.progress.clone(),
                counts_in: counting(counts?),
            })
        });
        let mut checksums = [LiveChecksum::default(); MAX_LIVE_CHECKSUMS];
        for (index, (inner, checksum)) in live.iter().zip(&mut checksums).enumerate() {
            let outer = live.iter().enumerate();
            let counts = outer.map(|(other, outer)| other > index && outer.covers(inner.at));
            *checksum = LiveChecksum::new(inner.at, inner.zero_is_none, counting(counts));
        }
        let nested = checksums.iter().any(|checksum| checksum.counts_in != Sums::default());
        Ok(Writer {
            modifiers: modifiers.collect::<Result<_, StreamError>>()?,
            checksums: Box::new(checksums),
            live: live.len(),
            plain: live.len() <= 2 && !nested,
            signature_counts_in: counting(live.iter().map(|coverage| coverage.end.is_none())),
            sequence: 0,
        })
    }
}
