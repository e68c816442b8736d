//! Comparison of DPDK drivers over a capture card: the `szedata2` driver on Ringroad's software card beside DPDK's null
//! driver. Each is measured with the copy between buffer and mbuf and without it, as in the documents that described
//! the driver.
//!
//! ```text
//! null port ═ card ═ channel ═ szedata2 ─ testpmd            net_null ─ testpmd
//! └── one thread of ours on the first core ──┘ second core               second core
//! ```

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::contestant::CorePair;
use crate::error::BenchError;
use crate::facts::{MachineFacts, StealClock, allowed_cpus};
use crate::peers::testpmd::Installation;
use crate::stop::StopFlag;

pub mod chart;
pub mod plan;
pub mod report;
pub mod turn;

pub use plan::{ForwardMode, Sze2Plan, Sze2Point};
pub use report::{Sze2Report, Sze2Row};

/// A selectable driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "driver", rename_all = "snake_case")]
pub enum Driver {
    /// Driver of Ringroad's card.
    Szedata2 {
        /// Whether frames are copied between buffer and mbuf.
        copy: bool,
    },
    /// Driver of DPDK without a device: the cost of the framework.
    Null {
        /// Whether the driver copies frames.
        copy: bool,
    },
}

impl Driver {
    /// Drivers in the order of the tables.
    pub const ALL: [Self; 4] = [
        Self::Szedata2 { copy: true },
        Self::Szedata2 { copy: false },
        Self::Null { copy: true },
        Self::Null { copy: false },
    ];

    /// Returns the name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Szedata2 { copy: true } => "szedata2",
            Self::Szedata2 { copy: false } => "szedata2, no copy",
            Self::Null { copy: true } => "DPDK null, copying",
            Self::Null { copy: false } => "DPDK null",
        }
    }
}

/// Comparison that is prepared but not begun.
pub struct Sze2Session {
    plan: Sze2Plan,
    installation: Installation,
    /// Path of `ringroad`, which makes the card.
    program: PathBuf,
    /// Path of `librte_net_szedata2.so`.
    plugin: PathBuf,
    /// Cores: the card on the first, testpmd on the second.
    cores: CorePair,
    stop: StopFlag,
}

impl Sze2Session {
    /// Finds testpmd. `program` is the path of `ringroad`, `plugin` that of the driver.
    ///
    /// # Errors
    /// [`BenchError`]: fewer than two processors, or no testpmd.
    pub fn prepare(
        plan: Sze2Plan,
        program: &Path,
        plugin: &Path,
        stop: &StopFlag,
    ) -> Result<Self, BenchError> {
        Ok(Self {
            cores: CorePair::lowest_of(&allowed_cpus())?,
            installation: Installation::find()?,
            program: program.to_owned(),
            plugin: plugin.to_owned(),
            plan,
            stop: stop.clone(),
        })
    }

    /// Measures all points, or until the stop flag is raised. `progress` gets a line for each turn.
    #[must_use]
    pub fn run(self, progress: &mut dyn FnMut(&str)) -> Sze2Report {
        let (machine, steal) = (MachineFacts::gather(), StealClock::start());
        let mut rows: Vec<_> = self.plan.points().into_iter().map(Sze2Row::new).collect();
        let turns = rows.len() * Driver::ALL.len() * self.plan.repeat as usize;
        let (mut done, mut stopped) = (0, false);
        'rounds: for round in 0..self.plan.repeat {
            for Sze2Row { point, drivers, .. } in &mut rows {
                let mut order: Vec<_> = drivers.iter_mut().collect();
                if round % 2 == 1 {
                    order.reverse();
                }
                for driver in order {
                    let outcome = self.measure(driver.driver, point);
                    if matches!(outcome, Err(BenchError::Stopped)) {
                        stopped = true;
                        break 'rounds;
                    }
                    done += 1;
                    let told = driver.add(outcome);
                    let name = driver.name;
                    progress(&format!("{done} of {turns}: {}: {name}: {told}", report::name_of(point)));
                }
            }
        }
        Sze2Report::new(self.plan, machine, steal.percent(), self.cores, stopped, rows)
    }
}
