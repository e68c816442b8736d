//! Receives frames from a port and counts them: `cargo run --example sink -- vale0:a [FRAMES]`.

use std::error::Error;
use std::time::Duration;

use ringroad::{Interest, Port};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "vale0:sink".into());
    let wanted: u64 = arguments.next().map_or(Ok(u64::MAX), |count| count.parse())?;

    let mut port = Port::open(&name)?;
    println!("{}: {}", port.info().name, port.info().mode);

    let (mut frames, mut bytes) = (0u64, 0u64);
    while frames < wanted {
        // Sleeps if no frames are there. Frames that are there already cost no system call.
        if !port.wait(Interest::Rx, Some(Duration::from_secs(1)))? {
            println!("{frames} frames, {bytes} bytes");
            continue;
        }
        let rx = port.rx();
        let slots = rx.available();
        for offset in 0..slots {
            let slot = rx.slot(offset);
            bytes += u64::from(slot.len);
            frames += u64::from(slot.flags & ringroad::slot_flags::MORE_FRAGMENTS == 0);
        }
        rx.release(slots);
        rx.sync()?;
    }
    println!("{frames} frames, {bytes} bytes");
    Ok(())
}
