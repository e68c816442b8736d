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
