//! The CNI plugin, started as a container runtime starts it, with Debian's plugin for addresses; and podman.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ringroad_test_needs::has_program;
use ringroad_tests::command::{run, stderr};
use ringroad_tests::conservation::await_conserved;
use ringroad_tests::daemon::{Daemon, binary};
use ringroad_tests::network::{NetworkNamespace, is_root, patience_s};
use serde_json::{Value, json};

/// Folder of the plugins of Debian's package containernetworking-plugins.
const DEBIAN_PLUGINS: &str = "/usr/lib/cni";

/// A network of a daemon, and a folder with the plugin.
struct Network {
    daemon: Daemon,
    name: String,
}

impl Network {
    fn new(kind: &str) -> Self {
        let daemon = Daemon::start();
        let plugins = daemon.folder().join("plugins");
        std::fs::create_dir(&plugins).unwrap();
        std::os::unix::fs::symlink(binary("ringroad-cni"), plugins.join("ringroad")).unwrap();
        Self { daemon, name: format!("net-{kind}") }
    }

    fn configuration(&self, kind: &str) -> Value {
        json!({
            // The newest version that Debian's plugin for addresses supports.
            "cniVersion": "1.0.0", "name": self.name, "type": "ringroad", "kind": kind,
            "switch": "vale0", "socket": self.daemon.socket(), "mtu": 1400,
            "socketFolder": self.daemon.folder().join("sockets"),
            "ipam": {
                "type": "host-local", "dataDir": self.daemon.folder().join("leases"),
                "ranges": [[{ "subnet": "10.91.0.0/24" }], [{ "subnet": "fd00:91::/64" }]],
                "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "10.92.0.0/16", "gw": "10.91.0.9" }],
            },
        })
    }

    /// Starts the plugin for interface `eth0`.
    fn ask(
        &self,
        operation: &str,
        container: &str,
        namespace: Option<&Path>,
        configuration: &Value,
    ) -> Output {
        self.ask_for("eth0", operation, container, namespace, configuration)
    }

