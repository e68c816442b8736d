//! Changes of the options of a port of a switch while the port is in use.

use ringroad_control::message::ErrorKind;
use ringroad_drivers::catalogue::port_name::{PortBase, PortName, PortOptions};
use ringroad_port::port_settings::PortSettings;

use crate::ports::Ports;
use crate::refusal::{Refusal, fabric_refusal, refuse};

impl Ports {
    /// Gives a port the VLANs, isolation and storm limit that a name has, and removes those that the name does not
    /// have. Returns the settings in force. A port that a command attached comes back with these options after a crash.
    ///
    /// # Errors
    /// The refusal to send; the port is unchanged then.
    pub(crate) fn set_options(&mut self, name: &PortName) -> Result<PortSettings, Refusal> {
        let key = name.base.to_string();
        let asked = &name.options.settings;
        if !matches!(name.base, PortBase::Switch { .. })
            || name.options != (PortOptions { settings: asked.clone(), ..PortOptions::default() })
        {
            let what =
                format!("{key}: only VLANs, isolation and storm limits of a switch's port can be changed");
            return Err(refuse(
                ErrorKind::BadProperties,
                what,
                "detach the port and create it again with other options",
            ));
        }
        if !self.table.on_switches().contains_key(&key) {
            let what = format!("there is no port {key}");
            return Err(refuse(ErrorKind::NoSuchPort, what, "ringroad list shows the ports that exist"));
        }
        let settings = self.rules.settle(&key, asked)?;
        self.table.set_settings(&key, settings.clone()).map_err(fabric_refusal)?;
        if let Some(kept) = self.table.kept_mut(&key) {
            kept.asked = asked.clone();
        }
        self.keep_list();
        Ok(settings)
    }
}
