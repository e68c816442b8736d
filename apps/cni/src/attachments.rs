//! Containers on a switch: each has a port, named after network, container and interface.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use ringroad_attachment::address_use::find_use;
use ringroad_attachment::device_text::{DeviceTextError, device_text};
use ringroad_attachment::veth_pair::{AttachmentError, DaemonNamespace, outside, remove_interface};
use ringroad_control::message::{ErrorKind, PortSpec};
use ringroad_control::report::PortReport;
use ringroad_control::{Connection, ControlError, Request as DaemonRequest, socket_path};
use ringroad_netdev::{Namespace, NamespaceError};
use ringroad_wire::mac::Mac;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::answer::{CniError, Code, refused};
use crate::request::{Attachment, CniRequest, IpamResult, Kind};
use crate::{addresses, interface};

/// Start of the names of this plugin's ports.
const PREFIX: &str = "cni";

/// Returns the first `bytes` bytes of a digest, in hexadecimal digits.
fn digest(words: &[&str], bytes: usize) -> String {
    let mut digest = Sha256::new();
    for word in words {
        digest.update(word.as_bytes());
        digest.update([0]);
    }
    digest.finalize().iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the start of the names of a network's ports.
fn network_prefix(network: &str) -> String {
    format!("{PREFIX}{}", digest(&[network], 2))
}

/// Returns the name of a container's port on its switch, and of the interface behind the port: 15 bytes.
fn port_name(network: &str, attachment: &Attachment) -> String {
    let Attachment { container, interface } = attachment;
    format!("{}{}", network_prefix(network), digest(&[network, container, interface], 4))
}

/// The daemon's connection, the request and the name of its port.
struct RequestContext<'a> {
    request: &'a CniRequest,
    daemon: Connection,
    port: String,
}

fn connect(request: &CniRequest) -> Result<Connection, ControlError> {
    let socket = request.network.socket.clone().unwrap_or_else(socket_path::default_socket_path);
    let mut daemon = Connection::connect(socket)?;
    daemon.hello("ringroad-cni")?;
    Ok(daemon)
}

/// Converts an error of the daemon. The code tells whether another attempt may succeed.
fn of_daemon(error: ControlError) -> CniError {
    let code = match &error {
        ControlError::DaemonNotRunning { .. }
        | ControlError::DaemonGone { .. }
        | ControlError::Timeout { .. } => Code::TryAgain,
        _ => Code::Refused,
    };
    CniError::new(code, error, "")
}

/// Converts a refused name. The checks of the request leave nothing to refuse but the folder of sockets.
fn of_name(error: DeviceTextError) -> CniError {
    CniError::new(Code::InvalidConfiguration, "socketFolder", error)
}

impl<'a> RequestContext<'a> {
    fn new(request: &'a CniRequest) -> Result<Self, CniError> {
        connect(request).map_err(of_daemon).map(|daemon| Self::with(request, daemon))
    }

    fn with(request: &'a CniRequest, daemon: Connection) -> Self {
        Self { request, daemon, port: port_name(&request.network.name, &request.attachment) }
    }

    fn full_name(&self) -> String {
        format!("{}:{}", self.request.network.switch, self.port)
    }

    fn attach(&mut self, driver: String) -> Result<(), CniError> {
        let vlan = self.request.network.vlan.map(|vlan| format!("@vlan={vlan}"));
        let port = PortSpec::for_device(self.full_name() + &vlan.unwrap_or_default(), driver);
        let request =
            DaemonRequest::Attach { port, for_program: false, host: false, take: false, provisional: false };
        self.daemon.request(&request).map(drop).map_err(of_daemon)
    }

    /// Returns the folder of a container's sockets.
    fn socket_folder(&self) -> PathBuf {
        self.request.network.socket_folder.join(&self.request.attachment.container)
    }

    fn socket(&self) -> PathBuf {
        self.socket_folder().join(format!("{}.sock", self.request.attachment.interface))
    }

