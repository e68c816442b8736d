//! Numbers and rates as text. A rate always names the bits that it counts. L2 is the frame with its FCS. L1 adds
//! preamble, delimiter and gap, 20 bytes per frame, as in the speed of a link.

use ringroad::Reconnections;
use ringroad_traffic::rate_meter::TrafficRate;

/// Explanation of L1 and L2, for the foot of a table.
pub(crate) const CONVENTION: &str =
    "L2 counts frames with FCS; L1 adds preamble and gap (20 bytes a frame), as line rate does";

/// Formats a number with spaces between groups of digits: `1234567` as `1 234 567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats frames/s as Mpps, kpps or pps, with at most three digits after the point.
pub(crate) fn frame_rate(rate_fps: f64) -> String {
    match rate_fps {
        rate if rate >= 999_500.0 => format!("{:.3} Mpps", rate / 1e6),
        rate if rate >= 999.5 => format!("{:.3} kpps", rate / 1e3),
        rate => format!("{rate:.1} pps"),
    }
}

/// Formats frames/s, and bit/s of both layers.
pub(crate) fn traffic_rate(rate: &TrafficRate) -> String {
    format!("{}, {:.3} Gbit/s L2, {:.3} Gbit/s L1", frame_rate(rate.rate_fps), rate.l2_gbps, rate.l1_gbps)
}

/// Formats the frames and bytes that passed a port, and the unit of the rates.
pub(crate) fn totals(port: &str, frames: u64, bytes: u64, seconds: f64, rate: &TrafficRate) -> Vec<String> {
    let (frames, bytes) = (grouped(frames), grouped(bytes));
    vec![
        format!("{port}: {frames} frames, {bytes} bytes in {seconds:.3} s: {}", traffic_rate(rate)),
        format!("  {CONVENTION}"),
    ]
}

/// Formats a span of time in ns, in a suitable unit.
pub(crate) fn span(span_ns: f64) -> String {
    match span_ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// Formats bytes in the largest binary unit that leaves at least 1.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    format!("{value:.1} {unit}")
}

/// Formats how often a port was connected again after its daemon's end; `None` for never.
pub(crate) fn reconnections(reconnections: &Reconnections) -> Option<String> {
    let Reconnections { count, unacknowledged_slots } = *reconnections;
    (!reconnections.is_none()).then(|| {
        format!(
            "  opened again {} times, with {} slots handed over and not acknowledged",
            grouped(count),
            grouped(unacknowledged_slots)
        )
    })
}

#[cfg(test)]
mod tests {
    use ringroad_traffic::rate_meter::{RateMeter, TrafficSnapshot};

    use super::*;

    #[test]
    fn digits_are_grouped_by_three() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1 000"), (1_234_567, "1 234 567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn frame_rates_take_a_fitting_unit() {
        for (rate, text) in [
            (0.0, "0.0 pps"),
            (999.4, "999.4 pps"),
            (1000.0, "1.000 kpps"),
            (999_600.0, "1.000 Mpps"),
            (14_880_952.0, "14.881 Mpps"),
        ] {
            assert_eq!(frame_rate(rate), text);
        }
    }

    #[test]
    fn a_full_link_of_short_frames_reads_ten_gbit_on_the_line() {
        let mut meter = RateMeter::new(TrafficSnapshot::default());
        let rate = meter.update(TrafficSnapshot {
            frames: 312_500_000,
            bytes: 312_500_000 * 60,
            now_ns: 21_000_000_000,
        });
        assert_eq!(traffic_rate(&rate), "14.881 Mpps, 7.619 Gbit/s L2, 10.000 Gbit/s L1");
    }

    #[test]
    fn durations_take_a_fitting_unit() {
        for (span_ns, text) in
            [(0.0, "0 ns"), (999.0, "999 ns"), (1500.0, "1.5 µs"), (2.5e6, "2.50 ms"), (3e9, "3.00 s")]
        {
            assert_eq!(span(span_ns), text);
        }
    }

    #[test]
    fn sizes_take_binary_units() {
        for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 30, "3.0 GiB")] {
            assert_eq!(size(bytes), text);
        }
    }
}
