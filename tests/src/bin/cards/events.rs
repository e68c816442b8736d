//! Events that an interface goes through while it is a port. After each the port works, or tells why it does not.

use std::fs;

use crate::bed::{Bed, USUAL_LONGEST, USUAL_MTU, device, ethtool, eventually, ip, name_card, settings};
use crate::matrix::NEAR;

/// What an event showed: a remark for users, or what is wrong.
type Finding = Result<Option<String>, String>;

/// An event by its name.
pub(crate) type Event = (&'static str, fn(&mut Bed) -> Finding);

/// All events. Each leaves the interface as it was.
pub(crate) const EVENTS: [Event; 11] = [
    ("the link went down and up", link),
    ("the MTU changed", mtu),
    ("ethtool -L", channels),
    ("ethtool -G", rings),
    ("ethtool -K", offloads),
    ("ethtool -r", negotiation),
    ("a reset of the device", reset),
    ("unbinding and binding the driver", unbind),
    ("kill -9 of the daemon", kill),
    ("ringroad upgrade", upgrade),
    ("busy polling", busy_polling),
];

fn link(bed: &mut Bed) -> Finding {
    ip(&format!("link set {NEAR} down"))?;
    await_reason(bed)?;
    ip(&format!("link set {NEAR} up"))?;
    bed.await_passage(USUAL_LONGEST)?;
    Ok(None)
}

fn mtu(bed: &mut Bed) -> Finding {
    for mtu in [1400, USUAL_MTU] {
        ip(&format!("link set {NEAR} mtu {mtu}"))?;
        bed.await_passage(mtu as usize + 14)?;
    }
    Ok(None)
}

/// Changes the number of queues. Flows are spread over several.
fn channels(bed: &mut Bed) -> Finding {
    // ethtool prints the limits first, then the present values.
    let combined: Vec<u64> = numbers("-l", "Combined");
    let [most, before] = combined[..] else { return Ok(None) };
    if most < 2 {
        return Ok(None);
    }
    let set = |queues: u64| ethtool(&["-L", NEAR, "combined", &queues.to_string()]);
    let mut remark = None;
    bed.detach()?;
    let can_change = set(1).is_ok();
    bed.attach("")?;
    if !can_change {
        return Ok(None);
    }
    bed.await_passage(USUAL_LONGEST)?;
    set(2)?;
    bed.await_passage(USUAL_LONGEST)?;
    let counters = bed.port()?.queue_counters;
    let busy = counters.iter().filter(|queue| queue.received_frames > 0).count();
    if !counters.is_empty() && busy < 2 {
        remark = Some("all flows come by one queue".to_owned());
    }
    match set(1) {
        Ok(_) => bed.await_passage(USUAL_LONGEST)?,
        // The kernel takes no queue away that a socket of AF_XDP has.
        Err(error) if error.contains("in use by AF_XDP") => {}
        Err(error) => return Err(error),
    }
    bed.detach()?;
    set(before)?;
    bed.attach("")?;
    bed.await_passage(USUAL_LONGEST)?;
    Ok(remark)
}

/// Changes the length of the rings.
fn rings(bed: &mut Bed) -> Finding {
    let (rx, tx) = (numbers("-g", "RX"), numbers("-g", "TX"));
    let ([_, rx], [_, tx]) = (&rx[..], &tx[..]) else { return Ok(None) };
    let set = |rx: u64, tx: u64| ethtool(&["-G", NEAR, "rx", &rx.to_string(), "tx", &tx.to_string()]);
    // Drivers can refuse these lengths, which changes nothing.
    if set(512, 512).is_err() {
        return Ok(None);
    }
    bed.await_passage(USUAL_LONGEST)?;
    // The lengths were 512 already if this is refused as no change.
    let _ = set(*rx, *tx);
    bed.await_passage(USUAL_LONGEST)?;
    Ok(None)
}

/// Switches off the offloads that can be switched, and on again those that were on.
fn offloads(bed: &mut Bed) -> Finding {
    const OFFLOADS: [(&str, &str); 4] = [
        ("rx-checksumming", "rx"),
        ("tx-checksumming", "tx"),
        ("tcp-segmentation-offload", "tso"),
        ("generic-receive-offload", "gro"),
    ];
    let before = ethtool(&["-k", NEAR])?;
    let is_on = |name: &str| before.lines().any(|line| line.trim() == format!("{name}: on"));
    let on: Vec<&str> = OFFLOADS.iter().filter(|(name, _)| is_on(name)).map(|(_, short)| *short).collect();
    for value in ["off", "on"] {
        for short in &on {
            // A driver can refuse to switch an offload that another one needs.
            let _ = ethtool(&["-K", NEAR, short, value]);
        }
        bed.await_passage(USUAL_LONGEST)?;
    }
    // A short name switches more offloads on than it had switched off.
    let after = ethtool(&["-k", NEAR])?;
    for (before, after) in before.lines().zip(after.lines()).filter(|(before, after)| before != after) {
        if let Some((name, value)) = before.trim().split_once(": ") {
            ethtool(&["-K", NEAR, name, value])
                .map_err(|error| format!("\"{before}\" became \"{after}\": {error}"))?;
        }
    }
    Ok(None)
}

/// Negotiates the link anew, where the driver can.
fn negotiation(bed: &mut Bed) -> Finding {
    if ethtool(&["-r", NEAR]).is_err() {
        return Ok(None);
    }
    bed.await_passage(USUAL_LONGEST)?;
    Ok(None)
}

/// Resets the card below its driver.
fn reset(bed: &mut Bed) -> Finding {
    // A virtio device has no such file, and its PCI function must not be reset: the driver then waits for ever for the
    // answer to a command, with the kernel's lock of all interfaces.
    let Some(file) = device().map(|device| device.join("reset")).filter(|file| file.exists()) else {
        return Ok(None);
    };
    let reset = || fs::write(&file, "1").map_err(|error| format!("{}: {error}", file.display()));
    reset()?;
    let reason = match bed.await_passage_or_reason(USUAL_LONGEST) {
        Ok(None) => return Ok(None),
        Ok(Some(reason)) => reason,
        Err(lost) => {
            // Drivers that do not notice such a reset lose the card without a port, too.
            bed.detach()?;
            restart_link()?;
            if !bed.passes_without_port()? {
                return Err(format!("{lost}; without a port the card passes nothing either"));
            }
            reset()?;
            let passes = bed.passes_without_port()?;
            restart_link()?;
            bed.attach("")?;
            bed.await_passage(USUAL_LONGEST)?;
            return match passes {
                true => Err(lost),
                false => Ok(Some(
                    "after a reset below its driver the card passes nothing, without a port neither, until its link \
                     goes down and up"
                        .to_owned(),
                )),
            };
        }
    };
    restart_link()?;
    bed.await_passage(USUAL_LONGEST)
        .map_err(|error| format!("{error}; the remedy of \"{reason}\" has not helped"))?;
    Ok(Some("after a reset of the device the port names the remedy, which helps".to_owned()))
}

fn restart_link() -> Result<(), String> {
    ip(&format!("link set {NEAR} down"))?;
    ip(&format!("link set {NEAR} up"))
}

/// Takes the driver from the card, and gives it back.
fn unbind(bed: &mut Bed) -> Finding {
    let Some(device) = device() else { return Ok(None) };
    let driver = fs::canonicalize(device.join("driver")).map_err(|error| error.to_string())?;
    let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let tell = |file: &str| {
        let path = driver.join(file);
        fs::write(&path, &name).map_err(|error| format!("{}: {error}", path.display()))
    };
    tell("unbind")?;
    await_reason(bed)?;
    tell("bind")?;
    eventually(|| name_card(NEAR))?;
    bed.await_passage(USUAL_LONGEST)?;
    Ok(None)
}

fn kill(bed: &mut Bed) -> Finding {
    bed.daemon.crash_and_restart();
    bed.await_passage(USUAL_LONGEST)?;
    Ok(None)
}

fn upgrade(bed: &mut Bed) -> Finding {
    bed.daemon.upgrade();
    bed.await_passage(USUAL_LONGEST)?;
    Ok(None)
}

/// Opens the port anew with busy polling, where the mechanism has it.
fn busy_polling(bed: &mut Bed) -> Finding {
    if !bed.port()?.mode.starts_with("AF_XDP") {
        return Ok(None);
    }
    bed.detach()?;
    bed.attach(",busy-poll=20")?;
    bed.await_passage(USUAL_LONGEST)?;
    let carried = bed.carry(&[60, 1000, USUAL_LONGEST], 200).map_err(|error| error.to_string());
    bed.detach()?;
    bed.attach("")?;
    carried.map(|_| None)
}

/// Waits until the port tells why it does not work.
fn await_reason(bed: &Bed) -> Result<String, String> {
    eventually(|| {
        bed.port()?.error.ok_or_else(|| "the port does not tell why it passes no frames".to_owned())
    })
}

/// Numbers with this name among those that ethtool prints.
fn numbers(option: &str, name: &str) -> Vec<u64> {
    let settings = settings(option).unwrap_or_default().into_iter();
    settings.filter(|(own, _)| own == name).map(|(_, value)| value).collect()
}
