//! `ringroad macs`.

use clap::Args;

use crate::arguments::Global;
use crate::failure::Failure;
use crate::output::Output;
use crate::output::table::Columns;

/// Show the addresses that a switch has learned
#[derive(Debug, Args)]
pub(crate) struct Macs {
    /// Name of the switch, such as vale0
    #[arg(value_name = "SWITCH")]
    switch: String,
}

impl Macs {
    pub(crate) fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let entries = global.connect()?.mac_table(&self.switch)?;
        output.result(&entries, |entries| {
            let mut columns = Columns::new(&["address", "port", ">last seen"]);
            for entry in entries {
                columns.row([entry.mac.clone(), entry.port.clone(), format!("{} s", entry.age_s)]);
            }
            columns.lines_or("no addresses learned")
        })
    }
}
