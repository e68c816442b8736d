//! Report of a trace, with the names of ports.

use ringroad_control::report::{
    TraceReport, TracedDeliveryReport, TracedFrameReport, TracedReason, TracedSource,
};
use ringroad_datapath::fabric::Fabric;
use ringroad_port::port_index::PortIndex;
use ringroad_port::trace::{Reason, SourceSeen, TracedDelivery, TracedFrame};

/// Report of the running trace; an empty one if no trace runs.
pub(crate) fn report(fabric: &Fabric) -> TraceReport {
    let Some((switch, frames, left)) = fabric.traced() else {
        return TraceReport { frames: Vec::new(), left: 0 };
    };
    TraceReport {
        frames: frames.into_iter().map(|frame| frame_report(fabric, switch, frame)).collect(),
        left,
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn frame_report(fabric: &Fabric, switch: &str, frame: TracedFrame) -> TracedFrameReport {
    let name = |port: PortIndex| match fabric.port_name(switch, port) {
        Some(name) => format!("{switch}:{name}"),
        None => format!("{switch}: a port that left"),
    };
    let (source, source_port) = match frame.source {
        SourceSeen::Known => (TracedSource::Known, None),
        SourceSeen::New => (TracedSource::Learned, None),
        SourceSeen::Moved(port) => (TracedSource::Moved, Some(name(port))),
        SourceSeen::Refused(port) => (TracedSource::Refused, Some(name(port))),
        SourceSeen::NotLearned => (TracedSource::NotLearned, None),
    };
    let delivery = |TracedDelivery { worker, queue_index, frames, dropped, is_held }: TracedDelivery| {
        let queue = fabric.queue_at(switch, worker, queue_index);
        TracedDeliveryReport {
            port: queue.map(|(port, _)| format!("{switch}:{port}")),
            queue: queue.map_or(0, |(_, number)| number as u32),
            frames,
            dropped: dropped.map(|cause| cause.name().to_owned()),
            held: is_held,
        }
    };
    TracedFrameReport {
        time_ns: frame.time_ns,
        from: name(frame.from),
        len: frame.len as u64,
        fragments: frame.fragments as u32,
        unfinished: frame.is_unfinished,
        start: hex(&frame.start),
        source,
        source_port,
        reason: match frame.reason {
            Reason::Known => TracedReason::Known,
            Reason::Unknown => TracedReason::Unknown,
            Reason::Multicast => TracedReason::Multicast,
            Reason::Forced => TracedReason::Forced,
        },
        to: frame.to.iter().map(name).collect(),
        dropped: frame.dropped.map(|cause| cause.name().to_owned()),
        deliveries: frame.deliveries.into_iter().map(delivery).collect(),
    }
}
