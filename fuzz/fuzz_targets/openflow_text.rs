//! Fuzz target: any words as a flow. Reading them ends without a panic, and flows that were read are the same after they
//! are printed and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringroad_openflow::text::FlowText;

fuzz_target!(|text: &str| {
    if let Ok(flow) = text.parse::<FlowText>() {
        assert_eq!(flow.to_string().parse(), Ok(flow));
    }
});
