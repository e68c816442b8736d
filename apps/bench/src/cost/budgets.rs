//! Goals and guards: the desired cost of a path, and the highest cost that is accepted today.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::CostError;

/// Relative tolerance. A count further above its guard fails the check; a count further below asks for a lower guard.
pub const TOLERANCE: f64 = 0.05;

/// Comment at the beginning of the file.
const HEAD: &str = "\
# Instructions per frame, by path, which `make cost` compares with its counts; docs/performance.md defines the paths.
# goal: the future cost of the path. guard: the cost when the guard was set; 5 % more fails.
# `make cost COST_ARGS='--accept PATH'` sets the guard of a path to its current cost.
";

/// Cost limits of a path, instructions per frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostBudget {
    /// Desired cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<f64>,
    /// The cost when the guard was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<f64>,
}

/// Result of comparing a count with its guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetVerdict {
    /// Within the tolerance of the guard.
    Kept,
    /// Below the guard by more than the tolerance: the guard should be lowered.
    Improved,
    /// Above the guard by more than the tolerance.
    Exceeded,
    /// Without a guard.
    Unguarded,
}

impl CostBudget {
    /// Compares a count with the guard.
    #[must_use]
    pub fn evaluate(&self, count: f64) -> BudgetVerdict {
        match self.guard {
            None => BudgetVerdict::Unguarded,
            Some(guard) if count > guard * (1.0 + TOLERANCE) => BudgetVerdict::Exceeded,
            Some(guard) if count < guard * (1.0 - TOLERANCE) => BudgetVerdict::Improved,
            Some(_) => BudgetVerdict::Kept,
        }
    }
}

/// Budgets of all paths, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budgets(pub BTreeMap<String, CostBudget>);

impl Budgets {
    /// Reads the file of budgets.
    ///
    /// # Errors
    /// [`CostError`] if it cannot be read.
    pub fn read(path: &Path) -> Result<Self, CostError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| CostError::File { path: path.to_owned(), source })?;
        let wrong =
            |error: toml::de::Error| CostError::Budgets { path: path.to_owned(), what: error.to_string() };
        toml::from_str(&text).map(Self).map_err(wrong)
    }

    /// Replaces the file of budgets.
    ///
    /// # Errors
    /// [`CostError`] if it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), CostError> {
        let wrong =
            |error: toml::ser::Error| CostError::Budgets { path: path.to_owned(), what: error.to_string() };
        let text = format!("{HEAD}\n{}", toml::to_string(&self.0).map_err(wrong)?);
        std::fs::write(path, text).map_err(|source| CostError::File { path: path.to_owned(), source })
    }

    /// Returns the budget of a path; empty for a new path.
    #[must_use]
    pub fn of(&self, path: &str) -> CostBudget {
        self.0.get(path).copied().unwrap_or_default()
    }

    /// Sets the guard of a path to `count`, rounded to a tenth of an instruction.
    pub fn accept(&mut self, path: &str, count: f64) {
        self.0.entry(path.into()).or_default().guard = Some((count * 10.0).round() / 10.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_judged_at_5_percent_to_either_side() {
        let budget = CostBudget { goal: Some(1.0), guard: Some(100.0) };
        let judged = [94.9, 95.1, 100.0, 104.9, 105.1].map(|count| budget.evaluate(count));
        assert_eq!(
            judged,
            [
                BudgetVerdict::Improved,
                BudgetVerdict::Kept,
                BudgetVerdict::Kept,
                BudgetVerdict::Kept,
                BudgetVerdict::Exceeded
            ]
        );
        assert_eq!(CostBudget::default().evaluate(1.0), BudgetVerdict::Unguarded);
    }

    #[test]
    fn the_file_is_read_as_it_was_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut budgets = Budgets::default();
        budgets.0.insert("null-copy".into(), CostBudget { goal: Some(170.0), guard: None });
        budgets.accept("null-copy", 400.04);
        budgets.accept("wire", 10.0);
        budgets.write(file.path()).unwrap();
        assert_eq!(Budgets::read(file.path()).unwrap(), budgets);
        assert_eq!(budgets.of("null-copy"), CostBudget { goal: Some(170.0), guard: Some(400.0) });
        assert_eq!(budgets.of("unheard-of"), CostBudget::default());
    }

    #[test]
    fn a_word_too_many_in_the_file_is_an_error_that_names_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[wire]\ngaurd = 3\n").unwrap();
        let error = Budgets::read(file.path()).unwrap_err().to_string();
        assert!(error.contains("gaurd"), "{error}");
    }
}
