//! Functions on handles. This library serves Ringroad's handles; the system's libpcap serves all others.

mod lifetime;
mod reading;
mod sending;
mod settings;

/// Exports functions of libpcap whose first argument is a handle. The body serves Ringroad's handles; calls with closed
/// ones fail. For any other handle the system's function of the same name is called. No panic crosses into C.
macro_rules! for_handles {
    ($(
        $(#[$documentation:meta])*
        fn $name:ident($handle:ident $(, $argument:ident: $type:ty)*) -> $result:ty $body:block
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
                    $crate::registry::Owner::Closed => <$result as $crate::error::Failed>::FAILED,
                }
            }
        )*
    };
}
use for_handles;

/// Exports functions as [`for_handles`] does, whose result is the handle's answer with this number or failure.
macro_rules! answers {
    ($(
        $(#[$documentation:meta])*
        $name:ident($handle:ident $(, $argument:ident: $type:ty)*): $answer:expr;
    )*) => {
        $crate::exports::for_handles! {
            $(
                $(#[$documentation])*
                fn $name($handle $(, $argument: $type)*) -> libc::c_int {
                    $handle.answer($answer)
                }
            )*
        }
    };
}
use answers;
