//! The driver matrix: each driver of network interfaces by each mechanism that can serve it, in a guest with emulated
//! cards (`make cards`).
//!
//! The program boots a guest for each driver, and runs itself there ([`inside`]) for each mechanism. A row of the
//! matrix is right if the interface was refused with a reason, or if all frames came whole, the counters agree, the
//! settings of the interface are as before, and the port works again, or tells why it does not, after each event. A
//! wrong row, or one that was whole before and is refused now, makes the exit status 1.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod bed;
mod events;
mod frames;
mod inside;
mod machine;
mod matrix;
mod row;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;

use machine::CardGuest;
use matrix::{DRIVERS, MECHANISMS, MatrixDriver, MatrixMechanism};
use row::{MatrixRow, RowOutcome};

/// Run the matrix of drivers and mechanisms in guests with emulated cards
#[derive(Debug, Parser)]
struct CardsArguments {
    /// Only this driver; may be given several times
    #[arg(
        long = "driver",
        value_name = "NAME",
        value_parser = PossibleValuesParser::new(DRIVERS.iter().map(|driver| driver.name))
    )]
    drivers: Vec<String>,
    /// Only this mechanism; may be given several times
    #[arg(
        long = "mechanism",
        value_name = "NAME",
        value_parser = PossibleValuesParser::new(MECHANISMS.iter().map(|one| one.name))
    )]
    mechanisms: Vec<String>,
    /// Folder with the unpacked packages of QEMU and the kernel
    #[arg(long, value_name = "DIR", required_unless_present = "inside")]
    packages: Option<PathBuf>,
    /// File with the results of earlier runs, to compare with
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Write the new results into the file of --results, and the table of all results into this page
    #[arg(long, value_name = "FILE", requires = "results")]
    page: Option<PathBuf>,
    /// Run in the guest
    #[arg(long, hide = true)]
    inside: bool,
}

impl CardsArguments {
    fn drivers(&self) -> impl Iterator<Item = &'static MatrixDriver> {
        let is_chosen = |name: &str| self.drivers.is_empty() || self.drivers.iter().any(|one| one == name);
        DRIVERS.iter().filter(move |driver| is_chosen(driver.name))
    }

    fn mechanisms(&self) -> impl Iterator<Item = &'static MatrixMechanism> {
        let is_chosen =
            |name: &str| self.mechanisms.is_empty() || self.mechanisms.iter().any(|one| one == name);
        MECHANISMS.iter().filter(move |mechanism| is_chosen(mechanism.name))
    }
}

fn main() -> ExitCode {
    let arguments = CardsArguments::parse();
    if arguments.inside {
        for (driver, mechanism) in
            arguments.drivers().flat_map(|driver| arguments.mechanisms().map(move |one| (driver, one)))
        {
            inside::run(driver, mechanism);
        }
        return ExitCode::SUCCESS;
    }
    match judge(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("cards: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the chosen rows. Returns whether all are right.
fn judge(arguments: &CardsArguments) -> Result<bool, String> {
    let packages = arguments.packages.as_deref().ok_or("--packages is missing")?;
    let earlier = arguments.results.as_deref().map(row::read).transpose()?.unwrap_or_default();
    let mut rows = Vec::new();
    for driver in arguments.drivers() {
        rows.extend(rows_of(driver, arguments, packages, &earlier));
        if let (Some(results), Some(page)) = (&arguments.results, &arguments.page) {
            let all = row::merged(earlier.clone(), &rows);
            row::write(results, &all)?;
            row::write_table(page, &all)?;
        }
    }
    println!("\n{}", row::summary(&rows));
    Ok(rows.iter().all(|row| row.outcome != RowOutcome::Wrong))
}

/// Runs the chosen rows of a driver, in one guest as long as it lives.
fn rows_of(
    driver: &'static MatrixDriver,
    arguments: &CardsArguments,
    packages: &Path,
    earlier: &[MatrixRow],
) -> Vec<MatrixRow> {
    let mut machine = None;
    let mut rows: Vec<MatrixRow> = Vec::new();
    for mechanism in arguments.mechanisms() {
        let started = match machine.take() {
            Some(machine) => Ok(machine),
            None => CardGuest::start(driver, packages),
        };
        let mut row = match started {
            Ok(mut running) => {
                let row = running.row(driver, mechanism);
                machine = running.is_usable().then_some(running);
                row
            }
            Err(why) => MatrixRow::wrong(driver, mechanism, why),
        };
        row.compare_with(earlier, &rows);
        println!("{} {}: {}", driver.name, mechanism.name, row.text());
        rows.push(row);
    }
    rows
}