    /// Starts the plugin as a runtime does.
    fn ask_for(
        &self,
        interface: &str,
        operation: &str,
        container: &str,
        namespace: Option<&Path>,
        configuration: &Value,
    ) -> Output {
        let plugins = self.daemon.folder().join("plugins");
        let mut command = Command::new(plugins.join("ringroad"));
        command
            .env("CNI_COMMAND", operation)
            .env("CNI_CONTAINERID", container)
            .env("CNI_IFNAME", interface)
            .env("CNI_PATH", format!("{}:{DEBIAN_PLUGINS}", plugins.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(namespace) = namespace {
            command.env("CNI_NETNS", namespace);
        }
        let mut child = command.spawn().unwrap();
        let written = child.stdin.take().unwrap().write_all(configuration.to_string().as_bytes());
        // The plugin may refuse, and end, before it reads the configuration.
        assert!(written.is_ok() || written.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe));
        child.wait_with_output().unwrap()
    }

    fn succeed(
        &self,
        operation: &str,
        container: &str,
        namespace: Option<&Path>,
        configuration: &Value,
    ) -> Value {
        let output = self.ask(operation, container, namespace, configuration);
        assert!(output.status.success(), "{operation}: {}", String::from_utf8_lossy(&output.stdout));
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Starts the plugin for an operation that must fail. Returns the plugin's error.
    fn fail(
        &self,
        operation: &str,
        container: &str,
        namespace: Option<&Path>,
        configuration: &Value,
    ) -> Value {
        let output = self.ask(operation, container, namespace, configuration);
        assert!(!output.status.success(), "{operation}: {}", String::from_utf8_lossy(&output.stdout));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn ports(&self) -> usize {
        self.daemon.status().ports.len()
    }
}

fn path_of(namespace: &NetworkNamespace) -> std::path::PathBuf {
    Path::new("/run/netns").join(namespace.name())
}

fn with_previous(configuration: &Value, previous: &Value) -> Value {
    let mut configuration = configuration.clone();
    configuration["prevResult"] = previous.clone();
    configuration
}

#[test]
fn containers_get_interfaces_addresses_and_routes_and_leave_nothing() {
    if !is_root() {
        return;
    }
    let network = Network::new("veth");
    let configuration = network.configuration("veth");
    network.succeed("STATUS", "", None, &configuration);
    let spaces = [NetworkNamespace::new(), NetworkNamespace::new()];
    let results: Vec<Value> = ["one", "two"]
        .iter()
        .zip(&spaces)
        .map(|(container, space)| network.succeed("ADD", container, Some(&path_of(space)), &configuration))
        .collect();
    for (result, space) in results.iter().zip(&spaces) {
        assert_eq!(result["cniVersion"], "1.0.0");
        assert_eq!(result["interfaces"][1]["name"], "eth0");
        assert_eq!(result["interfaces"][1]["sandbox"], path_of(space).display().to_string());
        assert_eq!(result["ips"].as_array().unwrap().len(), 2);
        assert!(result["ips"].as_array().unwrap().iter().all(|ip| ip["interface"] == 1));
        let shown = space.run(&["ip", "-o", "address", "show", "eth0"]);
        for ip in result["ips"].as_array().unwrap() {
            assert!(shown.contains(ip["address"].as_str().unwrap()), "{shown}");
        }
        let routes = space.run(&["ip", "route"]);
        assert!(routes.contains("default via 10.91.0.1 dev eth0"), "{routes}");
        assert!(routes.contains("10.92.0.0/16 via 10.91.0.9 dev eth0"), "{routes}");
        assert!(space.run(&["ip", "link", "show", "eth0"]).contains("mtu 1400"));
    }
    for ip in results[1]["ips"].as_array().unwrap() {
        let address = ip["address"].as_str().unwrap().split('/').next().unwrap();
        spaces[0].run(&["ping", "-c", "2", "-i", "0.1", "-W", &patience_s(), address]);
    }
    let checked = with_previous(&configuration, &results[0]);
    network.succeed("CHECK", "one", Some(&path_of(&spaces[0])), &checked);
    spaces[0].run(&["ip", "address", "flush", "dev", "eth0", "scope", "global"]);
    let missing = network.fail("CHECK", "one", Some(&path_of(&spaces[0])), &checked);
    assert!(missing["msg"].as_str().unwrap().starts_with("eth0 has no address 10.91.0."), "{missing}");

    // The runtime's list of attachments has only container `two`.
    let mut valid = configuration.clone();
    valid["cniVersion"] = json!("1.1.0");
    valid["cni.dev/valid-attachments"] = json!([{ "containerID": "two", "ifname": "eth0" }]);
    network.succeed("GC", "", None, &valid);
    assert_eq!(network.ports(), 1);
    assert!(run(spaces[0].command(&["ip", "link", "show", "eth0"])).status.code() == Some(1));
    for _ in 0..2 {
        network.succeed("DEL", "one", Some(&path_of(&spaces[0])), &configuration);
        // DEL gets no namespace, since the container's namespace may be gone.
        network.succeed("DEL", "two", None, &configuration);
    }
    assert_eq!(network.ports(), 0);
    let leases = std::fs::read_dir(network.daemon.folder().join("leases").join(&network.name)).unwrap();
    let left = leases.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("10."));
    assert_eq!(left.count(), 0, "addresses are given back");
    await_conserved(&network.daemon);
}

#[test]
fn containers_of_a_vlan_reach_each_other_and_no_others() {
    if !is_root() {
        return;
    }
    let network = Network::new("vlan");
    let spaces = [NetworkNamespace::new(), NetworkNamespace::new(), NetworkNamespace::new()];
    let results: Vec<Value> = ["one", "two", "three"]
        .iter()
        .zip(&spaces)
        .zip([10, 10, 20])
        .map(|((container, space), vlan)| {
            let mut configuration = network.configuration("veth");
            configuration["vlan"] = json!(vlan);
            let result = network.succeed("ADD", container, Some(&path_of(space)), &configuration);
            network.succeed(
                "CHECK",
                container,
                Some(&path_of(space)),
                &with_previous(&configuration, &result),
            );
            result
        })
        .collect();
    let settings: Vec<_> =
        network.daemon.status().ports.into_iter().map(|port| port.settings.unwrap().vlan).collect();
    assert_eq!(settings.iter().filter(|vlan| **vlan == Some(10)).count(), 2, "{settings:?}");
    let address =
        |result: &Value| result["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
    spaces[0].run(&["ping", "-c", "2", "-i", "0.1", "-W", &patience_s(), &address(&results[1])]);
    let other = run(spaces[0].command(&["ping", "-c", "1", "-W", "1", &address(&results[2])]));
    assert!(!other.status.success());
}

#[test]
fn guests_and_dpdk_programs_get_sockets() {
    for kind in ["vhost-user", "memif"] {
        let network = Network::new(kind);
        let mut configuration = network.configuration(kind);
        configuration.as_object_mut().unwrap().remove("ipam");
        let result = network.succeed("ADD", "pod", Some(Path::new("/proc/self/ns/net")), &configuration);
        let socket = result["interfaces"][0]["socketPath"].as_str().unwrap().to_owned();
        assert!(Path::new(&socket).exists(), "{socket}");
        let checked = with_previous(&configuration, &result);
        network.succeed("CHECK", "pod", Some(Path::new("/proc/self/ns/net")), &checked);
        network.succeed("DEL", "pod", None, &configuration);
        assert!(!Path::new(&socket).parent().unwrap().exists());
        assert_eq!(network.ports(), 0);
    }
}

#[test]
fn what_cannot_be_is_refused_with_the_codes_of_the_specification() {
    let network = Network::new("errors");
    let configuration = network.configuration("veth");
    let here = Path::new("/proc/self/ns/net");
    let versions = network.succeed("VERSION", "", None, &json!({ "cniVersion": "1.1.0" }));
    assert!(versions["supportedVersions"].as_array().unwrap().contains(&json!("1.1.0")));
    let with = |key: &str, value: Value| {
        let mut configuration = configuration.clone();
        configuration[key] = value;
        configuration
    };
    for (operation, container, namespace, configuration, code) in [
        ("ADD", "c", Some(here), with("cniVersion", json!("9.0.0")), 1),
        ("DANCE", "c", Some(here), configuration.clone(), 4),
        ("ADD", "c", None, configuration.clone(), 4),
        ("ADD", "../c", Some(here), configuration.clone(), 4),
        ("ADD", "c", Some(here), with("switch", json!("vale0:a,x")), 7),
        ("ADD", "c", Some(here), with("ipam", json!({ "type": "../../bin/sh" })), 7),
        ("ADD", "c", Some(here), with("ipam", json!({ "type": "nosuch" })), 7),
        ("ADD", "c", Some(here), with("mtu", json!("long")), 6),
        ("ADD", "c", Some(here), with("vlan", json!(4095)), 7),
        ("ADD", "c", Some(here), with("vlan", json!(-1)), 6),
        ("ADD", "c", Some(Path::new("/nonexistent")), with("ipam", json!(null)), 100),
        ("STATUS", "", None, with("socket", json!("/nonexistent/socket")), 50),
        ("ADD", "c", Some(here), with("socket", json!("/nonexistent/socket")), 11),
        ("CHECK", "c", Some(here), with("ipam", json!(null)), 7),
    ] {
        let answer = network.fail(operation, container, namespace, &configuration);
        assert_eq!(answer["code"], code, "{answer}");
        assert!(!answer["msg"].as_str().unwrap().is_empty());
    }
    assert_eq!(network.ports(), 0);
    // No port has to be removed if the daemon does not run.
    network.succeed("DEL", "c", None, &with("socket", json!("/nonexistent/socket")));
}

#[test]
fn names_paths_and_modes_that_would_be_options_of_a_port_are_refused() {
    let network = Network::new("options");
    let here = Path::new("/proc/self/ns/net");
    let sockets = network.daemon.folder().join("sockets");
    for kind in ["memif", "vhost-user"] {
        let mut configuration = network.configuration(kind);
        configuration["ipam"] = json!(null);
        let refused = |interface: &str, configuration: &Value, code: u64| {
            for operation in ["ADD", "DEL", "CHECK"] {
                let output = network.ask_for(interface, operation, "c", Some(here), configuration);
                assert!(!output.status.success(), "{operation} {interface} {configuration}");
                let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
                assert_eq!(answer["code"], code, "{interface}: {answer}");
            }
        };
        for interface in [
            "",
            ".",
            "..",
            "a b",
            "a/b",
            "a:b",
            "sixteen-bytes-ab",
            "x@role=client,",
            "x@secret=",
            "x@netns=",
            "x,socket-mode=0",
            "a@id=7,secret=",
        ] {
            refused(interface, &configuration, 4);
        }
        let folder = |end: &str| format!("{}{end}", sockets.display());
        for (key, value) in [
            ("socketMode", json!("0777,role=client")),
            ("socketMode", json!("x,socket-mode=0")),
            ("socketMode", json!("")),
            ("socketMode", json!("+660")),
            ("socketMode", json!("1777")),
            ("socketFolder", json!("sockets")),
            ("socketFolder", json!(folder("/../up"))),
        ] {
            let mut configuration = configuration.clone();
            configuration[key] = value;
            refused("eth0", &configuration, 7);
        }
        configuration["socketFolder"] = json!(folder("@role=client,x"));
        assert_eq!(network.fail("ADD", "c", Some(here), &configuration)["code"], 7);
    }
    assert_eq!(network.ports(), 0);
    assert!(!sockets.exists() && !network.daemon.folder().join("up").exists());
}

#[test]
fn del_without_a_daemon_removes_only_what_add_made() {
    if !is_root() {
        return;
    }
    let network = Network::new("absent");
    let mut configuration = network.configuration("veth");
    configuration["ipam"] = json!(null);
    let mut without_daemon = configuration.clone();
    without_daemon["socket"] = json!("/nonexistent/socket");
    let (space, other) = (NetworkNamespace::new(), NetworkNamespace::new());
    other.run(&["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth1"]);
    network.succeed("ADD", "one", Some(&path_of(&space)), &configuration);
    assert_eq!(network.fail("ADD", "two", Some(&path_of(&other)), &configuration)["code"], 100);

    let has_link =
        |space: &NetworkNamespace| run(space.command(&["ip", "link", "show", "eth0"])).status.success();
    for _ in 0..2 {
        // Another container, and another network.
        network.succeed("DEL", "two", Some(&path_of(&other)), &without_daemon);
        network.succeed("DEL", "two", Some(&path_of(&space)), &without_daemon);
        without_daemon["name"] = json!("another");
        network.succeed("DEL", "one", Some(&path_of(&space)), &without_daemon);
        without_daemon["name"] = configuration["name"].clone();
        assert!(has_link(&space) && has_link(&other));
    }
    for _ in 0..2 {
        network.succeed("DEL", "one", Some(&path_of(&space)), &without_daemon);
        assert!(!has_link(&space));
    }
    // Nothing is mounted on the file of a namespace that is gone.
    let stale = network.daemon.folder().join("stale");
    std::fs::write(&stale, "").unwrap();
    network.succeed("DEL", "one", Some(&stale), &without_daemon);
    network.succeed("DEL", "one", Some(Path::new("/nonexistent")), &without_daemon);
    network.succeed("DEL", "one", None, &configuration);
    assert_eq!(network.ports(), 0);
}

#[test]
fn podman_runs_containers_on_a_switch_and_links_them_by_name() {
    if !is_root() || !has_program("podman") {
        return;
    }
    let network = Network::new("podman");
    let folder = network.daemon.folder();
    let mut plugin = network.configuration("veth");
    // The newest version that Debian's podman supports.
    let version = plugin.as_object_mut().unwrap().remove("cniVersion").map(|_| "0.4.0");
    let list = json!({ "cniVersion": version, "name": network.name, "plugins": [plugin] });
    std::fs::create_dir(folder.join("conf")).unwrap();
    std::fs::write(folder.join("conf/10.conflist"), list.to_string()).unwrap();
    let settings = format!(
        "[network]\nnetwork_backend = \"cni\"\ncni_plugin_dirs = [\"{0}/plugins\", \"{DEBIAN_PLUGINS}\"]\n\
         network_config_dir = \"{0}/conf\"\n[engine]\nevents_logger = \"none\"\n",
        folder.display()
    );
    std::fs::write(folder.join("containers.conf"), settings).unwrap();
    let storage = format!(
        "[storage]\ndriver = \"vfs\"\ngraphroot = \"{0}/storage\"\nrunroot = \"{0}/run\"\n",
        folder.display()
    );
    std::fs::write(folder.join("storage.conf"), storage).unwrap();
    let with_podman = |command: &mut Command| {
        command.env("CONTAINERS_CONF", folder.join("containers.conf"));
        command.env("CONTAINERS_STORAGE_CONF", folder.join("storage.conf"));
    };
    let root = folder.join("root");
    make_root(&root);
    let podman = |arguments: &[&str]| {
        let mut command = Command::new("podman");
        with_podman(&mut command);
        // runc and cgroupfs work within the limits and control groups of any CI.
        command.args(["--runtime", "/usr/sbin/runc", "--cgroup-manager", "cgroupfs"]);
        command.args(arguments);
        let output = run(command);
        assert!(output.status.success(), "podman {arguments:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"];
    let root = root.display().to_string();
    let start = |options: &[&str], command: &[&str]| {
        let common = ["run", "--network", &network.name];
        podman(&[&common[..], &limits, options, &["--rootfs", &root, "/bin/busybox"], command].concat())
    };
    start(&["--detach", "--name", "web"], &["sleep", "1000"]);
    let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
    let address = podman(&["inspect", "--format", format, "web"]);
    let printed = start(&["--rm"], &["ping", "-c", "1", "-W", &patience_s(), &address]);
    assert!(printed.contains("1 packets received"), "{printed}");
    assert_eq!(network.ports(), 1);

    let link = |arguments: &[&str]| {
        let mut command = network.daemon.ringroad(arguments);
        with_podman(&mut command);
        run(command)
    };
    let linked = link(&["link", "podman:web", "--switch", "vale1", "--address", "10.93.0.1/24"]);
    assert!(linked.status.success(), "{}", stderr(&linked));
    let shown = podman(&["exec", "web", "/bin/busybox", "ip", "address", "show", "rr0"]);
    assert!(shown.contains("10.93.0.1/24"), "{shown}");
    let unlinked = link(&["unlink", "podman:web"]);
    assert!(unlinked.status.success(), "{}", stderr(&unlinked));
    let unknown = link(&["link", "podman:nosuch", "--address", "10.93.0.1/24"]);
    assert!(stderr(&unknown).contains("podman knows no container nosuch"), "{}", stderr(&unknown));
    let missing = link(&["container", "x", "--port", "vale1:x", "--netns", "docker:web", "--", "true"]);
    assert!(!missing.status.success());
    podman(&["rm", "--force", "--time", "0", "web"]);
    assert_eq!(network.ports(), 0);
    await_conserved(&network.daemon);
}

/// A file system with busybox and the libraries that it needs.
fn make_root(root: &Path) {
    for folder in ["bin", "proc", "sys", "dev", "etc", "tmp", "run"] {
        std::fs::create_dir_all(root.join(folder)).unwrap();
    }
    let libraries = Command::new("ldd").arg("/bin/busybox").output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    let files = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    for file in files.chain(["/bin/busybox"]) {
        let path = root.join(file.trim_start_matches('/'));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::copy(file, path).unwrap();
    }
}
