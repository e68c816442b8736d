//! The null port. It delivers an endless stream of frames of one size and accepts all frames, to measure the cost of
//! everything else.
//!
//! Without `copy` a frame costs only its bookkeeping. With `copy` the bytes are copied once in each direction, as a
//! device's driver would do. DPDK's null driver has these two modes, too.
#![allow(unsafe_code)]

use ringroad_port::batch::{BATCH_FRAMES, Batch};
use ringroad_port::frame::Fragment;
use ringroad_port::port_queue::{Delivery, HandOver, PortCapabilities, PortQueue, Sleep, Upgrade};
use ringroad_port::roles;

use crate::catalogue::port_kind::{NameTarget, OpenContext, OpenedBy, PortKind, Spelling};
use crate::catalogue::port_option::{PortOption, ValueKind};
use crate::device::{Device, DeviceError};

/// EtherType for local experiments (IEEE 802), so that no receiver mistakes these frames for others.
const LOCAL_EXPERIMENTAL: [u8; 2] = [0x88, 0xB5];

const SIZE: PortOption = PortOption::new(
    "size",
    ValueKind::Number { least: 14, most: 65535 },
    "60",
    "length of every frame it gives, bytes without FCS",
);
const COPY: PortOption =
    PortOption::new("copy", ValueKind::Flag, "0", "copy the bytes, as the driver of a card would");
const NO_RX: PortOption = PortOption::new("no-rx", ValueKind::Flag, "0", "give no frames, only take them");

/// Null ports.
pub(crate) const KINDS: &[PortKind] = &[PortKind {
    driver: "null",
    spelling: Spelling::Scheme("null"),
    form: "null:size=60,copy=0,no-rx=0",
    about: "gives frames without end and takes everything, to measure what the rest costs",
    page: None,
    target: NameTarget::Settings,
    options: &[&SIZE, &COPY, &NO_RX],
    access: OpenedBy::Program,
    plan: |planning| planning.any_queues(),
    open,
}];

fn open(context: OpenContext<'_>) -> Result<Device, DeviceError> {
    let options = &context.options.device;
    let size_bytes = options.number(&SIZE).unwrap_or(60);
    let copy = options.flag(&COPY).unwrap_or(false);
    let no_rx = options.flag(&NO_RX).unwrap_or(false);
    let queue = |_| Box::new(NullQueue::new(size_bytes, copy, no_rx)) as Box<dyn PortQueue>;
    let mode = format!("null, {size_bytes} B frames, {}", if copy { "copied" } else { "not copied" });
    let capabilities = PortCapabilities { driver: "null", mode, max_frame_bytes: 65535 };
    Ok(Device::new((0..context.plan.queues).map(queue).collect(), capabilities))
}

/// One queue of a null port.
#[derive(Debug)]
pub struct NullQueue {
    template: Vec<u8>,
    copy: bool,
    no_rx: bool,
    /// Memory with one buffer per frame of a batch, if frames are copied.
    arena: Vec<u8>,
    sink: Vec<u8>,
}

impl NullQueue {
    /// A queue that delivers frames of `size_bytes` bytes (without FCS).
    #[must_use]
    pub fn new(size_bytes: u16, copy: bool, no_rx: bool) -> Self {
        let size = usize::from(size_bytes);
        let mut template = vec![0; size];
        let header = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, LOCAL_EXPERIMENTAL[0], LOCAL_EXPERIMENTAL[1]];
        for (to, from) in template.iter_mut().zip(header) {
            *to = from;
        }
        let arena = if copy { vec![0; size * BATCH_FRAMES] } else { Vec::new() };
        Self { template, copy, no_rx, arena, sink: vec![0; usize::from(u16::MAX)] }
    }
}

impl PortQueue for NullQueue {
    fn receive(&mut self, batch: &mut Batch) {
        if self.no_rx {
            return;
        }
        if self.copy {
            for buffer in self.arena.chunks_exact_mut(self.template.len()) {
                if !batch.has_room(1) {
                    return;
                }
                buffer.copy_from_slice(&self.template);
                // SAFETY: the arena is never resized and lives as long as the queue does.
                batch.push(unsafe { Fragment::from_private(buffer, 0) }, true);
            }
        } else {
            // SAFETY: the template never changes and lives as long as the queue does.
            let frame = unsafe { Fragment::from_private(&self.template, 0) };
            batch.push_all(std::iter::repeat(frame));
        }
    }

    fn is_empty(&mut self) -> bool {
        self.no_rx
    }

    fn release(&mut self, _fragments: usize) {}

    fn deliver(&mut self, batch: &mut Batch, frames: &[u16]) -> Delivery {
        let mut delivery = Delivery { frames: frames.len() as u32, ..Delivery::default() };
        if !self.copy && batch.is_whole(frames) {
            delivery.bytes = batch.bytes();
            return delivery;
        }
        for &frame in frames {
            for fragment in batch.frame(usize::from(frame)) {
                delivery.bytes += fragment.len() as u64;
                if self.copy {
                    fragment.bytes().read(&mut self.sink);
                }
            }
        }
        delivery
    }

    fn longest_frame_bytes(&mut self) -> usize {
        self.template.len()
    }

    roles! { sleeper: Sleep, upgrade: Upgrade }
}

impl Upgrade for NullQueue {
    fn hand_over(&mut self) -> Option<HandOver> {
        Some(HandOver::default())
    }
}

impl Sleep for NullQueue {
    fn has_waiting(&mut self) -> bool {
        !self.no_rx
    }
}
