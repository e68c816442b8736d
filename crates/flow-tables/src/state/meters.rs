//! Changes of meters by controllers.

use std::sync::Arc;

use ringroad_openflow::error::ErrorCode;
use ringroad_openflow::message::{
    FlowRemoved, FlowRemovedReason, MeterCommand, MeterConfig, MeterFlags, MeterMod,
};
use ringroad_openflow::{meter_id, table_id};

use super::FlowState;
use crate::memory_budget;
use crate::meter::MeterEntry;
use crate::tables::Change;

impl FlowState {
    /// Changes meters. Returns the entries that were deleted with a meter.
    ///
    /// # Errors
    /// The error for the controller; nothing has changed then.
    pub fn meter_mod(&mut self, request: &MeterMod, now_ns: u64) -> Result<Vec<FlowRemoved>, ErrorCode> {
        let old = self.tables.meters.get(&request.meter).cloned();
        match request.command {
            MeterCommand::Add | MeterCommand::Modify => {
                let is_number = (1..=meter_id::MAX).contains(&request.meter);
                if !is_number && !meter_id::VIRTUAL.contains(&request.meter) {
                    return Err(ErrorCode::METER_INVALID);
                }
                match (request.command, &old) {
                    (MeterCommand::Add, Some(_)) => return Err(ErrorCode::METER_EXISTS),
                    (MeterCommand::Modify, None) => return Err(ErrorCode::METER_UNKNOWN),
                    _ => {}
                }
                if request.flags.contains(MeterFlags::KBPS) && request.flags.contains(MeterFlags::PKTPS) {
                    return Err(ErrorCode::METER_BAD_FLAGS);
                }
                if request.bands.len() > self.limits.bands {
                    return Err(ErrorCode::METER_OUT_OF_BANDS);
                }
                if old.is_none() && self.tables.meters.len() >= self.limits.meters {
                    return Err(ErrorCode::METER_OUT_OF_METERS);
                }
                if !self.charge(memory_budget::of_meter(&request.bands)) {
                    return Err(ErrorCode::METER_OUT_OF_METERS);
                }
                if let Some(old) = &old {
                    self.budget.give_back(memory_budget::of_meter(&old.config.bands));
                }
                let (counter, added_ns) = match &old {
                    Some(old) => {
                        self.unpublished.extend(old.bands.iter().map(|band| band.counter));
                        (old.counter, old.added_ns)
                    }
                    None => (self.counter(), now_ns),
                };
                let bands: Vec<_> = request.bands.iter().map(|_| self.counter()).collect();
                let config =
                    MeterConfig { flags: request.flags, meter: request.meter, bands: request.bands.clone() };
                let meter = MeterEntry::new(config, added_ns, counter, bands);
                self.change(Change::Meter(request.meter, Some(Arc::new(meter))));
                Ok(Vec::new())
            }
            // A meter that is not there is deleted without an error (OpenFlow 1.3.5, 6.6).
            MeterCommand::Delete => {
                let is_meant = |meter: u32| request.meter == meter_id::ALL || request.meter == meter;
                let flows = self.with(table_id::ALL, |flow| flow.instructions.meter.is_some_and(is_meant));
                self.remove_meters(is_meant);
                Ok(self.remove_all(flows, FlowRemovedReason::Delete, now_ns))
            }
        }
    }

    pub(super) fn remove_meters(&mut self, is_meant: impl Fn(u32) -> bool) {
        let meters = self.tables.meters.iter().filter(|(number, _)| is_meant(**number));
        let meters: Vec<_> = meters.map(|(&number, meter)| (number, Arc::clone(meter))).collect();
        for (number, meter) in meters {
            self.budget.give_back(memory_budget::of_meter(&meter.config.bands));
            self.unpublished.push(meter.counter);
            self.unpublished.extend(meter.bands.iter().map(|band| band.counter));
            self.change(Change::Meter(number, None));
        }
    }
}
