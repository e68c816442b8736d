//! The memory of a channel: a sealed memfd with the control page, the descriptors block and the data blocks.
//!
//! The card makes the memory for a subscriber, and seals it, so that neither side can shorten it. Both sides map the
//! data blocks in the order of their descriptors, twice in a row. So a segment that continues at the start of the
//! buffer is still one piece of memory.
#![allow(unsafe_code)]

use core::sync::atomic::Ordering;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use ringroad_ring::mapping_guard::{ChildMemory, GuardError, MappingGuard};
use ringroad_ring::shared::SharedBytes;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::control_page::{CONTROL_PAGE_BYTES, ChannelState, ControlPage, Line, MAGIC, VERSION};
use crate::descriptors::{MAX_BLOCK_PAGES, PAGE_BYTES, PageRun, WORD_BYTES, WalkError, cycle, walk};
use crate::segment::ALIGNMENT;
use crate::segments::Segments;

/// Smallest buffer, bytes: two of the longest segments.
pub const MIN_BUFFER_BYTES: u64 = 128 << 10;
/// Largest buffer, bytes.
pub const MAX_BUFFER_BYTES: u64 = 4 << 30;
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Sizes of a buffer and its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelGeometry {
    /// Size of the buffer, bytes: a power of two from [`MIN_BUFFER_BYTES`] to [`MAX_BUFFER_BYTES`].
    pub buffer_bytes: u64,
    /// Size of a block, bytes: a power of two from [`PAGE_BYTES`] to 4 MiB, at most the size of the buffer.
    pub block_bytes: u64,
}

