//! Reports about switches with flow tables.

use std::collections::BTreeMap;

use ringroad_control::report::{ControllerReport, FlowTableReport, OpenFlowReport};
use ringroad_flow_tables::tables::TableUse;

use super::settings::parse;
use super::{FlowSwitches, RunningSwitch};
use crate::ports::Ports;

impl Ports {
    /// Reports of the switches with flow tables.
    pub(crate) fn openflow_report(&self) -> Vec<OpenFlowReport> {
        let FlowSwitches { running, waiting, folder, .. } = &self.openflow;
        let running = running.values().map(RunningSwitch::report);
        let waiting = waiting.values().map(|(settings, why)| OpenFlowReport {
            settings: settings.clone(),
            datapath_id: parse(settings)
                .map(|parsed| format!("{:016x}", parsed.datapath_id))
                .unwrap_or_default(),
            socket: folder.join(format!("{}.mgmt", settings.switch)).display().to_string(),
            waiting: why.clone(),
            ..OpenFlowReport::default()
        });
        running.chain(waiting).collect()
    }
}

impl RunningSwitch {
    fn report(&self) -> OpenFlowReport {
        let report = self.service.report();
        let refused = report.refusals.counts.iter().map(|(cause, &count)| (cause.name().to_owned(), count));
        let refused: BTreeMap<String, u64> = refused.collect();
        let controllers = report.controllers.into_iter().map(|controller| ControllerReport {
            address: controller.address,
            is_connected: controller.is_connected,
            problem: controller.problem.unwrap_or_default(),
        });
        let tables = self.seen.tables.enter();
        let (groups, meters) = tables.as_ref().map_or((0, 0), |tables| tables.groups_and_meters());
        let metered_packet_ins = tables.as_ref().map_or(0, |tables| tables.metered_packet_ins());
        let used = tables.as_ref().map(|tables| tables.used()).unwrap_or_default();
        let used = used.into_iter().map(|TableUse { table, flows, lookups, matches }| FlowTableReport {
            table,
            flows: flows as u64,
            lookups,
            matches,
        });
        OpenFlowReport {
            settings: self.settings.clone(),
            datapath_id: format!("{:016x}", self.datapath_id),
            socket: self.socket_path.display().to_string(),
            controllers: controllers.collect(),
            tools: report.tools as u64,
            refused_tools: refused.values().sum(),
            refused_tools_by_cause: refused,
            refusal: report.refusals.last.unwrap_or_default(),
            flows: report.flows as u64,
            groups: groups as u64,
            meters: meters as u64,
            memory_bytes: report.memory_bytes,
            memory_limit_bytes: report.memory_limit_bytes,
            flow_mods: report.counted.flow_mods,
            packet_ins: report.counted.packet_ins,
            metered_packet_ins,
            dropped_news: report.counted.dropped_news,
            dropped_packet_outs: report.counted.dropped_packet_outs,
            tables: used.collect(),
            waiting: String::new(),
        }
    }
}
