use std::time::Duration;

use super::*;
use crate::contestant::Sample;
use crate::plan::{FramePath, InterfaceWork, Mechanism};
use crate::runner::{ContestantOutcome, PointResult};

fn series(contestant: &str, ours: bool, rates_fps: &[Option<u64>]) -> PointSeries {
    let outcome = |rate: &Option<u64>| match rate {
        Some(rate) => {
            ContestantOutcome::Valid(Sample::of_directions(&[(rate / 2, 1.0), (rate / 2, 1.0)], 0.0))
        }
        None => ContestantOutcome::Invalid { reason: "the peer fell over".into() },
    };
    PointSeries { contestant: contestant.into(), ours, outcomes: rates_fps.iter().map(outcome).collect() }
}

fn report(path: FramePath, series: Vec<PointSeries>) -> BenchReport {
    let point = Point { path, frame_bytes: 64, burst_frames: 32 };
    let plan = BenchPlan {
        points: vec![point],
        rounds: 3,
        sample: Duration::from_millis(500),
        warm_up: Duration::from_millis(100),
    };
    let result = RunResult { points: vec![PointResult { point, series }], stopped: false };
    let machine = MachineFacts { tsc_hz: Some(2e9), ..MachineFacts::default() };
    BenchReport::new(machine, None, CorePair { first: 0, second: 1 }, plan, &Contestants::default(), result)
}

fn compared() -> BenchReport {
    let ours = series("Ringroad", true, &[Some(30_000_000), Some(20_000_000), Some(40_000_000)]);
    let peer = series("DPDK memif", false, &[Some(10_000_000), None, Some(20_000_000)]);
    report(FramePath::Pipe, vec![ours, peer])
}

#[test]
fn the_table_shows_ratio_range_and_both_absolutes() {
    let table = compared().to_table(Some(200));
    let row = table.lines().find(|line| line.contains("DPDK memif")).unwrap();
    for cell in ["2.50", "2.00-3.00", "30.00 (20.00-40.00)", "15.00 (10.00-20.00)", "20.2 / 10.1"] {
        assert!(row.contains(cell), "{cell} is not in {row}");
    }
    assert!(table.contains("1 samples"), "{table}");
}

#[test]
fn without_a_peer_the_ratio_is_a_dash_and_our_figure_is_still_there() {
    let table =
        report(FramePath::Pipe, vec![series("Ringroad", true, &[Some(30_000_000)])]).to_table(Some(200));
    let row = table.lines().find(|line| line.contains("pipe")).unwrap();
    assert!(row.contains('-') && row.contains("30.00"), "{row}");
}

#[test]
fn a_peer_that_never_worked_has_no_ratio_and_no_rate() {
    let report = report(
        FramePath::Switch,
        vec![series("Ringroad", true, &[Some(2), Some(2)]), series("peer", false, &[None, None])],
    );
    let point = report.points.first().unwrap();
    assert!(point.ratios[0].ratio.is_none());
    assert!(point.absolutes[1].frames_per_second.is_none());
    assert_eq!(point.absolutes[1].invalid_samples, 2);
}

#[test]
fn a_figure_that_other_programs_disturbed_is_named() {
    let mut series = series("DPDK memif", false, &[Some(1_000_000); 3]);
    for (outcome, wait) in series.outcomes.iter_mut().zip([0.0, 0.25, 0.5]) {
        if let ContestantOutcome::Valid(sample) = outcome {
            sample.cpu_wait = Some(wait);
        }
    }
    let table = report(FramePath::Pipe, vec![series]).to_table(Some(200));
    assert!(table.contains("Disturbed: pipe 64 B burst 32: DPDK memif waited for its CPU 25 %"), "{table}");
    assert!(!compared().to_table(Some(200)).contains("Disturbed"));
}

