//! Replies to requests.

use std::os::fd::AsFd;
use std::sync::Arc;

use ringroad_control::PROTOCOL_VERSION;
use ringroad_control::message::{ErrorKind, ErrorReply, Mirror, MirrorDirection, Privilege, Reply, Request};
use ringroad_control::netmap::NetmapReply;
use ringroad_control::printable::printable;
use ringroad_control::report::{ConfigReport, ListReport, StatusReport};
use ringroad_datapath::fabric::FabricError;
use ringroad_drivers::catalogue::port_name::PortName;
use tracing::{debug, info};

use super::sessions::Session;
use super::switches::no_such;
use super::{Server, ServerError, tick_length, told};
use crate::devices::NamedDevice;
use crate::namespace_scope::NamespaceScope;
use crate::netmap::{NetmapAnswer, Requester};
use crate::permissions::PortAccess;
use crate::{attaching, mirrors, status, tracing_report};

/// Maximum length of a program's own name, and of a name that is quoted to people, characters.
const MAX_PROGRAM_CHARS: usize = 64;

impl Server {
    pub(super) fn answer(
        &mut self,
        session: &mut Session,
        request: Result<Request, ErrorReply>,
    ) -> Result<(), ServerError> {
        let denied = request.as_ref().ok().and_then(|request| self.denied(session, request));
        let result = match (denied, request) {
            // Netmap programs know errors by their numbers.
            (Some(_), Ok(Request::Netmap { .. })) => {
                send_netmap(session, NetmapAnswer::denied());
                return Ok(());
            }
            (Some(refusal), _) => Err(refusal),
            (None, Ok(Request::Open { name, properties })) => {
                let permitted = self.check_open(session, &name);
                let opened =
                    permitted.and_then(|name| self.parts.ports.open(&name, &properties, &session.client));
                match opened {
                    Ok(opened) => {
                        self.parts.ports.settle_openflow_ports();
                        let user = session.client.peer.uid;
                        info!(port = %opened.reply.name, client = %session.client, user, "opened");
                        let reply = Reply::Opened(opened.reply.clone());
                        session.connection.send(&reply, &opened.descriptors());
                        return Ok(());
                    }
                    Err(refusal) => Err(refusal),
                }
            }
            (None, Ok(Request::NetmapOpen)) => {
                self.open_netmap_device(session);
                return Ok(());
            }
            (None, Ok(Request::Netmap { device, request })) => {
                self.end_closed_devices()?;
                let permissions = Arc::clone(&self.parts.ports.permissions);
                let administers = permissions.may_administer(session.client.peer);
                let scope = NamespaceScope::of(&session.connection, administers);
                let requester = Requester { client: &session.client, permissions: &permissions, scope };
                let answer = self.netmap.answer(&mut self.parts.ports, requester, device, request);
                self.parts.ports.settle_openflow_ports();
                send_netmap(session, answer);
                return Ok(());
            }
            (None, Ok(request)) => {
                let handled = self.handle(session, request)?;
                self.parts.ports.settle_openflow_ports();
                handled
            }
            (None, Err(refusal)) => Err(refusal),
        };
        let reply = result.unwrap_or_else(|refusal| {
            self.rejected_requests += 1;
            let user = session.client.peer.uid;
            debug!(client = %session.client, user, reason = %refusal.message, "refused");
            Reply::Error(refusal)
        });
        session.connection.send(&reply, &[]);
        Ok(())
    }

    /// Refusal of a request that its sender may not send. [`Privilege::ByName`] is checked where the name is known.
    fn denied(&self, session: &Session, request: &Request) -> Option<ErrorReply> {
        let Privilege::Administrator(what) = request.privilege() else { return None };
        let peer = session.client.peer;
        (!self.parts.ports.permissions.may_administer(peer)).then(|| {
            ErrorReply::new(
                ErrorKind::PermissionDenied,
                format!("user {} may not {what}", peer.uid),
                "contact root or the user that runs the daemon",
            )
        })
    }

    /// Makes the connection a netmap device, and leaves the badge in it.
    pub(super) fn open_netmap_device(&mut self, session: &mut Session) {
        let permissions = &self.parts.ports.permissions;
        let scope = NamespaceScope::of(&session.connection, permissions.may_administer(session.client.peer));
        let requester = Requester { client: &session.client, permissions, scope };
        match self.netmap.open_device(requester) {
            Ok(badge) => {
                session.connection.send(&Reply::NetmapDevice(badge), &[]);
                session.connection.send_raw(&badge.to_bytes());
            }
            Err(failure) => {
                let refusal = ErrorReply::new(ErrorKind::TooManyPorts, failure.message, "close some of them");
                session.connection.send(&Reply::Error(refusal), &[]);
            }
        }
    }

