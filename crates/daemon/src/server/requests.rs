//! Replies to requests.

use std::os::fd::AsFd;

use ringroad_control::PROTOCOL_VERSION;
use ringroad_control::message::{ErrorKind, ErrorReply, Mirror, MirrorDirection, Reply, Request};
use ringroad_control::netmap::NetmapReply;
use ringroad_control::printable::printable;
use ringroad_control::report::{ConfigReport, ListReport, StatusReport};
use ringroad_datapath::fabric::FabricError;
use tracing::{debug, info};

use super::sessions::Session;
use super::switches::no_such;
use super::{RequestError, Server, ServerError, tick_length};
use crate::devices::{NamedDevice, parse_name};
use crate::namespace_scope::NamespaceScope;
use crate::netmap::{NetmapAnswer, Requester};
use crate::permissions::PortAccess;
use crate::port_entries::Client;
use crate::refusal::refuse;
use crate::{attaching, mirrors, status, tracing_report};

/// Maximum length of a program's own name, and of a name that is quoted to people, characters.
const MAX_PROGRAM_CHARS: usize = 64;

impl Server {
    pub(super) fn answer(
        &mut self,
        session: &mut Session,
        request: Result<Request, ErrorReply>,
    ) -> Result<(), ServerError> {
        let answered = request.map_err(RequestError::from).and_then(|request| self.serve(session, request));
        match answered {
            Err(RequestError::Refused(refusal)) => {
                self.rejected_requests += 1;
                let user = session.client.peer.uid;
                debug!(client = %session.client, user, reason = %refusal.message, "refused");
                session.connection.send(&Reply::Error(refusal), &[]);
                Ok(())
            }
            Err(RequestError::Failed(failure)) => Err(failure),
            Ok(()) => Ok(()),
        }
    }

    /// Carries out a request and sends the reply, unless it is a refusal.
    fn serve(&mut self, session: &mut Session, request: Request) -> Result<(), RequestError> {
        let peer = session.client.peer;
        let administers = self.parts.ports.permissions.may_administer(peer);
        let scope = NamespaceScope::Client { connection: &session.connection, administers };
        match (request.privilege(), request) {
            // Netmap programs know errors by their numbers.
            (Some(_), Request::Netmap { .. }) if !administers => {
                send_netmap(session, NetmapAnswer::denied());
            }
            (Some(what), _) if !administers => {
                let what = format!("user {} may not {what}", peer.uid);
                let advice = "contact root or the user that runs the daemon";
                return Err(refuse(ErrorKind::PermissionDenied, what, advice).into());
            }
            (_, Request::Open { name, properties }) => {
                let name = self.check_open(&session.client, scope, administers, &name)?;
                let opened = self.parts.ports.open(&name, &properties, &session.client)?;
                self.parts.ports.settle_openflow_ports();
                info!(port = %opened.reply.name, client = %session.client, user = peer.uid, "opened");
                session.connection.send(&Reply::Opened(opened.reply.clone()), &opened.descriptors());
            }
            (_, Request::NetmapOpen) => self.open_netmap_device(session),
            (_, Request::Upgrade { anyway }) => self.begin_upgrade(session, anyway)?,
            (_, Request::Netmap { device, request }) => {
                self.end_closed_devices()?;
                let workers_real_time = self.worker_priority.limit_for(administers);
                let requester = Requester {
                    ports: &mut self.parts.ports,
                    client: &session.client,
                    scope,
                    workers_real_time,
                };
                let answer = self.netmap.answer(requester, device, request);
                self.parts.ports.settle_openflow_ports();
                send_netmap(session, answer);
            }
            (_, request) => {
                let reply = self.handle(session, request);
                self.parts.ports.settle_openflow_ports();
                session.connection.send(&reply?, &[]);
            }
        }
        Ok(())
    }

    /// Makes the connection a netmap device, and leaves the badge in it.
    pub(super) fn open_netmap_device(&mut self, session: &mut Session) {
        match self.netmap.open_device(session.client.id) {
            Ok(badge) => {
                session.connection.send(&Reply::NetmapDevice(badge), &[]);
                session.connection.send_raw(&badge.to_bytes());
            }
            Err(failure) => {
                let refusal = refuse(ErrorKind::TooManyPorts, failure.message, "close some of them");
                session.connection.send(&Reply::Error(refusal), &[]);
            }
        }
    }

    fn check_open(
        &self,
        client: &Client,
        scope: NamespaceScope<'_>,
        administers: bool,
        name: &str,
    ) -> Result<NamedDevice, ErrorReply> {
        let named = NamedDevice::find(name, scope)?;
        let standing = PortAccess::Free { device: named.name.base.device().is_some() };
        self.parts.ports.permissions.check(client.peer, &named.key(), standing)?;
        // Taking an interface from another program requires more permission than opening it.
        match named.name.options.for_administrators() {
            Some(option) if !administers => {
                let user = client.peer.uid;
                let what = format!("user {user} is not an administrator and may not set the option {option}");
                Err(refuse(ErrorKind::PermissionDenied, what, "leave the option out"))
            }
            _ => Ok(named),
        }
    }

