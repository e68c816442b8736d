//! A row of the matrix, judged in the guest.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bed::{Bed, USUAL_LONGEST, USUAL_MTU};
use crate::events::EVENTS;
use crate::frames::{PassageError, SHORTEST};
use crate::matrix::{AUTO, MatrixDriver, MatrixMechanism};
use crate::row::{MatrixRow, RowOutcome};

/// Word in front of a row, by which the program outside knows it.
pub(crate) const MARK: &str = "@row ";

/// Judges a row and prints it, with the steps before it.
pub(crate) fn run(driver: &'static MatrixDriver, mechanism: &'static MatrixMechanism) {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut judgement = Judgement::default();
    let caught = catch_unwind(AssertUnwindSafe(|| judgement.judge(driver, mechanism)));
    let failed = caught.unwrap_or_else(|panic| Err(text_of(panic.as_ref())));
    judgement.wrong.extend(failed.err());
    let Judgement { refused, wrong, remarks } = judgement;
    let (outcome, reasons) = match refused {
        _ if !wrong.is_empty() => (RowOutcome::Wrong, wrong),
        Some(reason) => (RowOutcome::Refused, vec![reason]),
        None => (RowOutcome::Whole, Vec::new()),
    };
    let row = MatrixRow {
        driver: driver.name.to_owned(),
        mechanism: mechanism.name.to_owned(),
        kernel,
        outcome,
        reasons,
        remarks,
        date: String::new(),
    };
    println!("{MARK}{}", serde_json::to_string(&row).unwrap());
}

/// What is known of a row.
#[derive(Debug, Default)]
struct Judgement {
    refused: Option<String>,
    wrong: Vec<String>,
    remarks: Vec<String>,
}

impl Judgement {
    /// Goes through all steps. An error ends the row.
    fn judge(
        &mut self,
        driver: &'static MatrixDriver,
        mechanism: &'static MatrixMechanism,
    ) -> Result<(), String> {
        let mut bed = Bed::new(driver, mechanism)?;
        let before = bed.interface_settings()?;
        let mode = match bed.attach("") {
            Ok(mode) => mode,
            Err(reason) => {
                self.refused = Some(reason);
                return self.compare_settings(&bed, &before);
            }
        };
        println!("attached: {mode}");
        if mechanism.name == AUTO {
            self.remarks.push(mode.split(" (").next().unwrap_or(&mode).to_owned());
        } else if !mode.starts_with(mechanism.mode) {
            return Err(format!("the mode is {mode}"));
        }
        bed.await_passage(USUAL_LONGEST)?;
        let lengths: Vec<usize> = (SHORTEST..=USUAL_LONGEST).step_by(97).chain([USUAL_LONGEST]).collect();
        let remarks = bed.carry(&lengths, 400).map_err(|error| error.to_string())?;
        self.remarks.extend(remarks);
        println!("all frames are whole");
        if bed.has_cards() && mechanism.port.starts_with("xdp:") {
            bed.forward_uncopied()?;
            println!("the switch copies no frame between two cards");
        }
        if mechanism.name != AUTO {
            self.go_through_events(&mut bed)?;
            self.try_long_frames(&mut bed)?;
        }
        bed.detach()?;
        self.compare_settings(&bed, &before)
    }

    fn go_through_events(&mut self, bed: &mut Bed) -> Result<(), String> {
        for (name, event) in EVENTS {
            let caught = catch_unwind(AssertUnwindSafe(|| event(bed)));
            let finding = caught.unwrap_or_else(|panic| Err(text_of(panic.as_ref())));
            println!("{name}: {finding:?}");
            match finding {
                Ok(remark) => self.remarks.extend(remark),
                Err(why) => {
                    self.wrong.push(format!("{name}: {why}"));
                    bed.renew().map_err(|error| format!("{name}, then attaching anew: {error}"))?;
                }
            }
        }
        Ok(())
    }

    /// Raises the MTU. A mechanism can refuse the interface then, or lose long frames if it says so.
    fn try_long_frames(&mut self, bed: &mut Bed) -> Result<(), String> {
        for mtu in [3000, 9000] {
            bed.detach()?;
            if let Err(reason) = bed.set_mtu(mtu) {
                // The driver has a limit.
                println!("MTU {mtu}: {reason}");
                bed.set_mtu(USUAL_MTU)?;
                bed.attach("")?;
                return Ok(());
            }
            match bed.attach("") {
                Err(reason) => self.remarks.push(format!("MTU {mtu} refused: {reason}")),
                Ok(_) => {
                    bed.await_passage(USUAL_LONGEST).map_err(|error| format!("MTU {mtu}: {error}"))?;
                    let longest = mtu as usize + 14;
                    match bed.carry(&[SHORTEST, USUAL_LONGEST, 2048, longest.min(4096), longest], 100) {
                        Ok(_) => {}
                        Err(PassageError::Lost(lost)) => match bed.loss_notice()? {
                            Some(notice) => self.remarks.push(format!("MTU {mtu}: {notice}")),
                            None => self.wrong.push(format!("MTU {mtu}: {lost}, and nothing tells why")),
                        },
                        Err(PassageError::Other(why)) => self.wrong.push(format!("MTU {mtu}: {why}")),
                    }
                    bed.detach()?;
                }
            }
            println!("MTU {mtu} was tried");
            bed.set_mtu(USUAL_MTU)?;
            bed.attach("")?;
        }
        bed.await_passage(USUAL_LONGEST)
    }

    fn compare_settings(&mut self, bed: &Bed, before: &[String]) -> Result<(), String> {
        let after = bed.interface_settings()?;
        for (before, after) in before.iter().zip(&after).filter(|(before, after)| before != after) {
            let change = format!("\"{before}\" became \"{after}\"");
            // Kernel and drivers switch these off for an XDP program, and not on again (generic_xdp_install of
            // net/core/dev.c, vmxnet3_xdp_set).
            match ["large-receive-offload", "rx-gro-hw"].iter().any(|name| before.starts_with(name)) {
                true => self.remarks.push(format!("the kernel leaves it so: {change}")),
                false => self.wrong.push(change),
            }
        }
        Ok(())
    }
}

/// Text of a panic.
fn text_of(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a step panicked").to_owned()
}