/// Reason why a channel has no memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The sizes are invalid.
    #[error(
        "a buffer of {buffer_bytes} bytes in blocks of {block_bytes}: choose powers of two, the buffer from 128 KiB to 4 GiB, blocks from 4 KiB to 4 MiB and no larger than it"
    )]
    Geometry {
        /// Size of the buffer, bytes.
        buffer_bytes: u64,
        /// Size of a block, bytes.
        block_bytes: u64,
    },
    #[error("{step} a channel's memory of {bytes} bytes: {source}")]
    System {
        step: &'static str,
        /// Size of the memory, bytes.
        bytes: u64,
        source: rustix::io::Errno,
    },
    /// The memory cannot be guarded against holes.
    #[error(transparent)]
    Guard(#[from] GuardError),
    /// The received descriptor is not the memory of a channel.
    #[error("the descriptor is not the memory of a channel: {0}")]
    NotAChannel(&'static str),
    /// The memory's descriptors describe no buffer.
    #[error("the descriptor is not the memory of a channel: {0}")]
    Descriptors(#[from] WalkError),
}

/// Mapped memory of a channel.
#[derive(Debug)]
pub struct ChannelMemory {
    file: OwnedFd,
    control: MirroredMapping,
    data: MirroredMapping,
    buffer_bytes: u64,
}

/// Mapped memory of this process, which is unmapped when the value is dropped.
#[derive(Debug)]
struct MirroredMapping {
    start: NonNull<u8>,
    bytes: usize,
    /// Offset of the first used byte.
    skip: usize,
    /// Guard of the mapping, which is dropped before the memory is unmapped.
    guard: Option<MappingGuard>,
}

// SAFETY: the addresses belong to the value until it is dropped; every access through it is atomic or a raw copy of
// untrusted bytes.
unsafe impl Send for MirroredMapping {}
// SAFETY: as above; the mapping is made for shared access.
unsafe impl Sync for MirroredMapping {}

impl Drop for MirroredMapping {
    fn drop(&mut self) {
        self.guard = None;
        // SAFETY: the addresses belong to the value, and nothing borrows from it any more.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

fn failed(step: &'static str, bytes: u64) -> impl Fn(rustix::io::Errno) -> MemoryError {
    move |source| MemoryError::System { step, bytes, source }
}

impl ChannelGeometry {
    /// Checks the sizes.
    ///
    /// # Errors
    /// [`MemoryError::Geometry`].
    pub fn check(self) -> Result<(), MemoryError> {
        let Self { buffer_bytes, block_bytes } = self;
        let is_possible = buffer_bytes.is_power_of_two()
            && (MIN_BUFFER_BYTES..=MAX_BUFFER_BYTES).contains(&buffer_bytes)
            && block_bytes.is_power_of_two()
            && (PAGE_BYTES..=(MAX_BLOCK_PAGES / 2 * PAGE_BYTES).min(buffer_bytes)).contains(&block_bytes);
        if is_possible { Ok(()) } else { Err(MemoryError::Geometry { buffer_bytes, block_bytes }) }
    }
}

impl ChannelMemory {
    /// Makes, seals and maps the memory of a channel. The data are zeros, and the channel is stopped. Uses pages of 2
    /// MiB, if enough are free and the sizes are multiples of 2 MiB.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn create(geometry: ChannelGeometry) -> Result<Self, MemoryError> {
        geometry.check()?;
        let whole_pages = geometry.block_bytes.is_multiple_of(HUGE_PAGE_BYTES);
        if whole_pages && let Ok(memory) = Self::create_in(geometry, HUGE_PAGE_BYTES) {
            return Ok(memory);
        }
        Self::create_in(geometry, PAGE_BYTES)
    }

    fn create_in(geometry: ChannelGeometry, page_bytes: u64) -> Result<Self, MemoryError> {
        let ChannelGeometry { buffer_bytes, block_bytes } = geometry;
        let blocks = buffer_bytes / block_bytes;
        let words_bytes = (blocks + 1) * WORD_BYTES;
        let data_offset = (CONTROL_PAGE_BYTES + words_bytes).next_multiple_of(page_bytes);
        let bytes = data_offset + buffer_bytes;
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if page_bytes == HUGE_PAGE_BYTES {
            flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        }
        let file = rustix::fs::memfd_create("sze2-channel", flags).map_err(failed("making", bytes))?;
        rustix::fs::ftruncate(&file, bytes).map_err(failed("sizing", bytes))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(failed("sealing", bytes))?;
        let control = map_control_page(&file, data_offset)?;
        let page = control_page(&control);
        page.version.store(VERSION, Ordering::Relaxed);
        page.data_offset.store(data_offset as u32, Ordering::Relaxed);
        page.buffer_bytes.store(buffer_bytes, Ordering::Relaxed);
        page.descriptors.store(CONTROL_PAGE_BYTES, Ordering::Relaxed);
        let blocks: Vec<PageRun> = (0..blocks)
            .map(|number| PageRun { address: data_offset + number * block_bytes, bytes: block_bytes })
            .collect();
        for (at, word) in
            (CONTROL_PAGE_BYTES..).step_by(WORD_BYTES as usize).zip(cycle(&blocks, CONTROL_PAGE_BYTES))
        {
            if let Some(mut target) = part(&control, at, WORD_BYTES) {
                target.write(&word.to_le_bytes());
            }
        }
        page.magic.store(MAGIC, Ordering::Release);
        let data = map_blocks(&file, &blocks, buffer_bytes)?;
        Ok(Self { file, control, data, buffer_bytes })
    }

    /// Maps the memory of a channel that a card has made, after checking that it cannot be shortened.
    ///
    /// # Errors
    /// [`MemoryError`] if the memory can be shortened, is no channel's, or cannot be mapped.
    pub fn open(file: OwnedFd) -> Result<Self, MemoryError> {
        let seals = rustix::fs::fcntl_get_seals(&file)
            .map_err(|_| MemoryError::NotAChannel("it cannot be sealed"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MemoryError::NotAChannel("it is not sealed"));
        }
        let status = rustix::fs::fstat(&file).map_err(failed("looking at", 0))?;
        let has = u64::try_from(status.st_size).unwrap_or(0);
        let page_bytes = u64::try_from(status.st_blksize).unwrap_or(0).max(PAGE_BYTES);
        if has < page_bytes {
            return Err(MemoryError::NotAChannel("it is too short"));
        }
        let (data_offset, buffer_bytes, descriptors) = {
            let first = map_control_page(&file, page_bytes)?;
            let page = control_page(&first);
            let names = (page.magic.load(Ordering::Acquire), page.version.load(Ordering::Relaxed));
            if names != (MAGIC, VERSION) {
                return Err(MemoryError::NotAChannel("it does not begin as one of this version does"));
            }
            let data_offset = u64::from(page.data_offset.load(Ordering::Relaxed));
            (data_offset, page.buffer_bytes.load(Ordering::Relaxed), page.descriptors.load(Ordering::Relaxed))
        };
        if !data_offset.is_multiple_of(page_bytes) || data_offset < page_bytes || data_offset > has {
            return Err(MemoryError::NotAChannel("its data begin where they cannot"));
        }
        let control = map_control_page(&file, data_offset)?;
        let blocks = walk(descriptors, |at| {
            let mut word = [0; WORD_BYTES as usize];
            part(&control, at, WORD_BYTES)?.read(&mut word);
            Some(u64::from_le_bytes(word))
        })?;
        let mut total: u64 = 0;
        for block in &blocks {
            let end = block.address.checked_add(block.bytes);
            let is_there = block.address >= data_offset && end.is_some_and(|end| end <= has);
            if !is_there
                || !block.address.is_multiple_of(page_bytes)
                || !block.bytes.is_multiple_of(page_bytes)
            {
                return Err(MemoryError::NotAChannel("its blocks are outside of it"));
            }
            total = total.saturating_add(block.bytes);
        }
        let is_possible =
            buffer_bytes.is_power_of_two() && (MIN_BUFFER_BYTES..=MAX_BUFFER_BYTES).contains(&buffer_bytes);
        if !is_possible || total != buffer_bytes {
            return Err(MemoryError::NotAChannel("its blocks are not as long as its buffer"));
        }
        let data = map_blocks(&file, &blocks, buffer_bytes)?;
        Ok(Self { file, control, data, buffer_bytes })
    }

    /// Size of the buffer, bytes.
    #[inline]
    #[must_use]
    pub fn buffer_bytes(&self) -> u64 {
        self.buffer_bytes
    }

    #[inline]
    pub(crate) fn control(&self) -> &ControlPage {
        control_page(&self.control)
    }

    /// State of the channel.
    #[inline]
    #[must_use]
    pub fn state(&self) -> ChannelState {
        ChannelState::from_number(self.control().hardware.state.load(Ordering::Acquire))
    }

    /// Sets the state of the channel. Only the card calls this.
    pub fn set_state(&self, state: ChannelState) {
        self.control().hardware.state.store(state as u32, Ordering::Release);
    }

    /// Number of bytes of data in the buffer, by the pointers of both sides, unchecked. For reports.
    #[must_use]
    pub fn used_bytes(&self, is_receive: bool) -> u64 {
        let page = self.control();
        let pointer = |line: &Line| line.pointer.load(Ordering::Relaxed);
        let (hardware, software) = (pointer(&page.hardware), pointer(&page.software));
        let (start, end) = if is_receive { (software, hardware) } else { (hardware, software) };
        end.wrapping_sub(start) & (self.buffer_bytes - 1)
    }

    /// The `bytes` bytes from `at` on, at most a whole buffer. They continue at the start of the buffer after its end.
    #[inline]
    #[must_use]
    pub fn data(&self, at: u64, bytes: usize) -> SharedBytes<'_> {
        let at = (at & (self.buffer_bytes - 1)) as usize;
        let bytes = bytes.min(self.buffer_bytes as usize);
        // SAFETY: the buffer is mapped twice. `at` is in the first mapping, so at least a whole buffer follows.
        let start = unsafe { self.data.start.add(self.data.skip + at) };
        // SAFETY: as above; the mapping lives as long as the borrow.
        unsafe { SharedBytes::from_trusted_parts(start, bytes) }
    }

    /// Offset in the buffer of an address; `None` if the address is outside of the buffer's first mapping.
    #[inline]
    #[must_use]
    pub fn offset_of(&self, address: *const u8) -> Option<u64> {
        let offset = address.addr().checked_sub(self.data(0, 0).as_ptr().addr())? as u64;
        (offset < self.buffer_bytes).then_some(offset)
    }

    /// The segments in the data from `at` up to `end`. No segment begins after the end of the buffer. Positions are
    /// rounded down to multiples of 8.
    #[inline]
    pub(crate) fn segments(&self, at: u64, end: u64) -> Segments<'_> {
        let mask = self.buffer_bytes - 1;
        let [at, end] = [at, end].map(|pointer| pointer & mask & !(ALIGNMENT as u64 - 1));
        let begin_end = if at <= end { end } else { self.buffer_bytes };
        let [begin_bytes, bytes] = [begin_end - at, end.wrapping_sub(at) & mask].map(|bytes| bytes as usize);
        // SAFETY: `at` is an offset in the buffer.
        let start = unsafe { self.data.start.add(self.data.skip + at as usize) };
        // SAFETY: the buffer is mapped twice, for the lifetime of the borrow, and begins on a page; all lengths and
        // offsets are multiples of 8.
        unsafe { Segments::from_trusted_parts(start, begin_bytes, bytes) }
    }

    /// Populates every page, so that the first data cause no page faults.
    pub fn populate(&self) {
        // SAFETY: the range is exactly the mapping; populating changes no byte. A kernel without this advice populates
        // pages at the first access.
        let _ = unsafe {
            rustix::mm::madvise(self.data.start.as_ptr().cast(), self.data.bytes, Advice::LinuxPopulateWrite)
        };
    }
}

impl AsFd for ChannelMemory {
    /// The file, to be passed to the other side.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Maps the memory before the data.
fn map_control_page(file: &OwnedFd, bytes: u64) -> Result<MirroredMapping, MemoryError> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice does not touch existing memory.
    let start = unsafe {
        rustix::mm::mmap(std::ptr::null_mut(), bytes as usize, protection, MapFlags::SHARED, file, 0)
    };
    let start = start.map_err(failed("mapping", bytes))?;
    mapping(start.cast(), bytes as usize, 0)
}

fn mapping(start: *mut u8, bytes: usize, skip: usize) -> Result<MirroredMapping, MemoryError> {
    let start = NonNull::new(start).ok_or(failed("mapping", bytes as u64)(rustix::io::Errno::NOMEM))?;
    let mut mapping = MirroredMapping { start, bytes, skip, guard: None };
    // Seals do not keep the other side from punching holes into huge pages.
    // SAFETY: the addresses belong to the value, only shared bytes are ever there, and `drop` removes the guard before
    // it unmaps.
    mapping.guard = Some(unsafe { MappingGuard::new(start, bytes, ChildMemory::Zeros) }?);
    Ok(mapping)
}

/// Maps `blocks` in a row, and all of them again after the first mapping.
fn map_blocks(file: &OwnedFd, blocks: &[PageRun], buffer_bytes: u64) -> Result<MirroredMapping, MemoryError> {
    let bytes = 2 * buffer_bytes as usize;
    // The extra addresses allow the mapping to begin on a boundary of huge pages.
    let reserved = bytes + HUGE_PAGE_BYTES as usize;
    // SAFETY: new addresses of the kernel's choice do not touch existing memory.
    let start = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            reserved,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    };
    let start: *mut u8 = start.map_err(failed("reserving addresses for", bytes as u64))?.cast();
    let skip = start.align_offset(HUGE_PAGE_BYTES as usize);
    let whole = mapping(start, reserved, skip)?;
    let mut offset = skip;
    for run in [(); 2].iter().flat_map(|()| runs(blocks)) {
        // SAFETY: `offset` is within the reserved addresses: the sum of all blocks, twice, is `bytes`.
        let at = unsafe { whole.start.add(offset) };
        // SAFETY: the replaced range belongs to this mapping, was reserved above, and is not in use yet.
        let mapped = unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap(
                at.as_ptr().cast(),
                run.bytes as usize,
                protection,
                MapFlags::SHARED | MapFlags::FIXED,
                file,
                run.address,
            )
        };
        mapped.map_err(failed("mapping", bytes as u64))?;
        offset += run.bytes as usize;
    }
    Ok(whole)
}