    /// Makes the port. Returns the interfaces of the result; the last one is the container's.
    fn add(&mut self, outcome: &IpamResult) -> Result<Vec<Value>, CniError> {
        let inner = self.request.attachment.interface.clone();
        let sandbox = self.request.sandbox();
        let in_sandbox = self.request.namespace.clone();
        let scheme = match self.request.network.kind {
            Kind::Veth => {
                self.check_addresses(&sandbox, outcome)?;
                let outside = outside(&mut self.daemon).map_err(refused)?;
                let (outer, mtu) = (self.port.clone(), self.request.network.mtu);
                let pair = interface::make(&outside, &sandbox, &inner, &outer, mtu).map_err(refused)?;
                let driver = device_text("veth", &outer, &[("netns", &outside.process.to_string())]);
                let made = driver.map_err(of_name).and_then(|driver| self.attach(driver)).and_then(|()| {
                    interface::set_up_with(&outside, &sandbox, &pair, outcome).map_err(refused)
                });
                made.inspect_err(|_| self.undo(&outside))?;
                let macs = [(&outside.namespace, &outer), (&sandbox, &inner)];
                let [outer_mac, inner_mac] = macs.map(|(namespace, name)| mac_of(namespace, name));
                return Ok(vec![
                    json!({ "name": outer, "mac": outer_mac }),
                    json!({ "name": inner, "mac": inner_mac, "sandbox": in_sandbox }),
                ]);
            }
            Kind::VhostUser => "vhost-user",
            Kind::Memif => "memif",
        };
        let socket = self.socket();
        let mut options = vec![("role", "server")];
        options.extend(self.request.network.socket_mode.as_deref().map(|mode| ("socket-mode", mode)));
        let driver = device_text(scheme, &socket.to_string_lossy(), &options).map_err(of_name)?;
        let mut folder = std::fs::DirBuilder::new();
        let made = folder.recursive(true).mode(0o755).create(self.socket_folder());
        made.map_err(|error| CniError::new(Code::Io, self.socket_folder().display(), error))?;
        self.attach(driver).inspect_err(|_| drop(std::fs::remove_dir(self.socket_folder())))?;
        Ok(vec![json!({ "name": inner, "sandbox": in_sandbox, "socketPath": socket })])
    }

    /// Refuses addresses that are in use in the container or on the switch.
    fn check_addresses(&mut self, sandbox: &Namespace, outcome: &IpamResult) -> Result<(), CniError> {
        let wanted: Vec<_> = outcome.ips.iter().map(|known| known.address.address).collect();
        let switch = &self.request.network.switch;
        let used = find_use(&mut self.daemon, switch, std::slice::from_ref(sandbox), &wanted);
        used.map_err(refused)?.map_or(Ok(()), |used| Err(refused(used)))
    }

    /// Removes the objects of a failed attempt. Errors of the removal are ignored, since the runtime gets the error of
    /// the attempt.
    fn undo(&mut self, outside: &DaemonNamespace) {
        let _ = self.detach(&self.full_name());
        let _ = remove_interface(&outside.namespace, &self.port);
    }

    /// Removes a port, if it exists.
    fn detach(&mut self, name: &str) -> Result<(), CniError> {
        let request = DaemonRequest::Detach { name: name.to_owned(), take: false, number: None };
        match self.daemon.request(&request) {
            Err(ControlError::Refused(reply)) if reply.kind == ErrorKind::NoSuchPort => Ok(()),
            result => result.map(drop).map_err(of_daemon),
        }
    }

    fn report(&mut self) -> Result<Option<PortReport>, CniError> {
        let name = self.full_name();
        let ports = self.daemon.list().map_err(of_daemon)?.ports;
        Ok(ports.into_iter().find(|port| port.name == name))
    }
}

fn mac_of(namespace: &Namespace, name: &str) -> Option<String> {
    let mac = interface::query(namespace, name).ok()?.mac?;
    Some(Mac::from(mac).to_string())
}

/// `ADD`.
pub(crate) fn add(request: &CniRequest) -> Result<Value, CniError> {
    let mut site = RequestContext::new(request)?;
    let outcome = addresses::ask(request, "ADD")?;
    let interfaces = site.add(&outcome).inspect_err(|_| drop(addresses::ask(request, "DEL")))?;
    let index = interfaces.len() - 1;
    let is_old = request.network.cni_version.starts_with("0.");
    let ips = outcome.ips.iter().map(|known| {
        let mut ip = json!({ "address": known.address.to_string(), "interface": index });
        if let (Some(gateway), Some(ip)) = (known.gateway, ip.as_object_mut()) {
            ip.insert("gateway".to_owned(), json!(gateway));
        }
        if let (true, Some(ip)) = (is_old, ip.as_object_mut()) {
            ip.insert("version".to_owned(), json!(if known.address.address.is_ipv4() { "4" } else { "6" }));
        }
        ip
    });
    let routes = outcome.routes.iter().map(|route| match route.gw {
        Some(gateway) => json!({ "dst": route.dst.to_string(), "gw": gateway }),
        None => json!({ "dst": route.dst.to_string() }),
    });
    let dns = outcome.dns.clone().or_else(|| request.network.dns.clone()).unwrap_or_else(|| json!({}));
    Ok(json!({
        "cniVersion": request.network.cni_version,
        "interfaces": interfaces,
        "ips": ips.collect::<Vec<_>>(),
        "routes": routes.collect::<Vec<_>>(),
        "dns": dns,
    }))
}

