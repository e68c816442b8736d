//! Test of all contestants on virtual interfaces, and of all generators, briefly: Ringroad, and the installed peers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, FromArgMatches};
use ringroad_bench::worker::{self, WorkerOptions};
use ringroad_bench::{BenchPlan, BenchSession, ContestantOutcome, FramePath, Point, PointReport, StopFlag};

/// Makes a program that takes `bench-worker ...`. It runs this test itself, since the command belongs to another crate.
fn worker_program(folder: &Path) -> PathBuf {
    let file = folder.join("worker.sh");
    let test_program = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\nBENCH_WORKER=\"$*\" exec '{}' --ignored --exact --nocapture worker_stand_in\n",
        test_program.display()
    );
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file
}

#[test]
#[ignore = "a process of the test beside it, not a test"]
fn worker_stand_in() {
    let Ok(words) = std::env::var("BENCH_WORKER") else { return };
    let command = WorkerOptions::augment_args(clap::Command::new("bench-worker"));
    let options = WorkerOptions::from_arg_matches(&command.get_matches_from(words.split(' '))).unwrap();
    let input = std::io::BufReader::new(std::io::stdin());
    // Errors are printed to the output.
    let _ = worker::run(&options, input, &mut std::io::stdout());
}

/// Number of attempts at a point in which a contestant carried nothing: a busy machine may give a peer no time for a
/// whole sample, or no huge pages.
const ATTEMPTS: usize = 3;

/// Whether all contestants ran at a point. A busy machine may disturb the timing or lack memory, and nothing else.
fn carried(point: &PointReport) -> bool {
    assert!(point.series.iter().any(|series| series.ours), "{}", point.point);
    let mut carried = true;
    for series in &point.series {
        let name = format!("{}: {}", point.point, series.contestant);
        for outcome in &series.outcomes {
            match outcome {
                ContestantOutcome::Valid(sample) => {
                    assert_eq!(sample.cpu_cost.is_some(), point.point.path.has_interfaces(), "{name}");
                    let path = point.point.path.to_string();
                    let receives = path.ends_with("-rx") || path.ends_with("-io");
                    assert_eq!(sample.offered_fps.is_some(), receives, "{name}");
                }
                ContestantOutcome::Invalid { reason } => {
                    let lacks_pages = reason.starts_with("no huge pages for this turn");
                    assert!(
                        lacks_pages || reason.starts_with("the sample does not count"),
                        "{name}: {reason}"
                    );
                    carried &= !lacks_pages && !reason.contains("carried nothing");
                }
            }
        }
    }
    carried
}

#[test]
fn every_installed_contestant_forwards_frames_and_reports_their_cost() {
    let folder = tempfile::tempdir().unwrap();
    let point = |path| Point { path, frame_bytes: 64, burst_frames: 32 };
    let mut points: Vec<_> =
        FramePath::VETH.into_iter().chain(FramePath::GEN).chain([FramePath::Send]).map(point).collect();
    let owner_of_null = || std::fs::metadata("/dev/null").map(|file| (file.uid(), file.gid())).unwrap();
    let owner_before = owner_of_null();
    for _ in 0..ATTEMPTS {
        let plan = BenchPlan {
            points: points.clone(),
            rounds: 1,
            sample: Duration::from_millis(300),
            warm_up: Duration::from_millis(100),
        };
        let session =
            BenchSession::prepare(plan, Some(&worker_program(folder.path())), &StopFlag::default()).unwrap();
        let have_interfaces = |points: &[Point]| points.iter().any(|point| point.path.has_interfaces());
        // Later attempts may have none of these points left.
        if have_interfaces(&points) && !have_interfaces(&session.plan().points) {
            let absent = session.contestants().absent.first().expect("a reason");
            assert!(!ringroad_test_needs::is_root(), "{}", absent.reason);
            assert!(absent.reason.contains("needs root"), "{}", absent.reason);
            return;
        }
        let report = session.run(&mut |progress| eprintln!("{progress}"));
        eprintln!("{}", report.to_table(Some(160)));

        assert_eq!(report.points.len(), points.len());
        points = report.points.iter().filter(|point| !carried(point)).map(|point| point.point).collect();
        if points.is_empty() {
            break;
        }
    }
    assert!(points.is_empty(), "a contestant carried nothing in {ATTEMPTS} samples: {points:?}");
    let owner = owner_of_null();
    assert!(
        [owner_before, (0, 0)].contains(&owner),
        "tcpdump gives the file that it writes to a user: {owner:?}"
    );
}
