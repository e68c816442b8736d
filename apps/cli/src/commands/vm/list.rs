//! `ringroad vm list`.

use clap::Args;
use ringroad_guest::{GuestKind, GuestRegistry};
use serde::Serialize;

use crate::commands::guests::clean_stale;
use crate::failure::Failure;
use crate::output::Output;
use crate::output::table::table;

/// List the running guests: virtual machines, containers, testpmd
///
/// The command also removes the remains of killed guests.
#[derive(Debug, Args)]
pub(super) struct VmListArgs {}

#[derive(Debug, Serialize)]
struct ListedGuest {
    name: String,
    kind: GuestKind,
    pid: u32,
    ports: Vec<String>,
    addresses: Vec<String>,
}

impl VmListArgs {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let registry = GuestRegistry::of_environment();
        clean_stale(&registry, &registry.lock()?, output);
        let running = registry.guests().into_iter().filter(|(_, record)| record.process.is_running());
        let guests: Vec<_> = running
            .map(|(name, record)| ListedGuest {
                name,
                kind: record.kind,
                pid: record.process.pid,
                ports: record.ports.into_iter().map(|(name, _)| name).collect(),
                addresses: record.addresses,
            })
            .collect();
        output.result(&guests, |guests| {
            table(
                guests,
                &[
                    ("guest", |guest| guest.name.clone()),
                    ("kind", |guest| guest.kind.name().to_owned()),
                    (">process", |guest| guest.pid.to_string()),
                    ("ports", |guest| guest.ports.join(" ")),
                    ("addresses", |guest| guest.addresses.join(" ")),
                ],
                "no guests",
            )
        })
    }
}
