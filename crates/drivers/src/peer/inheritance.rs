//! The state of a port with a peer that another process leaves, read in the order in which it was written.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use ringroad_port::port_queue::HandOver;
use rustix::fs::{MemfdFlags, memfd_create};

/// The part of one queue's state that is not read yet.
#[derive(Debug)]
pub(crate) struct Inheritance {
    numbers: std::vec::IntoIter<u64>,
    descriptors: std::vec::IntoIter<OwnedFd>,
}

fn too_little() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "another process left less of a port than its state needs")
}

impl From<HandOver> for Inheritance {
    fn from(left: HandOver) -> Self {
        Self { numbers: left.numbers.into_iter(), descriptors: left.descriptors.into_iter() }
    }
}

impl Inheritance {
    /// Whether all numbers have been read.
    pub(crate) fn is_read(&self) -> bool {
        self.numbers.as_slice().is_empty()
    }

    pub(crate) fn number(&mut self) -> io::Result<u64> {
        self.numbers.next().ok_or_else(too_little)
    }

    pub(crate) fn numbers<const N: usize>(&mut self) -> io::Result<[u64; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.number()?;
        }
        Ok(numbers)
    }

    pub(crate) fn flag(&mut self) -> io::Result<bool> {
        Ok(self.number()? != 0)
    }

    pub(crate) fn descriptor(&mut self) -> io::Result<OwnedFd> {
        self.descriptors.next().ok_or_else(too_little)
    }

    /// Reads the bytes that [`leave_bytes`] wrote, up to `most`.
    pub(crate) fn bytes(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::from(self.descriptor()?).take(most as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads the descriptor that [`leave`] wrote, if there is one.
    pub(crate) fn optional_descriptor(&mut self) -> io::Result<Option<OwnedFd>> {
        if self.flag()? { self.descriptor().map(Some) } else { Ok(None) }
    }
}

/// Adds a copy of a descriptor to `left`, or a note that there is none.
pub(crate) fn leave(left: &mut HandOver, descriptor: Option<&impl AsFd>) -> io::Result<()> {
    left.numbers.push(descriptor.is_some().into());
    if let Some(descriptor) = descriptor {
        left.descriptors.push(descriptor.as_fd().try_clone_to_owned()?);
    }
    Ok(())
}

/// Adds bytes to `left`, in a file without a name.
pub(crate) fn leave_bytes(left: &mut HandOver, bytes: &[u8]) -> io::Result<()> {
    let file = File::from(memfd_create("left", MemfdFlags::CLOEXEC)?);
    file.write_all_at(bytes, 0)?;
    left.descriptors.push(file.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_is_read_in_order_and_too_little_is_an_error() {
        let mut left = HandOver { numbers: vec![7, 8, 9], descriptors: Vec::new() };
        leave(&mut left, Some(&io::stdin())).unwrap();
        leave(&mut left, None::<&OwnedFd>).unwrap();
        leave_bytes(&mut left, b"half a frame").unwrap();
        leave_bytes(&mut left, b"").unwrap();
        let mut inheritance = Inheritance::from(left);
        assert_eq!(inheritance.number().unwrap(), 7);
        assert_eq!(inheritance.numbers().unwrap(), [8, 9]);
        assert!(inheritance.optional_descriptor().unwrap().is_some());
        assert!(inheritance.optional_descriptor().unwrap().is_none());
        assert_eq!(inheritance.bytes(4).unwrap(), b"half");
        assert_eq!(inheritance.bytes(4).unwrap(), b"");
        assert!(inheritance.number().is_err() && inheritance.descriptor().is_err());
    }
}
