//! Handover of flow tables.
//!
//! The tables go first, in an unnamed file, while the old workers still use them; only the counts go with the ports,
//! while traffic waits.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};
use tracing::warn;

use super::ReceivedDescriptors;
use super::state::FlowTablesState;
use crate::openflow::FlowSwitches;

/// Maximum length of an image of tables, bytes: two million entries of the usual length.
const MOST_BYTES: u64 = 1 << 30;

fn file_of(bytes: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(memfd_create("ringroad-flow-tables", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file)
}

/// Content of a file of the earlier process.
///
/// # Errors
/// The kernel's, or that the file is too long.
pub(crate) fn bytes_of(file: OwnedFd) -> std::io::Result<Vec<u8>> {
    let mut file = File::from(file);
    file.rewind()?;
    let mut bytes = Vec::new();
    let len = (&mut file).take(MOST_BYTES + 1).read_to_end(&mut bytes)?;
    if len as u64 > MOST_BYTES {
        return Err(std::io::Error::other("the image of flow tables is too long"));
    }
    Ok(bytes)
}

impl FlowSwitches {
    /// Freezes the threads of all switches, and returns their tables, each with the file of its image. Tables that
    /// cannot be written stay here: the other process begins with empty tables.
    pub(crate) fn freeze(&self) -> (Vec<FlowTablesState>, Vec<File>) {
        let (mut states, mut files) = (Vec::new(), Vec::new());
        let served = self.services().filter_map(|(switch, service)| Some((switch, service.freeze()?)));
        // Tables without a thread do not change.
        let waiting = self.waiting_tables();
        let waiting = waiting
            .map(|(switch, (agent_state, image), _)| (switch, (agent_state.clone(), image.bytes.clone())));
        for (switch, (agent_state, image)) in served.chain(waiting) {
            match file_of(&image) {
                Ok(file) if image.len() as u64 <= MOST_BYTES => {
                    states.push(FlowTablesState {
                        switch: switch.to_owned(),
                        agent_state,
                        image: files.len(),
                    });
                    files.push(file);
                }
                Ok(_) => warn!(%switch, "its flow tables are too large to be handed over"),
                Err(error) => warn!(%switch, %error, "its flow tables are not handed over"),
            }
        }
        (states, files)
    }

    /// Files with the counts of frozen tables, by switch.
    pub(crate) fn frozen_counts(&self) -> BTreeMap<String, File> {
        let served = self.services().filter_map(|(switch, service)| Some((switch, service.counts()?)));
        let waiting = self.waiting_tables();
        let waiting = waiting.map(|(switch, (_, image), state)| (switch, state.counts(image)));
        let counts = served.chain(waiting);
        counts.filter_map(|(switch, counts)| Some((switch.to_owned(), file_of(&counts).ok()?))).collect()
    }

    /// Lets frozen threads continue.
    pub(crate) fn thaw(&self) {
        self.services().for_each(|(_, service)| service.thaw());
    }

    /// Makes the tables of another process's switches, for `workers` workers.
    ///
    /// # Errors
    /// Text that names the tables that cannot be read.
    pub(crate) fn prepare(
        &mut self,
        states: Vec<FlowTablesState>,
        descriptors: &mut ReceivedDescriptors,
        workers: usize,
    ) -> Result<(), String> {
        for FlowTablesState { switch, agent_state, image } in states {
            let failed = |error: &dyn std::fmt::Display| format!("the flow tables of {switch}: {error}");
            let image = bytes_of(descriptors.take(image)?).map_err(|error| failed(&error))?;
            self.make_ready(&switch, agent_state, image, workers).map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}