    pub(super) fn check_open(&self, session: &Session, name: &str) -> Result<NamedDevice, ErrorReply> {
        let Session { client, connection, .. } = session;
        let (spelled, name) = (name.to_owned(), parse_name(name)?);
        let permissions = &self.parts.ports.permissions;
        let administers = permissions.may_administer(client.peer);
        let scope = NamespaceScope::of(connection, administers);
        let named = NamedDevice { netns: scope.find(&name)?, name, spelled };
        let standing = PortAccess::Free { device: named.name.base.device().is_some() };
        permissions.check(client.peer, &named.key(), standing)?;
        // Taking an interface from another program requires more permission than opening it.
        if let Some(option) = named.name.options.for_administrators()
            && !administers
        {
            return Err(ErrorReply::new(
                ErrorKind::PermissionDenied,
                format!(
                    "user {} is not an administrator and may not set the option {option}",
                    client.peer.uid
                ),
                "leave the option out",
            ));
        }
        Ok(named)
    }

    pub(super) fn handle(
        &mut self,
        session: &mut Session,
        request: Request,
    ) -> Result<Result<Reply, ErrorReply>, ServerError> {
        let Session { client, connection, .. } = session;
        Ok(match request {
            Request::Hello { protocol, program } => {
                if protocol != PROTOCOL_VERSION {
                    Err(ErrorReply::new(
                        ErrorKind::VersionMismatch,
                        format!("the daemon speaks protocol {PROTOCOL_VERSION}, the program {protocol}"),
                        "restart the daemon after an upgrade: ringroad down",
                    ))
                } else {
                    client.program = printable(&program, MAX_PROGRAM_CHARS);
                    Ok(Reply::Hello {
                        protocol: PROTOCOL_VERSION,
                        version: env!("CARGO_PKG_VERSION").to_owned(),
                        pid: std::process::id(),
                        instance: self.instance,
                        started: self.parts.started,
                    })
                }
            }
            Request::Status => told(self.status())?.map(Reply::Status),
            Request::List => told(self.list(None))?.map(Reply::List),
            Request::ListFrom { from } => told(self.list(Some(&from)))?.map(Reply::List),
            Request::SetAddress { switch, mac, port } => self.set_address(&switch, mac, port),
            Request::SetMirror(mirror) => self.set_mirror(&mirror)?,
            Request::RemoveMirror { from, to } => {
                let mirror = Mirror { from, to, direction: MirrorDirection::Both, sample: 1, records: false };
                self.remove_mirror(&mirror)?
            }
            Request::SetOpenFlow(settings) => self.set_openflow(&settings),
            Request::RemoveOpenFlow { switch } => self.remove_openflow(&switch),
            Request::OpenFlow => Ok(Reply::OpenFlow(self.parts.ports.openflow_report())),
            Request::Explain(frame) => self.parts.ports.explain(&frame).map(Reply::Explained),
            Request::StartTrace { switch, from, count } => {
                self.start_trace(client.id, &switch, from.as_deref(), count)?
            }
            Request::Traced => self
                .check_tracer(client.id)
                .map(|()| Reply::Traced(tracing_report::report(self.parts.ports.table.fabric()))),
            Request::StopTrace => {
                self.end_trace(client.id)?;
                Ok(Reply::Done)
            }
            Request::Mirrors => Ok(Reply::Mirrors(mirrors::in_force(&self.parts.ports))),
            Request::ForgetAddresses { switch, port } => {
                match self.parts.ports.table.fabric().forget_learned(&switch, port.as_deref()) {
                    Some(addresses) => Ok(Reply::Forgotten { addresses: addresses as u64 }),
                    None => Err(no_such(&switch, port.as_deref())),
                }
            }
            Request::MacTable { switch, after, after_vlan } => {
                let tick_s = tick_length(&self.parts.config).as_secs_f64();
                let after = after.as_deref().map(|mac| (mac, after_vlan.unwrap_or(0)));
                match status::mac_table(&self.parts.ports, &switch, after, tick_s) {
                    Some(entries) => Ok(Reply::MacTable(entries)),
                    None => Err(ErrorReply::new(
                        ErrorKind::NoSuchPort,
                        format!("there is no switch {}", printable(&switch, MAX_PROGRAM_CHARS)),
                        "a switch exists while it has ports; ringroad list shows them",
                    )),
                }
            }
            Request::Attach { port, for_program, host, take } => {
                let administers = self.parts.ports.permissions.may_administer(client.peer);
                let scope = NamespaceScope::of(connection, administers);
                attaching::requested(port, for_program, host, scope).and_then(|specs| {
                    let attached = self.parts.ports.attach(specs, take)?;
                    for port in &attached {
                        info!(port = %port.name, driver = %port.driver, mode = %port.mode, "attached");
                        port.notes.iter().for_each(|note| info!(port = %port.name, "{note}"));
                    }
                    Ok(Reply::Attached(attached))
                })
            }
            Request::SetPortOptions { name } => {
                parse_name(&name).and_then(|name| self.set_port_options(&name))
            }
            Request::Detach { name, take, number } => {
                let detached = parse_name(&name).and_then(|name| {
                    let (ports, key) = (&mut self.parts.ports, name.base.to_string());
                    match number {
                        Some(number) if !ports.has_number(&key, number) => Err(ErrorReply::new(
                            ErrorKind::NoSuchPort,
                            format!("port {key} is another one than the one to remove, or gone"),
                            "",
                        )),
                        _ => ports.detach(&key, take),
                    }
                });
                match detached {
                    Ok(owner) => {
                        info!(port = %name, "detached");
                        self.netmap.forget_detached(&self.parts.ports);
                        self.drop_clients(owner.into_iter().collect(), client.id)?;
                        Ok(Reply::Done)
                    }
                    Err(refusal) => Err(refusal),
                }
            }
            Request::Save { ports } => self.save(&ports),
            Request::ApplyConfig { toml } => self.apply(&toml, client.id)?,
            Request::Config => Ok(Reply::Config(ConfigReport {
                config: self.parts.config_path.as_ref().map(|path| path.display().to_string()),
                toml: toml::to_string_pretty(&self.parts.config).unwrap_or_default(),
            })),
            Request::CompareConfig { toml } => self.compare(toml.as_deref()),
            Request::Reload => match self.reload(client.id)? {
                Ok(report) => Ok(Reply::Reloaded(report)),
                Err(message) => Err(ErrorReply::new(
                    ErrorKind::BadRequest,
                    message,
                    "what could not be applied was left as it was",
                )),
            },
            Request::Upgrade { anyway } => Err(self.upgrade(session, anyway)?),
            Request::Stop => {
                info!(%client, "stopping on request");
                self.stopping = true;
                Ok(Reply::Done)
            }
            _ => Err(ErrorReply::new(ErrorKind::BadRequest, "the daemon does not know this request", "")),
        })
    }

