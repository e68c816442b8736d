//! Requests that change switches: addresses, mirrors, options of ports, flow tables, traces.

use ringroad_control::message::{ErrorKind, ErrorReply, Mirror, OpenFlow, Reply};
use ringroad_datapath::fabric::FabricError;
use ringroad_drivers::catalogue::port_name::PortName;
use tracing::info;

use super::{Server, ServerError, survive, told};
use crate::config::StaticAddress;
use crate::port_entries::ClientId;
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
        let bad = |what: String| ErrorReply::new(ErrorKind::BadName, what, "");
        let (switch, mac, name) = StaticAddress { mac, port: name }.parse().map_err(bad)?;
        let fabric = self.parts.ports.table.fabric_mut();
        if !fabric.set_static(&switch, mac, port.map(|_| name.as_str())) {
            return Err(bad(format!("{mac} is not a static address of {switch}")));
        }
        self.parts.ports.keep_list();
        info!(%switch, %mac, port = %name, "static address changed");
        Ok(Reply::Done)
    }

    /// Sends copies of frames to a port.
    pub(super) fn set_mirror(&mut self, mirror: &Mirror) -> Result<Result<Reply, ErrorReply>, ServerError> {
        let (switch, named) = match mirrors::parse(mirror) {
            Ok(parsed) => parsed,
            Err(what) => return Ok(Err(ErrorReply::new(ErrorKind::BadProperties, what, ""))),
        };
        let set = told(self.parts.ports.table.fabric_mut().set_mirror(&switch, named))?;
        self.parts.ports.keep_list();
        self.ports_at_check = usize::MAX;
        Ok(set.map(|()| {
            info!(from = %mirror.from, to = %mirror.to, sample = mirror.sample, "mirror set");
            Reply::Done
        }))
    }

    pub(super) fn remove_mirror(
        &mut self,
        mirror: &Mirror,
    ) -> Result<Result<Reply, ErrorReply>, ServerError> {
        let (switch, named) = match mirrors::parse(mirror) {
            Ok(parsed) => parsed,
            Err(what) => return Ok(Err(ErrorReply::new(ErrorKind::BadProperties, what, ""))),
        };
        let fabric = self.parts.ports.table.fabric_mut();
        let removed = told(fabric.remove_mirror(&switch, named.from.as_deref(), &named.to))?;
        self.parts.ports.keep_list();
        self.ports_at_check = usize::MAX;
        Ok(removed.and_then(|removed| match removed {
            true => {
                info!(from = %mirror.from, to = %mirror.to, "mirror removed");
                Ok(Reply::Done)
            }
            false => Err(ErrorReply::new(
                ErrorKind::NoSuchPort,
                format!("there is not {}", mirrors::words(mirror)),
                "ringroad mirror lists the mirrors",
            )),
        }))
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
    ) -> Result<Result<Reply, ErrorReply>, ServerError> {
        if self.tracer.is_some_and(|tracer| tracer != client) {
            return Ok(Err(another_traces()));
        }
        let started = match self.parts.ports.table.fabric_mut().start_trace(switch, from, count) {
            Err(FabricError::NoSuchPort(_)) => return Ok(Err(no_such(switch, from))),
            started => told(started)?,
        };
        self.ports_at_check = usize::MAX;
        Ok(started.map(|()| {
            self.tracer = Some(client);
            Reply::Done
        }))
    }

    /// Refuses a client that has no trace.
    pub(super) fn check_tracer(&self, client: ClientId) -> Result<(), ErrorReply> {
        match self.tracer {
            Some(tracer) if tracer == client => Ok(()),
            Some(_) => Err(another_traces()),
            None => Err(ErrorReply::new(ErrorKind::BadRequest, "no client has begun a trace", "")),
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

pub(super) fn another_traces() -> ErrorReply {
    ErrorReply::new(
        ErrorKind::Busy,
        "another client traces frames",
        "wait for its end: there is one trace at a time",
    )
}

pub(super) fn no_such(switch: &str, port: Option<&str>) -> ErrorReply {
    let port = port.map(|port| format!(", or it has no port {port}")).unwrap_or_default();
    ErrorReply::new(
        ErrorKind::NoSuchPort,
        format!("there is no switch {switch}{port}"),
        "ringroad list shows the ports that exist",
    )
}
