//! Sends numbered frames to a port: `cargo run --example source -- vale0:b FRAMES`.

use std::error::Error;

use ringroad::{Interest, Port};

/// Makes an Ethernet broadcast of 60 bytes, with a type for local experiments.
fn template() -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].fill(0xFF);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[0x88, 0xB5]);
    frame
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "vale0:source".into());
    let frames: u64 = arguments.next().map_or(Ok(1_000_000), |count| count.parse())?;

    let mut port = Port::open(&name)?;
    let mut frame = template();
    let mut number = 0u64;
    while number < frames {
        if port.tx().available() == 0 {
            port.wait(Interest::Tx, None)?;
        }
        // Fills every free slot, then hands over the batch.
        let tx = port.tx();
        tx.push_each::<true>(u32::try_from(frames - number).unwrap_or(u32::MAX), |mut slot| {
            frame[14..22].copy_from_slice(&number.to_be_bytes());
            number += 1;
            Some(slot.bytes.write(&frame) as u16)
        });
        tx.sync()?;
    }
    println!("{number} frames sent");
    Ok(())
}
