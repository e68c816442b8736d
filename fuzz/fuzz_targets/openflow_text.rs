//! Fuzz target: any words as a flow, a group or a meter. Reading them ends without a panic, and entries that were read
//! are the same after they are printed and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringroad_openflow::text::{FlowText, GroupText, MeterText};

fuzz_target!(|text: &str| {
    if let Ok(flow) = text.parse::<FlowText>() {
        assert_eq!(flow.to_string().parse(), Ok(flow));
    }
    if let Ok(group) = text.parse::<GroupText>() {
        assert_eq!(group.to_string().parse(), Ok(group));
    }
    if let Ok(meter) = text.parse::<MeterText>() {
        assert_eq!(meter.to_string().parse(), Ok(meter));
    }
});
