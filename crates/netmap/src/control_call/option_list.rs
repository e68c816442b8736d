//! List of a request's options: a chain of structures in the program's memory, which may be long, circular or invalid.

use core::mem::{offset_of, size_of};

use rustix::io::Errno;
use zerocopy::FromBytes;

use crate::abi::{OptionHeader, OptionType};
use crate::user_memory::{read, read_bytes, write_bytes};

/// Maximum size of a request's body and of its options' headers and bodies together, bytes.
const MOST_BYTES: usize = 4096;
/// Maximum size of the same parts and of the stored data of each option, bytes; ends circular lists of options without
/// a body.
const MOST_KEPT_BYTES: usize = 4144;
/// Size of the stored data of an option besides its body, bytes.
const KEPT_BYTES: usize = size_of::<OptionHeader>() + size_of::<u64>();

/// Option in the list.
#[derive(Debug)]
struct ParsedOption {
    address: usize,
    option_type: u32,
    body: Vec<u8>,
    /// Result; `None`: the option was not handled.
    outcome: Option<Result<(), Errno>>,
    /// Whether `body` is written back to the program.
    answered: bool,
}

/// Options of one request, as copied.
#[derive(Debug, Default)]
pub(super) struct OptionList {
    options: Vec<ParsedOption>,
}

/// Size of an option's body, bytes; an unknown type has no body.
fn body_bytes(header: &OptionHeader) -> usize {
    OptionType::of(header.option_type).map_or(0, |known| {
        let told = usize::try_from(header.bytes).unwrap_or(usize::MAX);
        known.body_bytes.unwrap_or_else(|| told.saturating_sub(size_of::<OptionHeader>()))
    })
}

impl OptionList {
    /// Reads the list that begins at `first`, of a request with a body of `request_bytes`. Options that were read
    /// before an error are in the list, too, since their statuses are written nevertheless.
    ///
    /// # Errors
    /// EFAULT, EINVAL for type 0 or a known type given twice, EMSGSIZE for too many.
    pub(super) fn read(first: u64, request_bytes: usize) -> (Self, Result<(), Errno>) {
        let mut list = Self::default();
        let walked = list.walk(first, request_bytes);
        (list, walked)
    }

    fn walk(&mut self, first: u64, request_bytes: usize) -> Result<(), Errno> {
        let mut next = first;
        let mut bytes = request_bytes;
        let mut kept = request_bytes;
        while next != 0 {
            let address = next as usize;
            let header: OptionHeader = read(address)?;
            let body_bytes = body_bytes(&header);
            let twin = OptionType::of(header.option_type).and_then(|_| {
                self.options.iter().position(|option| option.option_type == header.option_type)
            });
            self.options.push(ParsedOption {
                address,
                option_type: header.option_type,
                body: Vec::new(),
                outcome: None,
                answered: false,
            });
            let last = self.options.len() - 1;
            let option = &mut self.options[last];
            if header.option_type == 0 || twin.is_some() {
                option.outcome = Some(Err(Errno::INVAL));
                if let Some(twin) = twin {
                    self.options[twin].outcome = Some(Err(Errno::INVAL));
                }
                return Err(Errno::INVAL);
            }
            bytes = bytes.saturating_add(size_of::<OptionHeader>()).saturating_add(body_bytes);
            kept = kept.saturating_add(KEPT_BYTES).saturating_add(body_bytes);
            if bytes > MOST_BYTES || kept > MOST_KEPT_BYTES {
                return Err(Errno::MSGSIZE);
            }
            let mut body = vec![0; body_bytes];
            read_bytes(address.wrapping_add(size_of::<OptionHeader>()), &mut body)?;
            option.body = body;
            next = header.next;
        }
        Ok(())
    }

    fn find(&self, option_type: u32) -> Option<&ParsedOption> {
        self.options.iter().find(|option| option.option_type == option_type)
    }

    /// Body of the option of a type, if there is one.
    pub(super) fn body(&self, option_type: u32) -> Option<&[u8]> {
        self.find(option_type).map(|option| &*option.body)
    }

    /// Body of the option of a type, as a structure.
    pub(super) fn structure<T: FromBytes>(&self, option_type: u32) -> Option<T> {
        T::read_from_bytes(self.body(option_type)?).ok()
    }

    /// Whether `is_taken` is true for the types of all options.
    pub(super) fn has_only(&self, is_taken: impl Fn(u32) -> bool) -> bool {
        self.options.iter().all(|option| is_taken(option.option_type))
    }

    /// Records the result of an option; an option that is not in the list is ignored.
    pub(super) fn conclude(&mut self, option_type: u32, outcome: Result<(), Errno>) {
        for option in self.options.iter_mut().filter(|option| option.option_type == option_type) {
            option.outcome = Some(outcome);
        }
    }

    /// Replaces the body of an option, for the program to read.
    pub(super) fn answer(&mut self, option_type: u32, body: &[u8]) {
        for option in self.options.iter_mut().filter(|option| option.option_type == option_type) {
            option.body = body.to_vec();
            option.answered = true;
        }
    }

    /// Writes all statuses and, if the request `succeeded`, the bodies that have an answer.
    ///
    /// # Errors
    /// EFAULT; all accessible ones have been written.
    pub(super) fn write_back(&self, succeeded: bool) -> Result<(), Errno> {
        let mut written = Ok(());
        for option in &self.options {
            let status = match option.outcome {
                None => Errno::OPNOTSUPP.raw_os_error(),
                Some(Ok(())) => 0,
                Some(Err(errno)) => errno.raw_os_error(),
            };
            let at = option.address.wrapping_add(offset_of!(OptionHeader, status));
            written = written.and(write_bytes(at, &status.to_ne_bytes()));
            if succeeded && option.answered && option.outcome == Some(Ok(())) {
                let at = option.address.wrapping_add(size_of::<OptionHeader>());
                written = written.and(write_bytes(at, &option.body));
            }
        }
        written
    }
}
