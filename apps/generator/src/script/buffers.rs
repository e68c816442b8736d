//! Arrays of buffers of scripts, and the changes to their frames at the next send.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use mlua::{UserData, UserDataMethods};

use super::memory::FrameBlock;

/// Greatest size of one task's buffers, bytes.
const MOST_BYTES: usize = 256 << 20;

/// Checksums that a send computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ChecksumOffload {
    /// No checksum: frames are sent unchanged.
    #[default]
    Nothing,
    /// The checksum of the IPv4 header.
    Ip,
    /// The checksum of the IPv4 header, and the UDP, TCP or ICMP checksum after the IP header.
    Transport,
}

/// The buffers of all arrays of one task. Buffers live as long as the task, because a script may keep a buffer longer
/// than its array.
#[derive(Debug, Default)]
pub(super) struct Arena {
    blocks: RefCell<Vec<Rc<RefCell<FrameBlock>>>>,
    bytes: Cell<usize>,
}

impl Arena {
    /// Makes an array of `count` buffers of `capacity` bytes.
    pub(super) fn array(&self, count: usize, capacity: usize) -> mlua::Result<BufferArray> {
        let bytes = self.bytes.get().saturating_add(FrameBlock::bytes_for(count, capacity));
        let block = if bytes > MOST_BYTES { None } else { FrameBlock::new(count, capacity) };
        let Some(block) = block else {
            return Err(mlua::Error::runtime(format!(
                "{count} buffers of {capacity} bytes are too many beside the {} MiB that this task has: a task may \
                 have 256 MiB. Make buffer arrays once, before the loop; they live as long as the task",
                self.bytes.get() >> 20
            )));
        };
        self.bytes.set(bytes);
        let block = Rc::new(RefCell::new(block));
        self.blocks.borrow_mut().push(Rc::clone(&block));
        Ok(BufferArray { block, offload: Cell::default(), stream: Cell::default() })
    }
}

#[derive(Debug)]
pub(super) struct BufferArray {
    /// The frames.
    pub(super) block: Rc<RefCell<FrameBlock>>,
    offload: Cell<ChecksumOffload>,
    stream: Cell<Option<u16>>,
}

impl BufferArray {
    /// Takes the settings for the send that begins. The next send starts without them.
    pub(super) fn take_offloads(&self) -> (ChecksumOffload, Option<u16>) {
        (self.offload.take(), self.stream.take())
    }
}

impl UserData for BufferArray {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("offload", |_, this, what: String| {
            let offload = if what == "ip" { ChecksumOffload::Ip } else { ChecksumOffload::Transport };
            if this.offload.get() != ChecksumOffload::Transport {
                this.offload.set(offload);
            }
            Ok(())
        });
        methods.add_method("sign", |_, this, stream: u16| {
            this.stream.set(Some(stream));
            Ok(())
        });
    }
}