/// `DEL`. Missing objects are not an error, and neither is a stopped daemon: its ports ended with it.
pub(crate) fn remove(request: &CniRequest) -> Result<(), CniError> {
    addresses::ask(request, "DEL")?;
    match connect(request) {
        Ok(daemon) => {
            let mut site = RequestContext::with(request, daemon);
            site.detach(&site.full_name())?;
            if request.network.kind == Kind::Veth
                && let Ok(outside) = outside(&mut site.daemon)
            {
                remove_interface(&outside.namespace, &site.port).map_err(refused)?;
            }
            // The folder is not empty while other ports of the container have sockets in it.
            let _ = std::fs::remove_dir(site.socket_folder());
        }
        Err(ControlError::DaemonNotRunning { .. }) => {}
        Err(error) => return Err(of_daemon(error)),
    }
    match request.network.kind {
        Kind::Veth => remove_inner_end(request),
        Kind::VhostUser | Kind::Memif => Ok(()),
    }
}

/// Removes the container's end of the pair, if it is still there. Its second name tells it from interfaces of others.
fn remove_inner_end(request: &CniRequest) -> Result<(), CniError> {
    let Some(namespace) = request.namespace.clone() else { return Ok(()) };
    let name = port_name(&request.network.name, &request.attachment);
    match remove_interface(&Namespace::File(namespace), &name) {
        // The runtime may have removed the namespace before, or only what was mounted on its file.
        Err(AttachmentError::Namespace(NamespaceError::NoSuchFile(_) | NamespaceError::NotANamespace(_))) => {
            Ok(())
        }
        result => result.map_err(refused),
    }
}

/// `CHECK`: checks that everything is as in the result of `ADD`.
pub(crate) fn check(request: &CniRequest) -> Result<(), CniError> {
    addresses::ask(request, "CHECK")?;
    let mut site = RequestContext::new(request)?;
    let known = request.network.prev_result.as_ref().ok_or_else(|| {
        CniError::new(Code::InvalidConfiguration, "the configuration has no prevResult", "")
    })?;
    let port = site.report()?.ok_or_else(|| refused(format!("there is no port {}", site.full_name())))?;
    if let Some(problem) = port.error {
        return Err(refused(format!("{}: {problem}", port.name)));
    }
    if request.network.kind != Kind::Veth {
        return Ok(());
    }
    let inner = &request.attachment.interface;
    if !known.interfaces.iter().any(|interface| interface.name == *inner && interface.sandbox.is_some()) {
        return Err(refused(format!("prevResult has no interface {inner}")));
    }
    let sandbox = request.sandbox();
    let link = interface::query(&sandbox, inner)
        .map_err(|error| CniError::new(Code::UnknownContainer, format!("the interface {inner}"), error))?;
    if !link.running {
        return Err(refused(format!("{inner} has no carrier")));
    }
    let wanted: Vec<String> = known.ips.iter().map(|known| known.address.to_string()).collect();
    let there = interface::addresses(&sandbox, inner).map_err(refused)?;
    match wanted.iter().find(|address| !there.contains(address)) {
        Some(missing) => Err(refused(format!("{inner} has no address {missing}"))),
        None => Ok(()),
    }
}

/// `STATUS`: checks whether containers can be added.
pub(crate) fn status(request: &CniRequest) -> Result<(), CniError> {
    connect(request)
        .map_err(|error| CniError::new(Code::NotAvailable, error, "start the daemon: ringroad up"))?;
    addresses::ask_if_known(request, "STATUS")
}

/// `GC`: removes the ports of the network whose containers no longer exist for the runtime.
pub(crate) fn collect_garbage(request: &CniRequest) -> Result<(), CniError> {
    let network = &request.network;
    let valid: Vec<String> = network
        .valid_attachments
        .iter()
        .map(|attachment| format!("{}:{}", network.switch, port_name(&network.name, attachment)))
        .collect();
    let mut site = RequestContext::new(request)?;
    let own = format!("{}:{}", network.switch, network_prefix(&network.name));
    let outside = outside(&mut site.daemon).map_err(refused)?;
    let ports = site.daemon.list().map_err(of_daemon)?.ports;
    for port in ports.iter().filter(|port| port.name.starts_with(&own) && !valid.contains(&port.name)) {
        site.detach(&port.name)?;
        if let Some((_, outer)) = port.name.split_once(':') {
            remove_interface(&outside.namespace, outer).map_err(refused)?;
        }
    }
    addresses::ask_if_known(request, "GC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_names_of_their_own_that_fit_interfaces() {
        let attachment = |container: &str, interface: &str| Attachment {
            container: container.to_owned(),
            interface: interface.to_owned(),
        };
        let first = port_name("net", &attachment("c1", "eth0"));
        assert_eq!(first.len(), 15);
        assert!(first.starts_with(&network_prefix("net")));
        let others =
            [("net", "c1", "eth1"), ("net", "c2", "eth0"), ("other", "c1", "eth0"), ("net", "c1e", "th0")];
        for (network, container, interface) in others {
            assert_ne!(port_name(network, &attachment(container, interface)), first);
        }
    }
}
