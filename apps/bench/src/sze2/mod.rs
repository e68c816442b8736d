//! Comparison of DPDK drivers over a capture card: the `szedata2` driver on Ringroad's software card beside DPDK's null
//! driver. Each is measured with the copy between buffer and mbuf and without it, as in the documents that described
//! the driver.
//!
//! ```text
//! null port ─ ringroad fwd ─ card ═ channel ═ szedata2 ─ testpmd      net_null ─ testpmd
//! └──── one thread on the first core ────┘    second core                second core
//! ```
//!
//! The driver's calls are timed inside of testpmd, by a device of the driver's plugin; testpmd is not changed for it.
//! The copy of the same bytes without a driver is measured beside them.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::contestant::CorePair;
use crate::error::BenchError;
use crate::facts::{MachineFacts, StealClock, allowed_cores, allowed_cpus};
use crate::peers::testpmd::Installation;
use crate::stop::StopFlag;

pub mod chart;
mod memcpy;
pub mod plan;
pub mod report;
pub mod turn;

pub use plan::{ForwardMode, QueueLayout, Sze2Plan, Sze2Point};
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
    /// No driver: the copy alone.
    Memcpy,
}

impl Driver {
    /// Drivers in the order of the tables.
    pub const ALL: [Self; 5] = [
        Self::Szedata2 { copy: true },
        Self::Szedata2 { copy: false },
        Self::Null { copy: true },
        Self::Null { copy: false },
        Self::Memcpy,
    ];

    /// Returns the name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Szedata2 { copy: true } => "szedata2",
            Self::Szedata2 { copy: false } => "szedata2, no copy",
            Self::Null { copy: true } => "DPDK null, copying",
            Self::Null { copy: false } => "DPDK null",
            Self::Memcpy => "copy alone",
        }
    }

    /// Whether the driver is measured with this layout. The copy alone knows no queues.
    #[must_use]
    pub fn is_measured_with(self, layout: QueueLayout) -> bool {
        self != Self::Memcpy || layout == QueueLayout::one_thread(1)
    }
}

/// CPUs of the forwarding threads of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Placement {
    /// CPUs in use, one for each thread.
    cpus: Vec<usize>,
    /// Whether one thread does the work of all, because the machine has too few CPUs. The rate of all is then projected
    /// from the processor time for a frame.
    is_projected: bool,
}

/// Chooses CPUs for the threads of `layout` from `cores`, each a list of CPUs.
fn choose_cpus(layout: QueueLayout, cores: &[Vec<usize>], only: usize) -> Placement {
    let threads = usize::from(layout.threads_per_core);
    let cores = cores.iter().filter_map(|core| core.get(..threads)).take(layout.cores.into());
    let cpus = cores.flatten().copied().collect::<Vec<_>>();
    let is_projected = cpus.len() < layout.threads();
    Placement { cpus: if is_projected { vec![only] } else { cpus }, is_projected }
}

/// Comparison that is prepared but not begun.
pub struct Sze2Session {
    plan: Sze2Plan,
    installation: Installation,
    /// Path of `ringroad`, which makes the card.
    program: PathBuf,
    /// Path of `librte_net_szedata2.so`.
    plugin: PathBuf,
    /// CPUs: the card on the first, the only forwarding thread on the second.
    cores: CorePair,
    /// CPUs for forwarding, by core, beginning with the second's.
    forwarding: Vec<Vec<usize>>,
    /// CPUs of the card's core.
    of_card: Vec<usize>,
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
        let mut forwarding = allowed_cores();
        if forwarding.len() < 2 {
            // The threads of the only core are taken for cores.
            forwarding = allowed_cpus().into_iter().map(|cpu| vec![cpu]).collect();
        }
        let firsts: Vec<_> = forwarding.iter().filter_map(|core| core.first().copied()).collect();
        let cores = CorePair::lowest_of(&firsts)?;
        let of_card = forwarding.remove(0);
        Ok(Self {
            cores,
            forwarding,
            of_card,
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
        let mut rows: Vec<_> =
            self.plan.points().into_iter().map(|point| Sze2Row::new(point, &self.plan.drivers)).collect();
        let drivers: usize = rows.iter().map(|row| row.drivers.len()).sum();
        let turns = drivers * self.plan.repeat as usize;
        let (mut done, mut stopped) = (0, false);
        'rounds: for round in 0..self.plan.repeat {
            for Sze2Row { point, drivers, .. } in &mut rows {
                let mut order: Vec<_> = drivers.iter_mut().collect();
                if round % 2 == 1 {
                    order.reverse();
                }
                for driver in order {
                    let placement = self.placement(driver.driver, point.layout);
                    driver.is_projected = placement.is_projected;
                    let outcome = self.measure(driver.driver, point, &placement.cpus);
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

    /// Chooses the CPUs of `driver`: the null driver needs no card, so its core is free, too.
    fn placement(&self, driver: Driver, layout: QueueLayout) -> Placement {
        let mut cores = self.forwarding.clone();
        if matches!(driver, Driver::Null { .. }) {
            cores.push(self.of_card.clone());
        }
        choose_cpus(layout, &cores, self.cores.second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(name: &str, cores: &[Vec<usize>]) -> Option<Vec<usize>> {
        let layout = QueueLayout::PUBLISHED.into_iter().find(|layout| layout.name() == name).unwrap();
        let placement = choose_cpus(layout, cores, 9);
        assert!(!placement.is_projected || placement.cpus == [9]);
        (!placement.is_projected).then_some(placement.cpus)
    }

    #[test]
    fn a_layout_gets_threads_of_as_many_cores_as_it_names_or_is_projected() {
        let cores = [vec![1, 21], vec![2], vec![3, 23]];
        assert_eq!(cpus("1C/1T", &cores), Some(vec![1]));
        assert_eq!(cpus("2C/1T", &cores), Some(vec![1, 2]));
        assert_eq!(cpus("2C/2T", &cores), Some(vec![1, 21, 3, 23]));
        assert_eq!(cpus("4C/1T", &cores), None);
        assert_eq!(cpus("1C/2T", &[vec![1], vec![2]]), None);
    }
}
