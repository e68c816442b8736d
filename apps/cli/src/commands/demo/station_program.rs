//! Program of the demo: announces its stations, then records the frames that it receives.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringroad::{Interest, OpenOptions, Port};
use ringroad_capture::{CaptureFormat, CaptureWriter};
use ringroad_wire::mac::Mac;

use crate::failure::Failure;
use crate::options::{DEEP_SLOTS, Global};
use crate::receiver::unix_time_ns;

/// EtherType for local experiments: it distinguishes announcements from the capture's frames.
const ANNOUNCEMENT: [u8; 2] = [0x88, 0xB5];

pub(super) fn run(port: &str, record: &Path, stations: &[String], global: &Global) -> Result<(), Failure> {
    let options =
        OpenOptions { socket: global.socket.clone(), slots: Some(DEEP_SLOTS), ..OpenOptions::default() };
    let mut port = Port::open_with(port, &options)?;
    let mut writer = CaptureWriter::create(record, CaptureFormat::Pcap, 0)?;
    for station in stations {
        let station: Mac =
            station.parse().map_err(|error| Failure::usage(format!("--station {station}: {error}"), ""))?;
        let mut frame = [0; 60];
        frame[..6].fill(0xFF);
        frame[6..12].copy_from_slice(&station.octets());
        frame[12..14].copy_from_slice(&ANNOUNCEMENT);
        port.tx().send(&frame)?;
    }
    // Returned slots show that the switch has learned the stations.
    port.tx().sync()?;
    while port.tx().pending() > 0 {
        port.wait(Interest::Tx, Some(Duration::from_millis(10)))?;
        port.tx().sync()?;
    }
    let finish = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&finish);
    std::thread::spawn(move || {
        // A line, or the end of input when the parent ends.
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        told.store(true, Ordering::Release);
    });
    writeln!(std::io::stdout(), "ready").map_err(|error| Failure::output(&error))?;

    let mut frame = Vec::new();
    loop {
        // The flag is read before the rings: frames delivered before the request to finish are then received in the
        // last turn.
        let last = finish.load(Ordering::Acquire);
        port.rx().sync()?;
        while port.rx().receive(&mut frame).is_some() {
            if frame.get(12..14) != Some(&ANNOUNCEMENT) {
                writer.write_frame(unix_time_ns(), &frame, frame.len() as u32)?;
            }
            frame.clear();
        }
        if last {
            break;
        }
        port.wait(Interest::Rx, Some(Duration::from_millis(20)))?;
    }
    writer.finish()?;
    Ok(())
}
