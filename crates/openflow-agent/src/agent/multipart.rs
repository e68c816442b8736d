//! Answers to requests for statistics and descriptions, which may have several messages.

use ringroad_flow_tables::tables::TABLES;
use ringroad_openflow::Text;
use ringroad_openflow::action::PortNo;
use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::message::{
    GroupCapabilities, GroupFeatures, MeterFeatures, MeterFlags, MultipartReply, MultipartRequest,
    MultipartRequestMessage, SwitchDesc,
};

use super::ports::port_stats;
use super::{Agent, SessionId};
use crate::features::table_features;
use crate::session::MAX_MULTIPART_BYTES;

impl Agent {
    pub(super) fn multipart(
        &mut self,
        id: SessionId,
        xid: u32,
        bytes: usize,
        part: MultipartRequestMessage,
        is_slave: bool,
        now_ns: u64,
    ) -> Result<Option<MultipartReply>, ErrorCode> {
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(None) };
        let MultipartRequestMessage { more, mut request } = part;
        // No other request may have several parts.
        if let MultipartRequest::TableFeatures(features) = &mut request {
            let (_, mut before, before_bytes) =
                session.multipart.take().filter(|&(of, ..)| of == xid).unwrap_or((xid, Vec::new(), 0));
            if before_bytes + bytes > MAX_MULTIPART_BYTES {
                return Err(ErrorCode::REQUEST_MULTIPART_BUFFER_OVERFLOW);
            }
            before.append(features);
            if more {
                session.multipart = Some((xid, before, before_bytes + bytes));
                return Ok(None);
            }
            *features = before;
        } else if more {
            return Err(ErrorCode::REQUEST_MULTIPART_BUFFER_OVERFLOW);
        }
        let reply = match request {
            MultipartRequest::Description => MultipartReply::Description(Box::new(SwitchDesc {
                manufacturer: Text::new("Ringroad"),
                hardware: Text::new("software switch"),
                software: Text::new(&self.identity.version),
                serial: Text::new("none"),
                datapath: Text::new(&self.identity.switch),
            })),
            MultipartRequest::Flows(asked) => {
                session.list = Some((xid, self.state.list_flows(asked)?));
                return Ok(None);
            }
            MultipartRequest::Aggregate(asked) => MultipartReply::Aggregate(self.state.aggregate(&asked)?),
            MultipartRequest::Tables => MultipartReply::Tables(self.state.table_stats()),
            MultipartRequest::Ports(asked) => {
                self.check_port(asked.port, ErrorCode::REQUEST_BAD_PORT)?;
                let ports = self
                    .ports
                    .iter()
                    .filter(|(number, _)| asked.port == PortNo::ANY || **number == asked.port);
                MultipartReply::Ports(ports.map(|(&number, port)| port_stats(number, port, now_ns)).collect())
            }
            MultipartRequest::Queues(asked) => {
                self.check_port(asked.port, ErrorCode::QUEUE_BAD_PORT)?;
                MultipartReply::Queues(Vec::new())
            }
            MultipartRequest::Groups(asked) => {
                MultipartReply::Groups(self.state.group_stats(asked.group, now_ns))
            }
            MultipartRequest::GroupDescriptions => {
                MultipartReply::GroupDescriptions(self.state.group_descriptions())
            }
            MultipartRequest::GroupFeatures => MultipartReply::GroupFeatures(GroupFeatures {
                kinds: 0b1111,
                capabilities: GroupCapabilities::SELECT_WEIGHT
                    | GroupCapabilities::SELECT_LIVENESS
                    | GroupCapabilities::CHAINING
                    | GroupCapabilities::CHAINING_CHECKS,
                max_groups: [self.state.limits().groups as u32; 4],
                actions: [crate::features::action_bits(); 4],
            }),
            MultipartRequest::Meters(asked) => {
                MultipartReply::Meters(self.state.meter_stats(asked.meter, now_ns)?)
            }
            MultipartRequest::MeterConfigs(asked) => {
                MultipartReply::MeterConfigs(self.state.meter_configs(asked.meter)?)
            }
            MultipartRequest::MeterFeatures => MultipartReply::MeterFeatures(MeterFeatures {
                max_meters: self.state.limits().meters as u32,
                band_kinds: 0b110,
                capabilities: u32::from(MeterFlags::KNOWN.0),
                max_bands: self.state.limits().bands as u8,
                max_colors: 0,
            }),
            MultipartRequest::TableFeatures(wanted) => {
                if is_slave && !wanted.is_empty() {
                    return Err(ErrorCode::REQUEST_IS_SLAVE);
                }
                // Every table has all features already, and none can be removed.
                if !wanted.is_empty() {
                    return Err(ErrorCode::FEATURES_EPERM);
                }
                let max_entries = self.state.limits().flows as u32;
                MultipartReply::TableFeatures(
                    (0..TABLES as u8).map(|table| table_features(table, max_entries)).collect(),
                )
            }
            MultipartRequest::PortDescriptions => MultipartReply::PortDescriptions(
                self.ports.iter().map(|(&number, port)| self.describe(number, port)).collect(),
            ),
            MultipartRequest::Experimenter(_) => return Err(ErrorCode::REQUEST_BAD_EXPERIMENTER),
        };
        Ok(Some(reply))
    }
}
