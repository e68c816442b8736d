//! Requests that change switches: addresses, mirrors, options of ports, flow tables, traces.

use ringroad_control::message::{ErrorKind, ErrorReply, Mirror, OpenFlow, Reply};
use ringroad_datapath::fabric::{FabricError, NamedMirror};
use ringroad_drivers::catalogue::port_name::PortName;
use tracing::info;

use super::{RequestError, Server, ServerError, survive};
use crate::config::StaticAddress;
use crate::port_entries::ClientId;
use crate::refusal::refuse;
use crate::{mirrors, port_rules, shortcuts};

impl Server {
    /// Sets a static address of a port, or removes it.
    pub(super) fn set_address(
        &mut self,
        switch: &str,
        mac: String,
        port: Option<String>,
    ) -> Result<Reply, ErrorReply> {
        let name = format!("{switch}:{}", port.as_deref().unwrap_or("any"));
        let bad = |what: String| refuse(ErrorKind::BadName, what, "");
        let (switch, mac, name) = StaticAddress { mac, port: name }.parse().map_err(bad)?;
        let fabric = self.parts.ports.table.fabric_mut();
        if !fabric.set_static(&switch, mac, port.map(|_| name.as_str())) {
            let what = format!("{mac} is not a static address of {switch}");
            return Err(refuse(ErrorKind::NoSuchPort, what, "ringroad macs lists the addresses"));
        }
        self.parts.ports.keep_list();
        info!(%switch, %mac, port = %name, "static address changed");
        Ok(Reply::Done)
    }

    /// Sends copies of frames to a port.
    pub(super) fn set_mirror(&mut self, mirror: &Mirror) -> Result<Reply, RequestError> {
        let (switch, named) = parse(mirror)?;
        self.parts.ports.table.fabric_mut().set_mirror(&switch, named)?;
        self.parts.ports.keep_list();
        self.ports_at_check = usize::MAX;
        info!(from = %mirror.from, to = %mirror.to, sample = mirror.sample, "mirror set");
        Ok(Reply::Done)
    }

    pub(super) fn remove_mirror(&mut self, mirror: &Mirror) -> Result<Reply, RequestError> {
        let (switch, named) = parse(mirror)?;
        let fabric = self.parts.ports.table.fabric_mut();
        if !fabric.remove_mirror(&switch, named.from.as_deref(), &named.to)? {
            let what = format!("there is not {}", mirrors::words(mirror));
            return Err(refuse(ErrorKind::NoSuchPort, what, "ringroad mirror lists the mirrors").into());
        }
        self.parts.ports.keep_list();
        self.ports_at_check = usize::MAX;
        info!(from = %mirror.from, to = %mirror.to, "mirror removed");
        Ok(Reply::Done)
    }

    pub(super) fn set_port_options(&mut self, name: &PortName) -> Result<Reply, ErrorReply> {
        let settings = self.parts.ports.set_options(name)?;
        // Frames of a port that has settings now must not pass within the kernel.
        shortcuts::follow(&self.parts.ports.table);
        self.ports_at_check = usize::MAX;
        info!(port = %name.base, settings = %port_rules::words(&settings), "options changed");
        Ok(Reply::Done)
    }

    pub(super) fn set_openflow(&mut self, settings: &OpenFlow) -> Result<Reply, ErrorReply> {
        self.parts.ports.set_openflow(settings)?;
        self.parts.ports.keep_list();
        self.ports_at_check = usize::MAX;
        self.watch_waiting_ports();
        info!(switch = %settings.switch, controllers = ?settings.controllers, "flow tables decide");
        Ok(Reply::Done)
    }

    pub(super) fn remove_openflow(&mut self, switch: &str) -> Result<Reply, ErrorReply> {
        self.parts.ports.remove_openflow(switch)?;
        self.parts.ports.keep_list();
        self.ports_at_check = usize::MAX;
        info!(%switch, "learned addresses decide");
        Ok(Reply::Done)
    }

    pub(super) fn start_trace(
        &mut self,
        client: ClientId,
        switch: &str,
        from: Option<&str>,
        count: u32,
    ) -> Result<Reply, RequestError> {
        if self.tracer.is_some_and(|tracer| tracer != client) {
            return Err(another_traces().into());
        }
        self.parts.ports.table.fabric_mut().start_trace(switch, from, count).map_err(
            |error| match error {
                FabricError::NoSuchPort(_) => no_such(switch, from).into(),
                error => RequestError::from(error),
            },
        )?;
        self.ports_at_check = usize::MAX;
        self.tracer = Some(client);
        Ok(Reply::Done)
    }

    /// Refuses a client that has no trace.
    pub(super) fn check_tracer(&self, client: ClientId) -> Result<(), ErrorReply> {
        match self.tracer {
            Some(tracer) if tracer == client => Ok(()),
            Some(_) => Err(another_traces()),
            None => Err(refuse(ErrorKind::BadRequest, "no client has begun a trace", "")),
        }
    }

    /// Ends the client's trace, if it has one.
    pub(super) fn end_trace(&mut self, client: ClientId) -> Result<(), ServerError> {
        if self.tracer.take_if(|tracer| *tracer == client).is_some() {
            survive(self.parts.ports.table.fabric_mut().stop_trace())?;
            self.ports_at_check = usize::MAX;
        }
        Ok(())
    }
}

fn parse(mirror: &Mirror) -> Result<(String, NamedMirror), ErrorReply> {
    mirrors::parse(mirror).map_err(|what| refuse(ErrorKind::BadProperties, what, ""))
}

fn another_traces() -> ErrorReply {
    refuse(ErrorKind::Busy, "another client traces frames", "wait for its end: there is one trace at a time")
}

pub(super) fn no_such(switch: &str, port: Option<&str>) -> ErrorReply {
    let port = port.map(|port| format!(", or it has no port {port}")).unwrap_or_default();
    refuse(
        ErrorKind::NoSuchPort,
        format!("there is no switch {switch}{port}"),
        "ringroad list shows the ports that exist",
    )
}
