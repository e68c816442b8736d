//! `ringroad bench sze2` measures a real testpmd; the test does not judge the figures.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::Command;

use ringroad_tests::daemon::binary;
use ringroad_tests::szedata_plugin::SzedataPlugin;
use serde_json::Value;

#[test]
fn the_report_compares_all_sze2_drivers() {
    let Some(plugin) = SzedataPlugin::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("chart.svg");
    let output = Command::new(binary("ringroad"))
        .args([
            "--json", "bench", "sze2", "--size", "64", "--burst", "32", "--cores", "1C/1T", "--repeat", "1",
        ])
        .args([
            "--interval",
            "0.3",
            "--plugin",
            plugin.path().to_str().unwrap(),
            "--chart",
            chart.to_str().unwrap(),
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["schema"], &report["stopped"]), (&"ringroad-bench-sze2/2".into(), &false.into()));
    let rows = report["rows"].as_array().unwrap();
    let modes: Vec<_> = rows.iter().map(|row| row["mode"].as_str().unwrap()).collect();
    assert_eq!(modes, ["rxonly", "txonly", "io"]);
    for row in rows {
        for driver in row["drivers"].as_array().unwrap() {
            assert_eq!(driver["failures"], serde_json::json!([]), "{driver}");
            assert!(driver["frames_per_s"]["median"].as_f64().unwrap() > 0.0, "{driver}");
            assert!(driver["cycles_per_frame"]["median"].as_f64().unwrap() > 0.0, "{driver}");
            let (name, mode) = (driver["driver"].as_str().unwrap(), row["mode"].as_str().unwrap());
            // The calls are a part of the loop; rates of the loop need it.
            assert_eq!(driver["core_frames_per_s"].is_null(), name == "memcpy", "{driver}");
            assert_eq!(driver["refused_percent"].is_null(), name == "memcpy" || mode == "rxonly", "{driver}");
            assert_eq!(driver["card"].is_null(), name != "szedata2", "{driver}");
            if name == "szedata2" {
                let counted = if mode == "txonly" { "sent" } else { "offered" };
                assert!(driver["card"][counted].as_f64().unwrap() > 0.0, "{driver}");
            }
        }
    }
    let drawn = std::fs::read_to_string(chart).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("rxonly: rates, burst 32"), "{drawn}");
}
