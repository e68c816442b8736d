//! The control queue, by which a driver sets up its card (virtio 1.2, section 5.1.6.5).
//!
//! The connection's thread carries out the commands. What they change reaches the workers with the rings, which are
//! taken back and handed over again. So a frame costs a guest without a filter nothing. A front end that emulates the
//! card itself has the control queue, and acknowledges no [`feature::NET_CTRL_VQ`] here; some of those acknowledge
//! other bits about its commands, which mean nothing then.

use std::os::fd::AsFd;
use std::sync::Arc;

use ringroad_ring::eventfd;
use ringroad_virtqueue::layout::features as feature;
use ringroad_wire::mac::Mac;
use vhost::vhost_user::Result;
use vhost::vhost_user::message::VhostUserProtocolFeatures;

use super::{BackEnd, refuse};
use crate::peer::wake_set::WakeSet;
use crate::vhost_user::call::say;
use crate::vhost_user::messages::config_change;
use crate::vhost_user::receive_filter::{ALL_MULTICAST, ReceiveFilter};
use crate::vhost_user::vring::Vring;

/// Features on which the settings depend.
pub(super) const FEATURES: u64 = feature::NET_CTRL_VQ
    | feature::NET_CTRL_VLAN
    | feature::NET_MQ
    | feature::NET_STATUS
    | feature::NET_GUEST_ANNOUNCE;

/// Maximum number of commands that are carried out at once. The thread looks for messages in between.
const COMMANDS_AT_ONCE: u32 = 16;

// Classes of commands, and commands of the classes that have few.
const RECEIVE_MODE: u8 = 0;
const ADDRESSES: u8 = 1;
const SET_LISTS: u8 = 0;
const SET_ADDRESS: u8 = 1;
const VLANS: u8 = 2;
const ADD_VLAN: u8 = 0;
const REMOVE_VLAN: u8 = 1;
const ANNOUNCEMENT: u8 = 3;
const ANNOUNCED: u8 = 0;
const PAIRS: u8 = 4;
const SET_PAIRS: u8 = 0;

/// Answers to commands.
const DONE: u8 = 0;
const FAILED: u8 = 1;

/// The control queue in use.
#[derive(Debug)]
pub(super) struct ControlRing {
    /// The front end's number of the ring.
    pub(super) index: usize,
    pub(super) vring: Vring,
}

/// Settings that a driver has made through the control queue.
#[derive(Debug)]
pub(super) struct DriverSettings {
    pub(super) filter: Arc<ReceiveFilter>,
    /// Maximum number of pairs of queues that the driver uses.
    pub(super) pairs: usize,
    /// Whether the guest is to announce itself to its network.
    pub(super) is_to_announce: bool,
}

impl DriverSettings {
    /// Settings of a card with this address, whose driver has set nothing.
    pub(super) fn new(address: Option<Mac>) -> Self {
        Self { filter: Arc::new(ReceiveFilter::new(address)), pairs: usize::MAX, is_to_announce: false }
    }

    /// Whether ring `index` of a pair is in use. The driver may still have frames to send in a pair that it no longer
    /// uses.
    pub(super) fn uses(&self, index: usize) -> bool {
        !index.is_multiple_of(2) || index / 2 < self.pairs
    }
}

impl BackEnd {
    pub(in crate::vhost_user) fn control_wake(&self) -> Arc<WakeSet> {
        Arc::clone(&self.control_wake)
    }

    /// The front end's number of the control queue; `None` if it has none here. It follows the pairs that the driver
    /// knows of: one, unless it knows of several.
    pub(super) fn control_index(&self) -> Option<usize> {
        let pairs = if self.has(feature::NET_MQ) { self.pairs() } else { 1 };
        self.has(feature::NET_CTRL_VQ).then_some(2 * pairs)
    }

    pub(super) fn is_control(&self, index: usize) -> bool {
        self.control_index() == Some(index)
    }

    /// The filter of ring `index`, if some frames do not pass.
    pub(super) fn filter_of(&self, index: usize) -> Option<Arc<ReceiveFilter>> {
        let filter = &self.settings.filter;
        let is_filtered = index.is_multiple_of(2)
            && self.has(feature::NET_CTRL_VQ | feature::NET_CTRL_RX)
            && !filter.is_open();
        is_filtered.then(|| Arc::clone(filter))
    }

    /// The card's address, if the guest has it from here, or has set it here.
    pub(super) fn guest_address(&self) -> Option<Mac> {
        let knows = self.features & (feature::NET_MAC | feature::NET_CTRL_VQ) != 0;
        self.settings.filter.address.filter(|_| knows)
    }

    /// Begins to serve the control queue. Its driver uses one pair of queues until it sets another number. A front end
    /// that acknowledges the features and serves the queue itself uses all that it has enabled.
    pub(super) fn start_control(&mut self, control: ControlRing) -> Result<()> {
        self.control = Some(control);
        // The thread serves the commands that are there already.
        eventfd::ring_own(&*self.control_wake.bell());
        if self.has(feature::NET_MQ) && self.settings.pairs == usize::MAX {
            self.settings.pairs = 1;
            self.restart_receive_rings()?;
        }
        Ok(())
    }

