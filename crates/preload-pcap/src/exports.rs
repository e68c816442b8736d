//! Functions on handles. This library serves Ringroad's handles; the system's libpcap serves all others.

mod lifetime;
mod reading;
mod sending;
mod settings;

use crate::error::PcapError;

/// Exports functions of libpcap whose first argument is a handle. The body serves Ringroad's handles. The value after
/// `closed` is for closed ones. For any other handle the system's function of the same name is called. No panic crosses
/// into C.
macro_rules! for_handles {
    ($(
        $(#[$documentation:meta])*
        fn $name:ident($handle:ident $(, $argument:ident: $type:ty)*) -> $result:ty, closed $closed:expr, $body:block
    )*) => {
        $(
            $(#[$documentation])*
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($handle: *mut $crate::abi::Pcap $(, $argument: $type)*) -> $result {
                match $crate::registry::owner($handle) {
                    $crate::registry::Owner::Ours($handle) => $crate::error::contained(|| -> $result { $body }),
                    $crate::registry::Owner::System => $crate::system::system_call!(
                        $name($handle: *mut $crate::abi::Pcap $(, $argument: $type)*) -> $result
                    ),
                    $crate::registry::Owner::Closed => $closed,
                }
            }
        )*
    };
}
use for_handles;

/// Error of a closed handle.
fn closed() -> PcapError {
    PcapError::new("this device was closed")
}