/// The blocks, with those that are adjacent in the file joined.
fn runs(blocks: &[PageRun]) -> impl Iterator<Item = PageRun> {
    blocks.chunk_by(|one, next| one.address + one.bytes == next.address).filter_map(|run| {
        let first = run.first()?;
        Some(PageRun { address: first.address, bytes: run.iter().map(|block| block.bytes).sum() })
    })
}

fn control_page(mapping: &MirroredMapping) -> &ControlPage {
    // SAFETY: at least a page is mapped, on a page boundary, for the lifetime of the borrow; all fields are atomic, and
    // every bit pattern is valid.
    unsafe { mapping.start.cast::<ControlPage>().as_ref() }
}

/// The `bytes` bytes at `offset` of the memory before the data. `None` if they exceed the mapping.
fn part(mapping: &MirroredMapping, offset: u64, bytes: u64) -> Option<SharedBytes<'_>> {
    if offset.checked_add(bytes)? > mapping.bytes as u64 {
        return None;
    }
    // SAFETY: the end of the part was checked to be in the mapping.
    let start = unsafe { mapping.start.add(offset as usize) };
    // SAFETY: as above; the mapping lives as long as the borrow.
    Some(unsafe { SharedBytes::from_trusted_parts(start, bytes as usize) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: ChannelGeometry =
        ChannelGeometry { buffer_bytes: MIN_BUFFER_BYTES, block_bytes: PAGE_BYTES };

    fn read(memory: &ChannelMemory, at: u64, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        memory.data(at, bytes).read(&mut read);
        read
    }

    #[test]
    fn both_sides_see_the_same_bytes_across_the_end() {
        let card = ChannelMemory::create(SMALL).unwrap();
        let program = ChannelMemory::open(card.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(program.buffer_bytes(), MIN_BUFFER_BYTES);
        card.data(MIN_BUFFER_BYTES - 8, 16).write(b"0123456789abcdef");
        assert_eq!(read(&program, MIN_BUFFER_BYTES - 8, 16), b"0123456789abcdef");
        assert_eq!(read(&program, 0, 8), b"89abcdef");
        assert_eq!(program.state(), ChannelState::Stopped);
        card.set_state(ChannelState::Running);
        assert_eq!(program.state(), ChannelState::Running);
    }

    #[test]
    fn blocks_are_mapped_in_the_order_of_their_descriptors() {
        let card = ChannelMemory::create(SMALL).unwrap();
        let first = u64::from(card.control().data_offset.load(Ordering::Relaxed));
        let pages = MIN_BUFFER_BYTES / PAGE_BYTES;
        let blocks: Vec<PageRun> = (0..pages)
            .rev()
            .map(|page| PageRun { address: first + page * PAGE_BYTES, bytes: PAGE_BYTES })
            .collect();
        for (number, word) in cycle(&blocks, CONTROL_PAGE_BYTES).into_iter().enumerate() {
            let at = CONTROL_PAGE_BYTES + number as u64 * WORD_BYTES;
            part(&card.control, at, WORD_BYTES).unwrap().write(&word.to_le_bytes());
        }
        let program = ChannelMemory::open(card.as_fd().try_clone_to_owned().unwrap()).unwrap();
        card.data(MIN_BUFFER_BYTES - PAGE_BYTES, 4).write(b"last");
        card.data(0, 5).write(b"first");
        assert_eq!(read(&program, 0, 4), b"last");
        assert_eq!(read(&program, MIN_BUFFER_BYTES - PAGE_BYTES, 5), b"first");
    }

    #[test]
    fn other_files_are_refused() {
        let unsealed =
            rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, 1 << 20).unwrap();
        let open = |file: &OwnedFd| ChannelMemory::open(file.try_clone().unwrap()).unwrap_err().to_string();
        assert!(open(&unsealed).contains("not sealed"));
        rustix::fs::fcntl_add_seals(&unsealed, SealFlags::SHRINK).unwrap();
        assert!(open(&unsealed).contains("does not begin"));
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        assert!(open(&pipe).contains("cannot be sealed"));
        let card = ChannelMemory::create(SMALL).unwrap();
        let file = card.as_fd().try_clone_to_owned().unwrap();
        card.control().buffer_bytes.store(2 * MIN_BUFFER_BYTES, Ordering::Relaxed);
        assert!(open(&file).contains("not as long as its buffer"));
        card.control().descriptors.store(u64::MAX - 7, Ordering::Relaxed);
        assert!(open(&file).contains("outside"));
        card.control().data_offset.store(12, Ordering::Relaxed);
        assert!(open(&file).contains("where they cannot"));
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for (buffer_bytes, block_bytes) in
            [(3 << 20, 4096), (64 << 10, 4096), (8 << 30, 4096), (1 << 20, 2 << 20), (1 << 20, 5000)]
        {
            assert!(
                ChannelGeometry { buffer_bytes, block_bytes }.check().is_err(),
                "{buffer_bytes} {block_bytes}"
            );
        }
    }
}
