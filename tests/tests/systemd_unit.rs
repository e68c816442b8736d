//! The unit files of `make install`: systemd accepts them, and the daemon works with the rights that its unit grants.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

use ringroad_tests::daemon::{Daemon, binary};
use ringroad_tests::network::{address, finished, is_root};
use ringroad_tests::testbed::{Testbed, host};
use serde_json::Value;

const UNIT: &str = include_str!("../../packaging/systemd/ringroadd.service.in");

/// Value of `key` in the unit.
fn setting(key: &str) -> String {
    let mut values = UNIT.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let value = values.next().unwrap_or_else(|| panic!("the unit has no {key}"));
    assert_eq!(values.next(), None, "{key} stands there twice");
    value.to_owned()
}

#[test]
fn systemd_understands_the_units() {
    let metrics = include_str!("../../packaging/systemd/ringroad-metrics.service.in");
    for (name, unit) in [("ringroadd.service", UNIT), ("ringroad-metrics.service", metrics)] {
        let folder = tempfile::tempdir().unwrap();
        verify(name, &put(folder.path(), name, unit));
    }
}

/// Writes a unit into a folder, in its installed form.
fn put(folder: &Path, name: &str, unit: &str) -> PathBuf {
    let path = folder.join(name);
    // The paths of the programs must exist, since systemd checks them.
    let programs = std::path::absolute(binary("ringroadd").parent().unwrap()).unwrap();
    let text =
        unit.replace("@BINDIR@", &programs.display().to_string()).replace("@CONFDIR@", "/etc/ringroad");
    std::fs::write(&path, text).unwrap();
    path
}

/// systemd's report of a unit's IP access: whether it is allowed at all, and whether the addresses are limited.
fn speech(unit: &Path) -> Vec<String> {
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=true", "--json=short"]).arg(unit);
    let output = analyze.output().unwrap();
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |field: &str| {
        let found = printed.as_array().unwrap().iter().find(|one| one["json_field"] == field).unwrap();
        found["description"].as_str().unwrap().to_owned()
    };
    ["RestrictAddressFamilies_AF_INET_INET6", "IPAddressDeny"].map(of).to_vec()
}

#[test]
fn the_daemon_speaks_ip_only_where_it_is_allowed_and_then_with_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let unit = put(folder.path(), "ringroadd.service", UNIT);
    assert_eq!(
        speech(&unit),
        ["Service cannot allocate Internet sockets", "Service blocks all IP address ranges"]
    );
    let drop_ins = folder.path().join("ringroadd.service.d");
    std::fs::create_dir(&drop_ins).unwrap();
    let drop_in = include_str!("../../packaging/systemd/openflow.conf");
    // The drop-in has no effect under the name with which it is installed.
    std::fs::write(drop_ins.join("openflow.conf.example"), drop_in).unwrap();
    assert_eq!(speech(&unit)[0], "Service cannot allocate Internet sockets");
    std::fs::write(drop_ins.join("openflow.conf"), drop_in).unwrap();
    assert_eq!(
        speech(&unit),
        [
            "Service may allocate Internet sockets",
            "Service defines IP address allow list with only localhost entries"
        ]
    );
    verify("ringroadd.service", &unit);
}

fn verify(name: &str, path: &Path) {
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(path).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    // Warnings about other units of the machine may appear.
    assert!(!printed.contains(name), "{printed}");
}

/// Words of a command that runs another with the rights that the unit grants, without the capabilities `dropped`.
fn launcher(dropped: &[&str]) -> Vec<String> {
    let granted = setting("CapabilityBoundingSet").to_lowercase().replace("cap_", "");
    let kept = granted.split(' ').filter(|name| !dropped.contains(name));
    // CAP_IPC_LOCK has the effect of LimitMEMLOCK=infinity, which not every root may set.
    assert_eq!(setting("LimitMEMLOCK"), "infinity");
    let bounding = kept.chain(["ipc_lock"]).fold("-all".to_owned(), |set, name| format!("{set},+{name}"));
    let launcher = ["setpriv", "--no-new-privs", "--inh-caps", "-all", "--bounding-set", &bounding];
    launcher.map(str::to_owned).into()
}

