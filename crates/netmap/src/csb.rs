//! CSB mode: a program exchanges indexes in its own arrays, one 64-byte entry per bound ring and direction, tx rings
//! first.

use rustix::io::Errno;

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::CsbOption;
use crate::bound_ring::BoundRing;
use crate::user_memory;

/// Size of an entry, bytes; arrays are aligned to it.
const ENTRY_BYTES: u64 = 64;

/// Entry that the program writes (`struct nm_csb_atok`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes)]
#[repr(C)]
pub(crate) struct ToProvider {
    pub(crate) head: u32,
    pub(crate) cur: u32,
    pub(crate) needs_kick: u32,
    pub(crate) sync_flags: u32,
}

/// Arrays of a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Csb(CsbOption);

/// Returns EINVAL for arrays that are missing or not aligned.
pub(crate) fn check_alignment(addresses: &CsbOption) -> Result<(), Errno> {
    let aligned = |address: u64| address != 0 && address.is_multiple_of(ENTRY_BYTES);
    match aligned(addresses.to_provider) && aligned(addresses.to_program) {
        true => Ok(()),
        false => Err(Errno::INVAL),
    }
}

impl Csb {
    /// Writes the positions of `rings` into their entries.
    ///
    /// # Errors
    /// EINVAL for arrays that are not aligned, EFAULT for inaccessible memory.
    pub(crate) fn enable<'a>(
        addresses: CsbOption,
        rings: impl Iterator<Item = &'a BoundRing>,
    ) -> Result<Self, Errno> {
        check_alignment(&addresses)?;
        let csb = Self(addresses);
        for (entry, ring) in rings.enumerate() {
            let cursors = ring.view.cursors_shown();
            let position = ring.position();
            let (to_provider, to_program) = csb.entry(entry);
            user_memory::write(to_provider, &[cursors.head, cursors.cur, 1, 1])?;
            user_memory::write(to_program, &[position.hwcur, position.hwtail, 1])?;
        }
        Ok(csb)
    }

    fn entry(&self, entry: usize) -> (usize, usize) {
        let offset = entry as u64 * ENTRY_BYTES;
        ((self.0.to_provider + offset) as usize, (self.0.to_program + offset) as usize)
    }

    /// Reads the program's entry of a ring. The program publishes `head` last, so `head` is read before `cur`.
    pub(crate) fn read(&self, entry: usize) -> Result<ToProvider, Errno> {
        let address = self.entry(entry).0;
        let ToProvider { head, .. } = user_memory::read(address)?;
        Ok(ToProvider { head, ..user_memory::read(address)? })
    }

    /// Writes a ring's position for the program: `hwtail`, which is ahead, is published last.
    pub(crate) fn write(&self, entry: usize, hwcur: u32, hwtail: u32) -> Result<(), Errno> {
        let address = self.entry(entry).1;
        user_memory::write(address, &hwcur)?;
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
        user_memory::write(address + 4, &hwtail)
    }

    /// Shows the program whether it has to kick the loop.
    pub(crate) fn write_needs_kick(&self, entry: usize, needs_kick: bool) -> Result<(), Errno> {
        user_memory::write(self.entry(entry).1 + 8, &u32::from(needs_kick))
    }
}
