//! Client of a switch with flow tables, over the switch's socket for tools.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ringroad_control::{Reply as DaemonReply, Request as DaemonRequest};
use ringroad_openflow::first_message;
use ringroad_openflow::message::{
    ControllerMessage, FlowMod, FlowStats, FlowStatsRequest, Hello, MultipartReply, MultipartRequest,
    MultipartRequestMessage, SwitchMessage,
};

use crate::failure::Failure;
use crate::options::Global;
use crate::verb::request;

/// Time limit for a reply of the switch.
const PATIENCE: Duration = Duration::from_secs(30);

/// Connection to a switch.
#[derive(Debug)]
pub(crate) struct FlowClient {
    switch: String,
    stream: UnixStream,
    input: Vec<u8>,
    next_xid: u32,
}

impl FlowClient {
    /// Requests the path of the switch's socket from the daemon, connects, and sends the greeting.
    pub(crate) fn connect(global: &Global, switch: &str) -> Result<Self, Failure> {
        let request = DaemonRequest::OpenFlow;
        let reports = request!(global.connect()?, &request, DaemonReply::OpenFlow(reports) => reports)?;
        let report = reports.into_iter().find(|report| report.settings.switch == switch);
        let report = report.ok_or_else(|| {
            let advice = format!("ringroad switch {switch} --openflow gives it flow tables");
            Failure::new(format!("{switch} has no flow tables"), advice)
        })?;
        let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", report.socket), "");
        let stream = UnixStream::connect(&report.socket).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut client = Self { switch: switch.to_owned(), stream, input: Vec::new(), next_xid: 0 };
        client.send(&ControllerMessage::Hello(Hello::ours()))?;
        Ok(client)
    }

    /// Changes flow entries, and waits until the changes apply to all frames.
    pub(crate) fn change(&mut self, changes: &[FlowMod]) -> Result<(), Failure> {
        for change in changes {
            self.send(&ControllerMessage::FlowMod(change.clone()))?;
        }
        let barrier = self.send(&ControllerMessage::Barrier)?;
        loop {
            match self.receive()? {
                (xid, SwitchMessage::Barrier) if xid == barrier => return Ok(()),
                (_, SwitchMessage::Error(error)) => {
                    let message = format!("{} refuses a change: {}", self.switch, error.code);
                    return Err(Failure::new(message, ""));
                }
                _ => {}
            }
        }
    }

    /// Returns flow entries with their counters.
    pub(crate) fn flows(&mut self, wanted: FlowStatsRequest) -> Result<Vec<FlowStats>, Failure> {
        let request = MultipartRequest::Flows(wanted);
        let asked =
            self.send(&ControllerMessage::Multipart(MultipartRequestMessage { more: false, request }))?;
        let mut flows = Vec::new();
        loop {
            match self.receive()? {
                (xid, SwitchMessage::Multipart(part)) if xid == asked => {
                    let more = part.more;
                    if let MultipartReply::Flows(some) = part.reply {
                        flows.extend(some);
                    }
                    if !more {
                        return Ok(flows);
                    }
                }
                (xid, SwitchMessage::Error(error)) if xid == asked => {
                    let message = format!("{} refuses to list its flows: {}", self.switch, error.code);
                    return Err(Failure::new(message, ""));
                }
                _ => {}
            }
        }
    }

    fn send(&mut self, request: &ControllerMessage) -> Result<u32, Failure> {
        self.next_xid += 1;
        let mut bytes = Vec::new();
        let too_long = |_| Failure::new("one flow is longer than an OpenFlow message", "split its actions");
        request.encode(self.next_xid, &mut bytes).map_err(too_long)?;
        self.stream.write_all(&bytes).map_err(|error| self.lost(&error))?;
        Ok(self.next_xid)
    }

    fn receive(&mut self) -> Result<(u32, SwitchMessage), Failure> {
        loop {
            let wrong = |what: String| Failure::new(what, "use a program and a daemon of the same version");
            let message =
                first_message(&self.input).map_err(|code| wrong(format!("{}: {code}", self.switch)))?;
            if let Some(message) = message.map(<[u8]>::to_vec) {
                self.input.drain(..message.len());
                return SwitchMessage::decode(&message)
                    .map_err(|code| wrong(format!("{}: {code}", self.switch)));
            }
            let mut bytes = [0; 64 * 1024];
            let len = self.stream.read(&mut bytes).map_err(|error| self.lost(&error))?;
            if len == 0 {
                return Err(Failure::new(format!("{} closed the connection", self.switch), ""));
            }
            self.input.extend_from_slice(bytes.get(..len).unwrap_or_default());
        }
    }

    fn lost(&self, error: &std::io::Error) -> Failure {
        Failure::new(format!("the connection to {}: {error}", self.switch), "")
    }
}
