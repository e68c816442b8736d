//! `ringroad bench vm` measures real switches; what it found is not for a test to judge.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use ringroad_tests::daemon::binary;
use ringroad_tests::testpmd::Testpmd;
use serde_json::Value;

#[test]
fn a_switch_between_guests_is_measured_beside_testpmd_and_the_report_says_all_of_it() {
    if !Testpmd::is_installed() {
        return;
    }
    let output = Command::new(binary("ringroad"))
        .args(["--json", "bench", "vm", "--switch", "testpmd", "--size", "64", "--repeat", "2"])
        .args(["--trial", "0.05", "--loss", "0.5"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "ringroad-bench-vm/1");
    assert_eq!(report["stopped"], false);
    assert_eq!(report["absent"], serde_json::json!([]));
    let switches = report["switches"].as_array().unwrap();
    let names: Vec<_> = switches.iter().map(|switch| switch["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["Ringroad", "DPDK testpmd io"]);
    for switch in switches {
        let turns = switch["turns"].as_array().unwrap();
        assert_eq!(turns.len(), 2);
        // On a machine that does something else for a while a turn may fail; not all of them.
        assert!(turns.iter().any(|turn| turn["state"] == "valid"), "{switch}");
        assert!(switch["idle_cpu_percent"]["median"].is_f64(), "{switch}");
    }
    let sizes = report["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 1);
    assert_eq!(sizes[0]["frame_bytes"], 64);
    for switch in sizes[0]["switches"].as_array().unwrap() {
        assert!(switch["overload_fps"]["median"].as_f64().unwrap() > 0.0, "{switch}");
    }
    assert!(report["goals"].as_array().unwrap().iter().any(|goal| goal["goal"].is_string()));
}

#[test]
fn frames_pass_a_guest_that_forwards_and_the_report_says_on_which_core() {
    if !Testpmd::is_installed() {
        return;
    }
    let cpus = std::thread::available_parallelism().unwrap().get();
    let bench = || {
        let mut command = Command::new(binary("ringroad"));
        command
            .args(["--json", "bench", "vm", "--topology", "pvp", "--switch", "testpmd", "--size", "64"])
            .args(["--repeat", "2", "--trial", "0.1", "--loss", "0.9"]);
        command
    };
    if cpus < 3 {
        let refused = bench().output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("--shared-core"), "{said}");
    }
    let output = bench().args((cpus < 3).then_some("--shared-core")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["plan"]["topology"], "pvp");
    assert_eq!(report["cores"]["guest_shares_core"], cpus < 3);
    for switch in report["switches"].as_array().unwrap() {
        let turns = switch["turns"].as_array().unwrap();
        assert!(turns.iter().any(|turn| turn["state"] == "valid"), "{switch}");
        for turn in turns.iter().filter(|turn| turn["state"] == "valid") {
            let overload_fps = turn["sizes"][0]["overload_fps"].as_f64().unwrap();
            let passed = turn["guest"]["frames"].as_f64().unwrap();
            assert!(overload_fps > 0.0 && passed >= overload_fps * 0.1, "{turn}");
            assert!(turn["guest"]["command"].as_str().unwrap().contains("--forward-mode=io"), "{turn}");
        }
    }
    if cpus < 3 {
        let goals = report["goals"].as_array().unwrap();
        assert!(goals.iter().all(|goal| goal["is_met"].is_null()), "{goals:?}");
    }
}