/// A site whose daemon has the rights that the unit grants, without the capabilities `dropped`.
fn site(dropped: &[&str]) -> Testbed {
    let launcher = launcher(dropped);
    Testbed::launched_by(&launcher.iter().map(String::as_str).collect::<Vec<_>>(), 2, 1500, 1)
}

#[test]
fn the_daemon_writes_its_configuration_with_the_rights_of_the_unit() {
    if !is_root() {
        return;
    }
    let etc = tempfile::tempdir().unwrap();
    let folder = etc.path().join("ringroad");
    let config = folder.join("ringroadd.toml");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(&config, "# mine\n").unwrap();
    // The folders are mounted as systemd does it: read-only, except for those that the unit names.
    let (etc, folder) = (etc.path().display(), folder.display().to_string());
    let mut mounts = format!("mount --bind {etc} {etc} && mount -o remount,bind,ro {etc}");
    let granted = setting("ReadWritePaths").replace("@CONFDIR@", &folder);
    for path in granted.split(' ').map(|path| path.trim_start_matches('-')).filter(|path| *path == folder) {
        mounts += &format!(" && mount --bind {path} {path} && mount -o remount,bind,rw {path}");
    }
    let rights = launcher(&[]).join(" ");
    let script = format!(r#"{mounts} && exec {rights} "$1" --socket "$3" --config {}"#, config.display());
    let daemon = Daemon::launched_by(&["unshare", "--mount", "sh", "-c", &script, "sh"], "");
    let told = || std::fs::read_to_string(&config).unwrap();
    finished(&mut daemon.ringroad(&["attach", "vale0:sink", "--driver", "null:"]));
    finished(&mut daemon.ringroad(&["config", "save"]));
    assert!(told().contains("# mine\n") && told().contains("vale0:sink"), "{}", told());
    let new = daemon.folder().join("new.toml");
    std::fs::write(&new, "[log]\nlevel = \"debug\"\n").unwrap();
    finished(daemon.ringroad(&["config", "apply"]).arg(&new));
    assert_eq!(told(), "[log]\nlevel = \"debug\"\n");
    let left = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["ringroadd.toml"]);
}

#[test]
fn the_units_capabilities_suffice_for_interfaces_and_taps() {
    if !is_root() {
        return;
    }
    let site = site(&[]);
    assert_eq!(site.attach(0, "xdp:{}@mode=native").kind, "af_xdp");
    site.attach(1, "packet:{}");
    site.stations[0].ping(&address(host(1)).to_string());
    let station = site.stations[1].name();
    for arguments in [
        &["attach", "vale0:tap", "--driver", "tap:t0"][..],
        &["attach", "vale0:host", "--driver", "outer0^"],
        &["attach", "vale1:inner", "--driver", "packet:inner", "--netns", station],
    ] {
        finished(&mut site.ringroad(arguments));
    }
}

#[test]
fn the_unit_grants_no_needless_capability() {
    if !is_root() {
        return;
    }
    for (dropped, arguments) in [
        (&["net_admin"][..], &["--driver", "tap:t0"][..]),
        (&["net_raw"], &["--driver", "packet:outer0"]),
        // Each of the two capabilities alone lets a process load programs. The next case is about sys_admin.
        (&["bpf", "sys_admin"], &["--driver", "xdp:outer0@mode=native"]),
        (&["sys_admin"], &["--driver", "packet:inner", "--netns"]),
    ] {
        let site = site(dropped);
        let station = site.stations[0].name();
        let netns = if arguments.last() == Some(&"--netns") { vec![station] } else { Vec::new() };
        let why = site.refusal(&[&["attach", "vale0:p9"][..], arguments, &netns].concat());
        assert!(why.contains("root"), "{dropped:?}: {why}");
    }
}
