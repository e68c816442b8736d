//! Settings of ports: their VLANs, isolation and storm limits, as the workers of a switch know them.

use std::sync::Arc;

use ringroad_port::port_index::PortIndex;
use ringroad_port::port_settings::{PortSettings, PortVlans};
use ringroad_switch::{Policing, PortPolicies, PortPolicy};

use super::{Fabric, FabricError, Switch};

impl Switch {
    fn has_vlans(&self) -> bool {
        self.policed.as_ref().is_some_and(|policies| policies.has_vlans())
    }

    /// Refuses the switch `name` if one of its ports has settings.
    pub(super) fn check_unset(&self, name: &str) -> Result<(), FabricError> {
        let Some(index) = self.policies.keys().next() else { return Ok(()) };
        let port = self.ports.iter().find(|(_, port)| port.index == *index);
        let port = port.map_or("", |(port, _)| port);
        Err(FabricError::HasSettings(format!("{name}:{port}")))
    }
}

impl Fabric {
    /// Gives a port settings, now or when the port is made. The settings leave with the port.
    ///
    /// # Errors
    /// [`FabricError::HasFlowTables`], [`FabricError::TableWithoutVlans`], or a worker that is gone; the settings are
    /// unchanged in the first two cases.
    pub fn set_settings(
        &mut self,
        switch: &str,
        port: &str,
        settings: PortSettings,
    ) -> Result<(), FabricError> {
        if let Some(index) = self.switches.get(switch).and_then(|state| Some(state.ports.get(port)?.index)) {
            self.apply_settings(switch, index, settings.clone())?;
        }
        let key = (switch.to_owned(), port.to_owned());
        match settings.is_unset() {
            true => self.settings.remove(&key),
            false => self.settings.insert(key, settings),
        };
        Ok(())
    }

    /// Refuses a switch on which a port has settings.
    ///
    /// # Errors
    /// [`FabricError::HasSettings`].
    pub fn check_unset(&self, switch: &str) -> Result<(), FabricError> {
        self.switches.get(switch).map_or(Ok(()), |state| state.check_unset(switch))
    }

    /// Forwarding plane of a switch with port settings, for an explanation of its decision on a frame.
    #[must_use]
    pub fn policing(&self, switch: &str) -> Option<Policing> {
        let state = self.switches.get(switch)?;
        let policies = Arc::clone(state.policed.as_ref()?);
        Some(Policing::new(Arc::clone(&state.learning), policies, self.clock.clone()))
    }

    /// The settings of a port of a switch, if it has any.
    #[must_use]
    pub fn settings_of(&self, switch: &str, port: PortIndex) -> Option<&PortSettings> {
        self.switches.get(switch)?.policies.get(&port).map(PortPolicy::settings)
    }

    /// Gives the workers of a switch the settings of a port.
    pub(super) fn apply_settings(
        &mut self,
        name: &str,
        port: PortIndex,
        settings: PortSettings,
    ) -> Result<(), FabricError> {
        let Some(switch) = self.switches.get_mut(name) else { return Ok(()) };
        let before = switch.policies.get(&port);
        if before.map_or(settings.is_unset(), |before| *before.settings() == settings) {
            return Ok(());
        }
        if switch.make_forwarding_plane.is_some() && !settings.is_unset() {
            return Err(FabricError::HasFlowTables(name.to_owned()));
        }
        let table = &switch.learning.table;
        if settings.vlans != PortVlans::Unset && !table.has_vlans() {
            return Err(FabricError::TableWithoutVlans(table.capacity()));
        }
        let vlans_before = before.map(|before| before.settings().vlans.clone()).unwrap_or_default();
        let (moves, had_vlans) = (vlans_before != settings.vlans, switch.has_vlans());
        match settings.is_unset() {
            true => switch.policies.remove(&port),
            false => switch.policies.insert(port, PortPolicy::new(settings)),
        };
        switch.policed = (!switch.policies.is_empty()).then(|| {
            let ports = switch.policies.iter().map(|(&port, policy)| (port, policy));
            Arc::new(PortPolicies::new(ports))
        });
        let has_vlans = switch.has_vlans();
        if let Some(switch) = self.switches.get(name) {
            self.install_forwarding_planes(name, switch, &switch.mirrors)?;
            // Addresses that were learned at the port, or without regard to VLANs, are no longer valid.
            if has_vlans != had_vlans {
                switch.learning.table.forget_learned(None);
            } else if moves {
                switch.learning.table.forget_learned(Some(port));
            }
        }
        Ok(())
    }
}
