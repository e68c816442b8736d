//! Handover of a front end's settings to another process, which continues with the rings where this one stops.

use std::io;
use std::sync::Arc;

use ringroad_port::port_queue::HandOver;
use ringroad_virtqueue::device_ring::RingPosition;
use ringroad_virtqueue::guest_memory::RegionLayout;
use vhost::vhost_user::Result;

use super::control::{ControlRing, DriverSettings};
use super::{BackEnd, KnownRegion, VringAddresses, VringSetup, refuse};
use crate::peer::inheritance::{Inheritance, leave};
use crate::vhost_user::call::Call;
use crate::vhost_user::receive_filter::ReceiveFilter;
use crate::vhost_user::vring::Vring;

impl BackEnd {
    /// The features that the front end has acknowledged: of the card and of the protocol.
    pub(in crate::vhost_user) fn acknowledged(&self) -> [u64; 2] {
        [self.features, self.protocol_features]
    }

    /// Leaves the common state of all rings. `None`: the guest must reconnect, because it is about to migrate, or its
    /// memory cannot be shared with another process.
    pub(in crate::vhost_user) fn leave(&self, left: &mut HandOver) -> Option<()> {
        if self.log.is_some() || self.inflight.is_some() || self.memory.is_lost() {
            return None;
        }
        left.numbers.extend(self.acknowledged());
        left.numbers.push(self.regions.len() as u64);
        for region in &self.regions {
            let RegionLayout { guest, user, bytes, file_offset } = region.mapped.layout();
            left.numbers.extend([guest, user, bytes, file_offset]);
            left.descriptors.push(region.file.as_ref()?.try_clone().ok()?);
        }
        Some(())
    }

    /// Leaves a ring. The worker has it as `vring`, and has published all its work to the guest.
    pub(in crate::vhost_user) fn leave_ring(
        &self,
        index: usize,
        vring: Option<&Vring>,
        left: &mut HandOver,
    ) -> Option<()> {
        let setup = self.vrings.get(index)?;
        let own = self.control.as_ref().filter(|control| control.index == index);
        let vring = vring.or(own.map(|control| &control.vring));
        let position = vring.map_or(setup.position, |vring| vring.ring.position());
        let is_broken = setup.is_broken || vring.is_some_and(|vring| vring.fault.is_some());
        left.numbers.extend([u64::from(setup.entries), u64::from(position.0)]);
        left.numbers.extend([setup.is_started, setup.is_enabled, is_broken].map(u64::from));
        left.numbers.push(setup.addresses.is_some().into());
        if let Some(addresses) = setup.addresses {
            let VringAddresses { descriptors, driver, device, is_logged } = addresses;
            left.numbers.extend([descriptors, driver, device, is_logged.into()]);
        }
        leave(left, setup.kick.as_ref()).ok()?;
        leave(left, setup.call.as_deref()).ok()?;
        leave(left, setup.error.as_deref()).ok()
    }

    /// Leaves what the driver has set through the control queue, and the control queue itself.
    pub(in crate::vhost_user) fn leave_settings(&self, left: &mut HandOver) -> Option<()> {
        let DriverSettings { filter, pairs, is_to_announce } = &self.settings;
        left.numbers.extend([self.status, *pairs as u64, u64::from(*is_to_announce)]);
        filter.leave(&mut left.numbers);
        leave(left, self.channel.as_ref()).ok()?;
        self.leave_ring(self.mailboxes.len(), None, left)
    }

    /// Takes over what [`Self::leave_settings`] has left.
    fn resume_settings(&mut self, left: &mut Inheritance) -> io::Result<()> {
        // Daemons before version 0.3 leave none.
        if left.is_read() {
            return Ok(());
        }
        let [status, pairs, is_to_announce] = left.numbers()?;
        let filter = Arc::new(ReceiveFilter::resume(|| left.number())?);
        let is_to_announce = is_to_announce != 0;
        self.settings = DriverSettings { filter, pairs: pairs as usize, is_to_announce };
        self.status = status;
        self.channel = left.optional_descriptor()?;
        if let Some(last) = self.vrings.last_mut() {
            *last = setup_of(left)?;
        }
        Ok(())
    }

    /// Takes over a front end from another process, pair by pair. Returns the rings that run, for the workers.
    ///
    /// # Errors
    /// The guest's memory can no longer be mapped, or some state is missing. No ring runs then.
    pub(in crate::vhost_user) fn resume(&mut self, left: &mut [Inheritance]) -> Result<Vec<Option<Vring>>> {
        let first = left.first_mut().ok_or_else(|| refuse("nothing was left"))?;
        [self.features, self.protocol_features] = first.numbers().map_err(refuse)?;
        let mut regions = Vec::new();
        for _ in 0..first.number().map_err(refuse)? {
            let [guest, user, bytes, file_offset] = first.numbers().map_err(refuse)?;
            let layout = RegionLayout { guest, user, bytes, file_offset };
            regions.push(KnownRegion::map(layout, first.descriptor().map_err(refuse)?)?);
        }
        self.set_memory(regions)?;
        let count = self.mailboxes.len();
        let setups = left.iter_mut().flat_map(|left| [setup_of(left), setup_of(left)]);
        self.vrings = setups.take(count).collect::<io::Result<_>>().map_err(refuse)?;
        self.vrings.resize_with(count + 1, VringSetup::default);
        let first = left.first_mut().ok_or_else(|| refuse("nothing was left"))?;
        self.resume_settings(first).map_err(refuse)?;
        let rings = (0..=count).map(|index| {
            let vring = self.prepare(index);
            if let (Err(_), Some(setup)) = (&vring, self.vrings.get_mut(index)) {
                setup.is_broken = true;
            }
            let vring = vring.ok().flatten();
            if !self.is_control(index) {
                return vring;
            }
            self.control = vring.map(|vring| ControlRing { index, vring });
            None
        });
        let rings = rings.collect();
        self.watch.connected();
        self.tell();
        Ok(rings)
    }
}

fn setup_of(left: &mut Inheritance) -> io::Result<VringSetup> {
    let [entries, position] = left.numbers()?;
    let [is_started, is_enabled, is_broken] = [left.flag()?, left.flag()?, left.flag()?];
    let addresses = if left.flag()? {
        let [descriptors, driver, device, is_logged] = left.numbers()?;
        Some(VringAddresses { descriptors, driver, device, is_logged: is_logged != 0 })
    } else {
        None
    };
    Ok(VringSetup {
        entries: entries as u16,
        addresses,
        position: RingPosition(position as u32),
        is_started,
        is_enabled,
        runs: false,
        is_broken,
        kick: left.optional_descriptor()?,
        call: call_of(left)?,
        error: call_of(left)?,
    })
}

fn call_of(left: &mut Inheritance) -> io::Result<Option<Arc<Call>>> {
    let call = left.optional_descriptor()?.map(Call::new).transpose();
    call.map(|call| call.map(Arc::new)).map_err(io::Error::other)
}
