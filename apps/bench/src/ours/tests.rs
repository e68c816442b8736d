use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::contestant::{Contestant, Sample};
use crate::plan::Point;

/// Object to preload into netmap programs: a library that every process has.
const OBJECT: &str = "libc.so.6";

const CORES: CorePair = CorePair { first: 0, second: 1 };

/// Makes a program that simulates the daemon and all workers: a shell script that replies by the worker's protocol. In
/// its commands `counting`, which answer each `count`, `$n` is the number of the count.
fn programs(folder: &Path, counting: &str) -> Programs {
    let file = folder.join("workers.sh");
    let test_program = std::env::current_exe().unwrap();
    let script = format!(
        "#!/bin/sh\n[ \"$2\" = --socket ] && STAND_IN_SOCKET=$3 exec '{}' --ignored --exact ours::tests::daemon_stand_in\n\
         [ \"$1\" = bench-worker ] || exit 9\n\
         case $2 in netmap-*) [ \"$LD_PRELOAD\" = '{OBJECT}' ] || exit 8;; *) [ -z \"$LD_PRELOAD\" ] || exit 7;; esac\necho '{{\"ready\":true}}'\nread go\n\
         n=0; while read count; do n=$((n+1)); {counting}; done\n",
        test_program.display()
    );
    fs::write(&file, script).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    Programs { worker: file.clone(), daemon: Some(file) }
}

/// Returns the command of a worker that has received `[$n0, $n00]` frames of `directions` after `seconds` times n.
fn counting(directions: &str, seconds: u32) -> String {
    format!(
        r#"echo "{{\"directions_frames\":[{directions}],\"lost_or_reordered_frames\":0,\"at_ns\":$((n*{seconds}))000000000,\"ticks\":$((n*225))}}""#
    )
}

#[test]
#[ignore = "a process of the tests beside it, not a test"]
fn daemon_stand_in() {
    let Some(socket) = std::env::var_os("STAND_IN_SOCKET") else { return };
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    listener.incoming().for_each(drop);
}

/// Returns the contestants on a path, the object preloaded into netmap programs.
fn contestants(path: FramePath, programs: &Programs) -> Vec<ProgramContestant> {
    let roles: &[WorkerRole] = match path {
        FramePath::Null => &[WorkerRole::Null],
        FramePath::Pipe => &[WorkerRole::Sink, WorkerRole::Source],
        FramePath::Switch => &[WorkerRole::Loop],
        _ => return netmap_contestants(path, Path::new(OBJECT), programs),
    };
    vec![workers("Ringroad", path, roles, None, programs)]
}

fn point(path: FramePath) -> Point {
    Point { path, frame_bytes: 64, burst_frames: 32 }
}

fn measure(path: FramePath, counting: &str) -> Result<Sample, BenchError> {
    let folder = tempfile::tempdir().unwrap();
    let mut all = contestants(path, &programs(folder.path(), counting));
    all[0].measure(&point(path), Duration::from_secs(1), CORES, &StopFlag::default())
}

#[test]
fn the_counting_worker_of_each_path_gives_the_sample() {
    for path in [FramePath::Null, FramePath::Pipe, FramePath::Switch] {
        let sample = measure(path, &counting("${n}0,$((n*2))0", 1)).unwrap();
        assert_eq!((sample.frames, sample.frames_per_second), (30, 30.0), "{path}");
        assert_eq!(sample.cycles_per_frame, Some(7.5));
    }
}

#[test]
fn netmap_programs_get_the_object_and_native_ones_on_their_paths_do_not() {
    let folder = tempfile::tempdir().unwrap();
    for path in FramePath::NETMAP {
        let programs = programs(folder.path(), &counting("${n}0", 1));
        let words = [("ioctl", "netmap-sync-"), ("poll", "netmap-poll-"), ("native", "")];
        for (mut contestant, (name, role)) in contestants(path, &programs).into_iter().zip(words) {
            let duration = Duration::from_secs(1);
            let sample = contestant.measure(&point(path), duration, CORES, &StopFlag::default()).unwrap();
            assert_eq!(sample.frames, 10, "{path}");
            assert!(contestant.name().contains(name), "{}", contestant.name());
            let last = contestant.facts().commands.pop().unwrap();
            assert!(last.contains(&format!("bench-worker {role}")), "{last}");
        }
    }
}

#[test]
fn without_a_daemon_the_error_has_advice() {
    let folder = tempfile::tempdir().unwrap();
    let programs = Programs { daemon: None, ..programs(folder.path(), "exit 1") };
    let ours = &mut contestants(FramePath::Pipe, &programs)[0];
    let duration = Duration::from_secs(1);
    let error = ours.measure(&point(FramePath::Pipe), duration, CORES, &StopFlag::default()).unwrap_err();
    assert!(error.to_string().contains("RINGROAD_DAEMON"), "{error}");
}

#[test]
fn a_workers_complaint_is_the_error() {
    let error = measure(FramePath::Pipe, r#"echo '{"error":"the ring is broken"}'"#).unwrap_err();
    assert_eq!(error.to_string(), "the sink worker failed: the ring is broken");
}

#[test]
fn a_worker_that_dies_is_noticed_at_once() {
    let error = measure(FramePath::Switch, "echo out of rings >&2; exit 4").unwrap_err();
    assert!(matches!(error, BenchError::Exited { .. }), "{error}");
    assert!(error.to_string().contains("out of rings"), "{error}");
}

#[test]
fn a_count_over_a_wrong_interval_is_invalid() {
    assert!(matches!(measure(FramePath::Null, &counting("${n}0", 9)), Err(BenchError::Implausible(_))));
}

#[test]
fn commands_are_in_the_facts_with_size_and_burst() {
    let folder = tempfile::tempdir().unwrap();
    let programs = programs(folder.path(), "exit 1");
    let ours = &mut contestants(FramePath::Pipe, &programs)[0];
    let point = Point { path: FramePath::Pipe, frame_bytes: 1518, burst_frames: 8 };
    let _ = ours.measure(&point, Duration::from_millis(500), CORES, &StopFlag::default());
    let commands = ours.facts().commands;
    assert_eq!(commands.len(), 3);
    assert!(commands[1].ends_with("bench-worker sink --port bench}1 --size 1518 --burst 8 --cpu 0"));
}
