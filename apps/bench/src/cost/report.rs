//! Report of the counts, for users and for programs.

use std::collections::BTreeMap;
use std::fmt::Write;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use super::budgets::{BudgetVerdict, CostBudget, TOLERANCE};
use super::callgrind::CallgrindCounts;

/// Number of parts that the table names; the rest is one more.
const NAMED_PARTS: usize = 5;

/// Row of the table: a path and its count.
#[derive(Clone, Debug, Serialize)]
pub struct CostRow {
    /// Name of the path in the file of budgets.
    pub path: &'static str,
    /// Description of the path.
    pub about: &'static str,
    /// Instructions per frame, or per call if so defined for the path.
    pub instructions: f64,
    #[serde(flatten)]
    pub budget: CostBudget,
    /// Result of the comparison with the guard.
    pub verdict: BudgetVerdict,
    /// Number of instructions by part.
    pub parts: BTreeMap<String, f64>,
}

/// A path that was not counted.
#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    pub path: &'static str,
    /// Missing requirement.
    pub why: &'static str,
}

/// Counts of all paths.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CostReport {
    pub paths: Vec<CostRow>,
    pub skipped: Vec<Skipped>,
}

impl CostRow {
    /// Makes the row of a path with `counts`, compared with `budget`.
    #[must_use]
    pub fn new(path: &'static str, about: &'static str, counts: CallgrindCounts, budget: CostBudget) -> Self {
        let instructions = counts.total();
        let verdict = budget.evaluate(instructions);
        Self { path, about, instructions, budget, verdict, parts: counts.parts }
    }

    /// Formats the greatest parts, in percent.
    fn shares(&self) -> String {
        let mut parts: Vec<(&str, f64)> = self
            .parts
            .iter()
            .map(|(part, count)| (part.as_str(), 100.0 * count / self.instructions))
            .collect();
        parts.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let rest: f64 = parts.iter().skip(NAMED_PARTS).map(|(_, share)| share).sum();
        let named = parts.into_iter().take(NAMED_PARTS).chain([("others", rest)]);
        let shown = named.filter(|(_, share)| *share >= 0.5);
        shown.map(|(part, share)| format!("{part} {share:.0} %")).collect::<Vec<_>>().join(", ")
    }
}

impl CostReport {
    /// Whether every counted path has a guard, and is within it.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.paths.iter().all(|row| matches!(row.verdict, BudgetVerdict::Kept | BudgetVerdict::Improved))
    }

    /// Formats the table, and below it the actions to take.
    #[must_use]
    pub fn to_table(&self) -> String {
        let mut table = Table::new();
        table.load_style(ASCII_MARKDOWN);
        table.set_header(["path", "instructions per frame", "guard", "goal", "share of the parts"]);
        let number = |count: Option<f64>| count.map_or_else(|| "-".into(), |count| format!("{count:.1}"));
        for row in &self.paths {
            let CostBudget { goal, guard } = row.budget;
            let counts = [Some(row.instructions), guard, goal].map(number);
            table.add_row([row.path.to_owned()].into_iter().chain(counts).chain([row.shares()]));
        }
        for column in table.column_iter_mut().skip(1).take(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = format!("{table}\n");
        for Skipped { path, why } in &self.skipped {
            let _ = writeln!(text, "{path}: skipped: {why}");
        }
        let percent = 100.0 * TOLERANCE;
        for row in &self.paths {
            let (path, count, guard) = (row.path, row.instructions, row.budget.guard.unwrap_or_default());
            let _ = match row.verdict {
                BudgetVerdict::Kept => Ok(()),
                BudgetVerdict::Exceeded => writeln!(
                    text,
                    "{path}: {count:.1} instructions are more than {percent} % above the guard of {guard:.1}"
                ),
                BudgetVerdict::Improved => writeln!(
                    text,
                    "{path}: {count:.1} instructions are more than {percent} % below the guard of {guard:.1}: lower it \
                     with make cost COST_ARGS='--accept {path}'"
                ),
                BudgetVerdict::Unguarded => {
                    writeln!(text, "{path}: no guard yet: set it with make cost COST_ARGS='--accept {path}'")
                }
            };
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(count: f64, guard: Option<f64>) -> CostRow {
        let parts = BTreeMap::from([("ring".to_owned(), count * 0.75), ("std".to_owned(), count * 0.25)]);
        CostRow::new("null-copy", "a path", CallgrindCounts { parts }, CostBudget { goal: Some(50.0), guard })
    }

    #[test]
    fn a_path_above_its_guard_is_named() {
        let report = CostReport { paths: vec![row(106.0, Some(100.0))], skipped: Vec::new() };
        assert!(!report.is_kept());
        let table = report.to_table();
        assert!(table.contains("ring 75 %, std 25 %"), "{table}");
        assert!(
            table.contains("null-copy: 106.0 instructions are more than 5 % above the guard of 100.0"),
            "{table}"
        );
    }

    #[test]
    fn an_improvement_requests_a_lower_guard_and_is_not_a_failure() {
        let report = CostReport { paths: vec![row(90.0, Some(100.0))], skipped: Vec::new() };
        assert!(report.is_kept());
        let table = report.to_table();
        assert!(table.contains("lower it with make cost COST_ARGS='--accept null-copy'"), "{table}");
    }

    #[test]
    fn a_path_without_a_guard_is_a_failure_with_advice_to_set_one() {
        let report = CostReport { paths: vec![row(90.0, None)], skipped: Vec::new() };
        assert!(!report.is_kept());
        let table = report.to_table();
        assert!(table.contains("null-copy: no guard yet: set it with make cost"), "{table}");
    }
}