    /// Resets the settings to those at a driver's start. No ring runs that depends on them.
    pub(super) fn reset_settings(&mut self) {
        self.settings = DriverSettings::new(self.address);
        if !self.has(feature::NET_CTRL_VQ) {
            return;
        }
        // The guest may have been at another port before.
        self.settings.is_to_announce = self.has(feature::NET_STATUS | feature::NET_GUEST_ANNOUNCE);
        let has_vlans = self.has(feature::NET_CTRL_VLAN);
        self.filter_mut().filter_vlans(has_vlans);
    }

    fn filter_mut(&mut self) -> &mut ReceiveFilter {
        Arc::make_mut(&mut self.settings.filter)
    }

    /// Continues with the control queue after another process, and has the guest announce itself: the switch may have
    /// forgotten it.
    pub(in crate::vhost_user) fn come_back(&mut self) {
        let Some(control) = &mut self.control else { return };
        control.vring.begin();
        if self.has(feature::NET_STATUS | feature::NET_GUEST_ANNOUNCE) {
            self.settings.is_to_announce = true;
            self.tell_of_change();
        }
    }

    /// Tells the guest that its card's configuration has changed.
    fn tell_of_change(&self) {
        let knows = self.protocol_features & VhostUserProtocolFeatures::CONFIG.bits() != 0;
        if let Some(channel) = self.channel.as_ref().filter(|_| knows) {
            say(channel.as_fd(), &config_change());
        }
    }

    /// Carries out the commands in the control queue, some of them if there are many.
    pub(in crate::vhost_user) fn serve_control(&mut self) {
        let Some(mut control) = self.control.take() else { return };
        let vring = &mut control.vring;
        let mut has_more = true;
        for _ in 0..COMMANDS_AT_ONCE {
            if let Some((command, answer)) = vring.take_request() {
                let outcome = self.obey(&command);
                vring.answer(answer, if outcome.is_some() { DONE } else { FAILED });
            } else if !vring.arm() {
                has_more = false;
                break;
            }
        }
        if has_more {
            eventfd::ring_own(&*self.control_wake.bell());
        }
        if let Some(fault) = vring.fault.filter(|_| std::mem::take(&mut vring.is_uncounted)) {
            self.watch.has_fault(format!("the guest's control queue is stopped: {fault}"));
        }
        self.control = Some(control);
    }

    /// Carries out a command: class, number and data. `None` if there is no such command, its data are invalid, or a
    /// ring cannot run with the new settings.
    fn obey(&mut self, command: &[u8]) -> Option<()> {
        let (&[class, command], data) = command.split_first_chunk()?;
        match (class, command) {
            (RECEIVE_MODE, mode) => {
                let extra = if mode > ALL_MULTICAST { feature::NET_CTRL_RX_EXTRA } else { 0 };
                let &[on] = data else { return None };
                if !self.has(feature::NET_CTRL_RX | extra) {
                    return None;
                }
                self.filter_mut().set_mode(command, on != 0)?;
            }
            (ADDRESSES, SET_LISTS) if self.has(feature::NET_CTRL_RX) => {
                self.filter_mut().set_addresses(data)?;
            }
            (ADDRESSES, SET_ADDRESS) if self.has(feature::NET_CTRL_MAC_ADDR) => {
                let address = Mac::from_octets(data.try_into().ok()?);
                return self.set_address(address).ok();
            }
            (VLANS, ADD_VLAN | REMOVE_VLAN) => {
                let vlan = u16::from_le_bytes(data.try_into().ok()?);
                self.filter_mut().set_vlan(vlan, command == ADD_VLAN)?;
            }
            (ANNOUNCEMENT, ANNOUNCED) if data.is_empty() => {
                self.settings.is_to_announce = false;
                return Some(());
            }
            (PAIRS, SET_PAIRS) if self.has(feature::NET_MQ) => {
                let pairs = usize::from(u16::from_le_bytes(data.try_into().ok()?));
                if !(1..=self.pairs()).contains(&pairs) {
                    return None;
                }
                self.settings.pairs = pairs;
            }
            _ => return None,
        }
        self.restart_receive_rings().ok()
    }

    /// Sets the card's address.
    pub(super) fn set_address(&mut self, address: Mac) -> Result<()> {
        if !address.is_station() {
            return Err(refuse(format!("{address} is not the address of a card")));
        }
        self.filter_mut().address = Some(address);
        self.restart_receive_rings()
    }

    /// Hands the receive rings over again, with the present settings.
    fn restart_receive_rings(&mut self) -> Result<()> {
        for index in (0..self.mailboxes.len()).step_by(2) {
            if !self.is_control(index) {
                self.stop(index);
                self.start(index)?;
            }
        }
        self.tell();
        Ok(())
    }
}
