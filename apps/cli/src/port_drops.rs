//! The drops that the daemon counted while a command ran.

use std::collections::BTreeMap;

use crate::arguments::Global;

/// Frames by cause.
pub(crate) type Causes = BTreeMap<String, u64>;

/// The drops of one port before a run.
#[derive(Debug)]
pub(crate) struct PortDrops<'run> {
    global: &'run Global,
    port: String,
    before: Causes,
}

impl<'run> PortDrops<'run> {
    /// Begins to watch the port of this name, which is open; `None` if the program itself has it.
    pub(crate) fn start(global: &'run Global, port: &str) -> Option<Self> {
        let before = drops(global, port)?;
        Some(Self { global, port: port.to_owned(), before })
    }

    /// Drops since the start; the port must still be open. `None` if the daemon is gone.
    pub(crate) fn end(self) -> Option<Causes> {
        Some(growth(&self.before, &drops(self.global, &self.port)?))
    }
}

fn drops(global: &Global, name: &str) -> Option<Causes> {
    let ports = global.connect().ok()?.list().ok()?.ports;
    Some(ports.into_iter().find(|port| port.name == name)?.counters.drops)
}

/// Drops since `before`. A port that was opened anew counts from 0.
pub(crate) fn growth(before: &Causes, after: &Causes) -> Causes {
    let anew = after.iter().any(|(cause, frames)| before.get(cause).is_some_and(|before| frames < before));
    if anew { less(after, &Causes::new()) } else { less(after, before) }
}

/// `from` without `taken`, and without zeros.
pub(crate) fn less(from: &Causes, taken: &Causes) -> Causes {
    let left = from.iter().map(|(cause, frames)| {
        (cause.clone(), frames.saturating_sub(taken.get(cause).copied().unwrap_or(0)))
    });
    left.filter(|(_, frames)| *frames > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_was_opened_anew_counts_from_zero() {
        let causes = |frames| Causes::from([("no_space".to_owned(), frames)]);
        assert_eq!(growth(&causes(9), &causes(3)), causes(3));
        assert_eq!(growth(&causes(3), &causes(9)), causes(6));
        assert_eq!(growth(&causes(3), &causes(3)), Causes::new());
    }
}