    /// Ports from `place` on.
    pub(super) fn list(&self, cursor: Option<&str>) -> Result<ListReport, FabricError> {
        status::list(&self.parts.ports, &self.netmap, cursor)
    }

    pub(super) fn status(&self) -> Result<StatusReport, FabricError> {
        let ports = &self.parts.ports;
        let list = self.list(None)?;
        Ok(StatusReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.started_at.elapsed().as_secs(),
            socket: self.parts.socket.display().to_string(),
            config: self.parts.config_path.as_ref().map(|path| path.display().to_string()),
            started: self.parts.started,
            workers: status::workers(ports),
            switches: status::switches(ports),
            ports: list.ports,
            next: list.next,
            shared_memory_bytes: ports.shared_memory_bytes(),
            shared_memory_by_user: ports.shared_memory_by_user(),
            huge_page_bytes: ports.huge_page_bytes(),
            waiting: list.waiting,
            rejected_requests: self.rejected_requests,
        })
    }
}

fn send_netmap(session: &mut Session, NetmapAnswer { reply, descriptors }: NetmapAnswer) {
    if let NetmapReply::Failed { errno, message } = &reply {
        let user = session.client.peer.uid;
        debug!(client = %session.client, user, errno, reason = %message, "refused");
    }
    let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    session.connection.send(&Reply::Netmap(reply), &borrowed);
}

pub(super) fn parse_name(name: &str) -> Result<PortName, ErrorReply> {
    name.parse().map_err(|error: ringroad_drivers::catalogue::port_name::PortNameError| {
        ErrorReply::new(ErrorKind::BadName, error.to_string(), "")
    })
}
