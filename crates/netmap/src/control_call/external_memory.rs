//! Identity of a program's memory: equal pages must give the same region, in every process that maps them.

use rustix::io::Errno;

/// One line of `/proc/self/maps`: `start-end perms offset major:minor inode path`.
struct MapsLine {
    start: usize,
    end: usize,
    shared: bool,
    offset: u64,
    device: u64,
    inode: u64,
}

fn parse(line: &str) -> Option<MapsLine> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let offset = fields.next()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?;
    Some(MapsLine {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        shared: permissions.ends_with('s'),
        offset: u64::from_str_radix(offset, 16).ok()?,
        device: rustix::fs::makedev(
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        ),
        inode: inode.parse().ok()?,
    })
}

/// Identity of the memory at `address`: device, inode and offset if a file is mapped shared, else process, 0 and
/// address.
///
/// # Errors
/// EFAULT if nothing is mapped there; EIO if the kernel does not report the mapping.
pub(super) fn identity(address: usize) -> Result<[u64; 3], Errno> {
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| Errno::IO)?;
    let mapping = maps
        .lines()
        .filter_map(parse)
        .find(|mapping| (mapping.start..mapping.end).contains(&address))
        .ok_or(Errno::FAULT)?;
    if mapping.shared && mapping.inode != 0 {
        return Ok([
            mapping.device,
            mapping.inode,
            mapping.offset.wrapping_add((address - mapping.start) as u64),
        ]);
    }
    let process = rustix::process::getpid().as_raw_nonzero().get();
    Ok([process as u64, 0, address as u64])
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
    use rustix::mm::{MapFlags, ProtFlags, mmap};

    use super::*;

    fn map(file: &OwnedFd, flags: MapFlags) -> usize {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; tests only use the address.
        let mapped = unsafe { mmap(core::ptr::null_mut(), 4 * 4096, protection, flags, file.as_fd(), 4096) };
        mapped.unwrap() as usize
    }

    #[test]
    fn a_shared_mapping_is_identified_by_its_file() {
        let file = memfd_create("external memory", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 5 * 4096).unwrap();
        let known = fstat(&file).unwrap();
        let (first, second) = (map(&file, MapFlags::SHARED), map(&file, MapFlags::SHARED));
        assert_eq!(identity(first), Ok([known.st_dev, known.st_ino, 4096]));
        assert_eq!(identity(first), identity(second));
        assert_eq!(identity(first + 4096), Ok([known.st_dev, known.st_ino, 8192]));
    }

    #[test]
    fn private_memory_is_identified_by_its_process() {
        let file = memfd_create("external memory", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 5 * 4096).unwrap();
        let address = map(&file, MapFlags::PRIVATE);
        assert_eq!(identity(address), Ok([u64::from(std::process::id()), 0, address as u64]));
    }

    #[test]
    fn unmapped_memory_is_a_fault() {
        assert_eq!(identity(4096), Err(Errno::FAULT));
    }
}