#[test]
fn paths_in_memory_have_the_cycles_of_one_core_per_frame() {
    let of = |path| report(path, vec![series("program", true, &[Some(50_000_000)])]);
    let cycles = |path| of(path).points[0].absolutes[0].cycles_per_frame;
    assert_eq!(of(FramePath::Null).points[0].absolutes[0].ns_per_frame, Some(20.0));
    for path in [FramePath::Null, FramePath::Pipe, FramePath::NetmapSwitch, FramePath::Cores(1)] {
        assert_eq!(cycles(path), Some(40.0), "{path}");
    }
    assert_eq!(cycles(FramePath::Cores(2)), Some(80.0), "each of two cores makes half of the frames");
    assert_eq!(cycles(FramePath::Veth(Mechanism::Xdp, InterfaceWork::Tx)), None);
    assert!(of(FramePath::Null).to_table(Some(200)).contains("Overhead floor"));
}

#[test]
fn each_step_of_a_send_has_what_it_adds_to_the_one_before_it() {
    let steps = vec![
        series("slot", true, &[Some(100_000_000); 3]),
        series("AF_XDP", true, &[Some(2_000_000); 3]),
        series("loop", false, &[Some(1_000_000_000); 3]),
        series("packet", false, &[Some(1_000_000); 3]),
    ];
    let table = report(FramePath::Send, steps).to_table(Some(250));
    let cells = |name: &str| -> Vec<String> {
        let row = table.lines().find(|line| line.contains(&format!(" {name} "))).unwrap();
        row.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    for (name, ns, added, ratio) in [
        ("slot", "10.0", "-", "-"),
        ("AF_XDP", "500.0", "490.0", "-"),
        ("loop", "1.0", "-", "0.00 (0.00-0.00)"),
        ("packet", "1000.0", "999.0", "2.00 (2.00-2.00)"),
    ] {
        let row = cells(name);
        assert_eq!([&row[5], &row[6], &row[8]], [ns, added, ratio], "{row:?}");
    }
}

#[test]
fn generators_have_a_ratio_for_each_mode_of_ringroads_generator() {
    let series = vec![
        series("Ringroad, signed", true, &[Some(2_000_000); 3]),
        series("Ringroad, unsigned", true, &[Some(3_000_000); 3]),
        series("trafgen", false, &[Some(1_000_000); 3]),
    ];
    let report = report(FramePath::Veth(Mechanism::Packet, InterfaceWork::Gen), series);
    let table = report.to_table(Some(250));
    assert!(
        table.contains("ratio of Ringroad, signed") && table.contains("ratio of Ringroad, unsigned"),
        "{table}"
    );
    let row = table.lines().find(|line| line.contains("trafgen")).unwrap();
    let [signed, unsigned] = ["2.00 (2.00-2.00)", "3.00 (3.00-3.00)"].map(|ratio| row.find(ratio).unwrap());
    assert!(signed < unsigned, "{row}");
    assert!(!table.contains("Network interfaces"), "generators are not among plain programs: {table}");
}

#[test]
fn the_json_keeps_its_shape() {
    let json: serde_json::Value = serde_json::from_str(&compared().to_json().unwrap()).unwrap();
    assert_eq!(json["schema"], SCHEMA);
    assert_eq!(json["plan"]["sample_seconds"], 0.5);
    let point = &json["points"][0];
    assert_eq!(point["path"], "pipe");
    assert_eq!(point["frame_bytes"], 64);
    assert_eq!(point["ratios"][0]["ours"], "Ringroad");
    assert_eq!(point["ratios"][0]["peer"], "DPDK memif");
    assert_eq!(point["ratios"][0]["ratio"]["median"], 2.5);
    assert_eq!(point["ratios"][0]["ratio"]["interval"]["low"], 2.0);
    assert_eq!(point["absolutes"][0]["frames_per_second"]["median"], 30e6);
    assert_eq!(point["series"][1]["outcomes"][1]["state"], "invalid");
    assert_eq!(point["series"][1]["outcomes"][0]["frames_per_second"], 10e6);
}

#[test]
fn the_chart_names_its_axis_and_each_contestant() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chart.svg");
    crate::chart::draw(&compared(), &file).unwrap();
    let drawn = std::fs::read_to_string(file).unwrap();
    for text in ["pipe, 64 B", "burst, frames", "Ringroad", "DPDK memif"] {
        assert!(drawn.contains(text), "{text}: {drawn}");
    }
}