    fn handle(&mut self, session: &mut Session, request: Request) -> Result<Reply, RequestError> {
        let Session { client, connection, .. } = session;
        Ok(match request {
            Request::Hello { protocol, .. } if protocol != PROTOCOL_VERSION => {
                let what = format!("the daemon speaks protocol {PROTOCOL_VERSION}, the program {protocol}");
                let advice = "restart the daemon after an upgrade: ringroad down";
                return Err(refuse(ErrorKind::VersionMismatch, what, advice).into());
            }
            Request::Hello { program, .. } => {
                client.program = printable(&program, MAX_PROGRAM_CHARS);
                Reply::Hello {
                    protocol: PROTOCOL_VERSION,
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    pid: std::process::id(),
                    instance: self.instance,
                    started: self.started,
                }
            }
            Request::Status => Reply::Status(self.status()?),
            Request::List => Reply::List(self.list(None)?),
            Request::ListFrom { from } => Reply::List(self.list(Some(&from))?),
            Request::SetAddress { switch, mac, port } => self.set_address(&switch, mac, port)?,
            Request::SetMirror(mirror) => self.set_mirror(&mirror)?,
            Request::RemoveMirror { from, to } => {
                let mirror = Mirror { from, to, direction: MirrorDirection::Both, sample: 1, records: false };
                self.remove_mirror(&mirror)?
            }
            Request::SetOpenFlow(settings) => self.set_openflow(&settings)?,
            Request::RemoveOpenFlow { switch } => self.remove_openflow(&switch)?,
            Request::OpenFlow => Reply::OpenFlow(self.parts.ports.openflow_report()),
            Request::Explain(frame) => Reply::Explained(self.parts.ports.explain(&frame)?),
            Request::StartTrace { switch, from, count } => {
                self.start_trace(client.id, &switch, from.as_deref(), count)?
            }
            Request::Traced => {
                self.check_tracer(client.id)?;
                Reply::Traced(tracing_report::report(self.parts.ports.table.fabric()))
            }
            Request::StopTrace => {
                self.end_trace(client.id)?;
                Reply::Done
            }
            Request::Mirrors => Reply::Mirrors(mirrors::in_force(&self.parts.ports)),
            Request::ForgetAddresses { switch, port } => {
                let forgotten = self.parts.ports.table.fabric().forget_learned(&switch, port.as_deref());
                let addresses = forgotten.ok_or_else(|| no_such(&switch, port.as_deref()))? as u64;
                Reply::Forgotten { addresses }
            }
            Request::MacTable { switch, after, after_vlan } => {
                let tick_s = tick_length(&self.parts.config).as_secs_f64();
                let after = after.as_deref().map(|mac| (mac, after_vlan.unwrap_or(0)));
                let entries = status::mac_table(&self.parts.ports, &switch, after, tick_s);
                Reply::MacTable(entries.ok_or_else(|| {
                    let what = format!("there is no switch {}", printable(&switch, MAX_PROGRAM_CHARS));
                    let advice = "a switch exists while it has ports; ringroad list shows them";
                    refuse(ErrorKind::NoSuchPort, what, advice)
                })?)
            }
            Request::Attach { port, for_program, host, take, provisional } => {
                // Only administrators may attach ports.
                let scope = NamespaceScope::Client { connection, administers: true };
                let specs = attaching::requested(port, for_program, host, scope)?;
                let attached = self.parts.ports.attach(specs, take)?;
                if provisional {
                    self.parts.ports.provisional.add(client.id, &attached);
                }
                for port in &attached {
                    info!(port = %port.name, driver = %port.driver, mode = %port.mode, "attached");
                    port.notes.iter().for_each(|note| info!(port = %port.name, "{note}"));
                }
                Reply::Attached(attached)
            }
            Request::Settle { keep: true } => {
                self.parts.ports.provisional.take(client.id);
                Reply::Done
            }
            Request::Settle { keep: false } => match self.end_provisional_ports(client.id)? {
                Some(refusal) => return Err(refusal.into()),
                None => Reply::Done,
            },
            Request::SetPortOptions { name } => self.set_port_options(&parse_name(&name)?)?,
            Request::Detach { name, take, number } => {
                let key = parse_name(&name)?.base.to_string();
                if number.is_some_and(|number| !self.parts.ports.has_number(&key, number)) {
                    let what = format!("port {key} is another one than the one to remove, or gone");
                    return Err(refuse(ErrorKind::NoSuchPort, what, "").into());
                }
                let owner = self.parts.ports.detach(&key, take)?;
                info!(port = %name, "detached");
                self.netmap.forget_detached(&self.parts.ports);
                self.drop_clients(owner.into_iter().collect(), client.id)?;
                Reply::Done
            }
            Request::Save { ports } => self.save(&ports)?,
            Request::ApplyConfig { toml } => self.apply(&toml, client.id)?,
            Request::Config => Reply::Config(ConfigReport {
                config: self.parts.config_path.as_ref().map(|path| path.display().to_string()),
                toml: toml::to_string_pretty(&self.parts.config).unwrap_or_default(),
            }),
            Request::CompareConfig { toml } => self.compare(toml.as_deref())?,
            Request::Reload => Reply::Reloaded(self.reload(client.id)?.map_err(|message| {
                refuse(ErrorKind::BadRequest, message, "what could not be applied was left as it was")
            })?),
            Request::Stop => {
                info!(%client, "stopping on request");
                self.stopping = true;
                Reply::Done
            }
            _ => {
                return Err(refuse(ErrorKind::BadRequest, "the daemon does not know this request", "").into());
            }
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
            started: self.started,
            workers: status::workers(ports),
            switches: status::switches(ports),
            ports: list.ports,
            next: list.next,
            shared_memory_bytes: ports.quotas.memory.total(),
            shared_memory_by_user: ports.quotas.memory.by_user(),
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
