//! Test with the installed DPDK peers: each path once, briefly. It is skipped without testpmd.
//!
//! Everything is in one test function, since the peers need the cores to themselves.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use ringroad_bench::{BenchPlan, BenchSession, ContestantOutcome, FramePath, Point, PointReport, StopFlag};

fn process_ids() -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1).map(str::to_owned));
        if parent.as_deref() == Some(&std::process::id().to_string()) {
            found.push(stat);
        }
    }
    found
}

/// Returns the number of the pool's pages while no bench on this machine has a reserve: benches share a lock of this
/// file. Surplus pages, which a program still uses, are not included.
fn hugepages() -> Option<u64> {
    let pool = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB");
    let mark = File::open(pool.join("free_hugepages")).ok()?;
    mark.lock().ok()?;
    let number = |file| std::fs::read_to_string(pool.join(file)).ok()?.trim().parse::<u64>().ok();
    Some(number("nr_hugepages")?.saturating_sub(number("surplus_hugepages")?))
}

fn point(path: FramePath) -> Point {
    Point { path, frame_bytes: 64, burst_frames: 32 }
}

/// Longest sample, more than other load can take away.
const LONGEST_SAMPLE: Duration = Duration::from_secs(10);

/// Whether a contestant had no processor or no huge pages for a whole sample, as on a busy machine.
fn carried_nothing(point: &PointReport) -> bool {
    let nothing = |reason: &str| reason.contains("carried nothing") || reason.starts_with("no huge pages");
    let mut outcomes = point.series.iter().flat_map(|series| &series.outcomes);
    outcomes.any(|outcome| matches!(outcome, ContestantOutcome::Invalid { reason } if nothing(reason)))
}

#[test]
fn every_installed_peer_carries_frames_and_leaves_nothing_behind() {
    let stop = StopFlag::default();
    let hugepages_before = hugepages();
    let plan = |sample| BenchPlan {
        points: [FramePath::Null, FramePath::Pipe, FramePath::Switch, FramePath::GenNull].map(point).to_vec(),
        rounds: 1,
        sample,
        warm_up: Duration::from_millis(100),
    };
    let mut sample = Duration::from_millis(300);
    let mut session = BenchSession::prepare(plan(sample), None, &stop).expect("a CPU");
    if let Some(absent) = session.contestants().absent.iter().find(|absent| absent.name.starts_with("DPDK")) {
        eprintln!("skipped: {}: {}", absent.name, absent.reason);
        return;
    }
    let mut report = session.run(&mut |progress| eprintln!("{progress}"));
    while sample < LONGEST_SAMPLE && report.points.iter().any(carried_nothing) {
        sample *= 4;
        session = BenchSession::prepare(plan(sample), None, &stop).expect("a CPU");
        report = session.run(&mut |progress| eprintln!("{progress}"));
    }
    eprintln!("{}", report.to_table(Some(160)));

    for (point, at_least) in report.points.iter().zip([2, 2, 1, 2]) {
        assert!(point.series.len() >= at_least, "{}", point.point);
        for series in &point.series {
            for outcome in &series.outcomes {
                match outcome {
                    ContestantOutcome::Valid(sample) => assert!(sample.frames > 0),
                    // A busy machine may disturb the timing, but nothing else.
                    ContestantOutcome::Invalid { reason } => {
                        assert!(
                            reason.starts_with("the sample does not count"),
                            "{}: {reason}",
                            series.contestant
                        );
                        assert!(!reason.contains("carried nothing"), "{}: {reason}", series.contestant);
                    }
                }
            }
        }
    }
    assert!(report.points[2].absolutes[0].directions_fps.len() != 1, "a switch carries two directions");
    for contestant in &report.contestants {
        let version = contestant.version.as_deref().expect("a version after a sample");
        assert!(version.starts_with("DPDK "), "{version}");
        assert!(!contestant.commands.is_empty());
    }
    assert_eq!(process_ids(), Vec::<String>::new(), "children are left");
    assert_eq!(hugepages(), hugepages_before, "the pool of huge pages is as it was");
}
