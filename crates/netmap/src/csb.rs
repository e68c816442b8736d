//! CSB mode: a program exchanges indexes in its own arrays, one 64-byte entry per bound ring and direction, tx rings
//! first.

use rustix::io::Errno;

use crate::bound_ring::BoundRing;
use crate::descriptor::CsbAddresses;
use crate::user_memory;

/// Size of an entry, bytes; arrays are aligned to it.
const ENTRY_BYTES: usize = 64;

/// Entry that the program writes (`struct nm_csb_atok`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ToProvider {
    pub(crate) head: u32,
    pub(crate) cur: u32,
    pub(crate) needs_kick: u32,
    pub(crate) sync_flags: u32,
}

/// Arrays of a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Csb {
    addresses: CsbAddresses,
}

fn words(address: usize) -> Result<[u32; 4], Errno> {
    user_memory::read::<[u32; 4]>(address)
}

/// Returns EINVAL for arrays that are missing or not aligned.
pub(crate) fn check_alignment(addresses: &CsbAddresses) -> Result<(), Errno> {
    let aligned = |address: usize| address != 0 && address.is_multiple_of(ENTRY_BYTES);
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
        addresses: CsbAddresses,
        rings: impl Iterator<Item = &'a BoundRing>,
    ) -> Result<Self, Errno> {
        check_alignment(&addresses)?;
        let csb = Self { addresses };
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
        let offset = entry * ENTRY_BYTES;
        (self.addresses.to_provider + offset, self.addresses.to_program + offset)
    }

    /// Reads the program's entry of a ring. The program publishes `head` last, so `head` is read before `cur`.
    pub(crate) fn read(&self, entry: usize) -> Result<ToProvider, Errno> {
        let [head, ..] = words(self.entry(entry).0)?;
        let [_, cur, needs_kick, sync_flags] = words(self.entry(entry).0)?;
        Ok(ToProvider { head, cur, needs_kick, sync_flags })
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
