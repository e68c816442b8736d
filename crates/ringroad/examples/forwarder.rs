//! Forwards frames between two ports, both ways: `cargo run --example forwarder -- vale0:a vale1:b`.
//!
//! Buffers are exchanged instead of copied if both ports are in one region (`vale1:b@share=vale0:a`).

use std::error::Error;

use ringroad::{Interest, Port, wait_any};

fn forward(from: &mut Port, to: &mut Port) -> Result<u64, Box<dyn Error>> {
    from.rx().sync()?;
    to.tx().sync()?;
    let moved = from.rx().forward(to.tx(), u32::MAX);
    if moved.frames > 0 {
        to.tx().sync()?;
        from.rx().sync()?;
    }
    Ok(u64::from(moved.frames))
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(first), Some(second)) = (arguments.next(), arguments.next()) else {
        return Err("usage: forwarder PORT PORT".into());
    };
    let mut a = Port::open(&first)?;
    let mut b = Port::open(&second)?;
    let mut frames = 0u64;
    loop {
        let moved = forward(&mut a, &mut b)? + forward(&mut b, &mut a)?;
        frames += moved;
        if moved > 0 {
            continue;
        }
        println!("{frames} frames forwarded");
        wait_any(&mut [a.awaiting(Interest::Rx), b.awaiting(Interest::Rx)], None)?;
    }
}
