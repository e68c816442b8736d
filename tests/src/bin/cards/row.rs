//! Rows of the matrix: their file, their table, their summary.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::matrix::{AUTO, DRIVERS, MECHANISMS, MatrixDriver, MatrixMechanism};

/// Lines around the table in the page.
const BEGIN: &str = "<!-- the matrix of drivers -->\n";
const END: &str = "<!-- end of the matrix of drivers -->";

/// Judgement of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RowOutcome {
    /// All is as it must be.
    Whole,
    /// The mechanism was refused with a reason.
    Refused,
    /// Something is not as it must be.
    Wrong,
}

/// A driver with a mechanism, and what was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MatrixRow {
    pub(crate) driver: String,
    pub(crate) mechanism: String,
    /// Release of the guest's kernel; empty if there was no guest.
    pub(crate) kernel: String,
    pub(crate) outcome: RowOutcome,
    /// The reason of the refusal, or what is wrong.
    pub(crate) reasons: Vec<String>,
    /// Findings that are right, and that users should know.
    pub(crate) remarks: Vec<String>,
    /// Day of the run, `2026-11-28`; empty in the guest.
    pub(crate) date: String,
}

impl MatrixRow {
    /// A row whose interface could not be judged.
    pub(crate) fn wrong(driver: &MatrixDriver, mechanism: &MatrixMechanism, why: String) -> Self {
        Self {
            driver: driver.name.to_owned(),
            mechanism: mechanism.name.to_owned(),
            kernel: String::new(),
            outcome: RowOutcome::Wrong,
            reasons: vec![why],
            remarks: Vec::new(),
            date: today(),
        }
    }

    /// Result as text, in one line.
    pub(crate) fn text(&self) -> String {
        let outcome = match self.outcome {
            RowOutcome::Whole => "whole",
            RowOutcome::Refused => "refused",
            RowOutcome::Wrong => "WRONG",
        };
        let reasons =
            if self.reasons.is_empty() { String::new() } else { format!(": {}", self.reasons.join("; ")) };
        let remarks: String = self.remarks.iter().map(|remark| format!("; {remark}")).collect();
        format!("{outcome}{reasons}{remarks}").replace('\n', " ")
    }

    /// Makes the row wrong if it contradicts an earlier run, or the other rows of this driver in this run.
    pub(crate) fn compare_with(&mut self, earlier: &[Self], of_driver: &[Self]) {
        let before = earlier.iter().find(|row| row.is_of(self));
        if let Some(before) = before.filter(|before| before.outcome == RowOutcome::Whole)
            && self.outcome == RowOutcome::Refused
        {
            self.outcome = RowOutcome::Wrong;
            self.reasons.push(format!("it was whole on {}", before.date));
        }
        // A port of the bare name must take the best mechanism that works, and none that does not work whole.
        let best = of_driver.iter().find(|row| row.outcome != RowOutcome::Refused);
        if let Some(best) = best.filter(|_| self.mechanism == AUTO && self.outcome == RowOutcome::Whole) {
            let mode = MECHANISMS.iter().find(|one| one.name == best.mechanism).map_or("", |one| one.mode);
            if best.outcome == RowOutcome::Whole
                && !self.remarks.iter().any(|remark| remark.starts_with(mode))
            {
                self.outcome = RowOutcome::Wrong;
                self.reasons.push(format!("the best mechanism that works is {}", best.mechanism));
            }
        }
    }

    fn is_of(&self, other: &Self) -> bool {
        (&self.driver, &self.mechanism) == (&other.driver, &other.mechanism)
    }

    /// Position in the table; `None` if the matrix no longer has such a row.
    fn position(&self) -> Option<(usize, usize)> {
        let driver = DRIVERS.iter().position(|driver| driver.name == self.driver)?;
        Some((driver, MECHANISMS.iter().position(|mechanism| mechanism.name == self.mechanism)?))
    }
}

/// The present day, in universal time.
pub(crate) fn today() -> String {
    let printed = std::process::Command::new("date").args(["-u", "+%F"]).output().unwrap().stdout;
    String::from_utf8(printed).unwrap().trim().to_owned()
}

/// Reads the rows of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<MatrixRow>, String> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// The rows of earlier runs, replaced and completed by those of this run, in the order of the table.
pub(crate) fn merged(earlier: Vec<MatrixRow>, new: &[MatrixRow]) -> Vec<MatrixRow> {
    let is_kept = |row: &MatrixRow| row.position().is_some() && !new.iter().any(|other| other.is_of(row));
    let mut all: Vec<MatrixRow> = earlier.into_iter().filter(is_kept).collect();
    all.extend_from_slice(new);
    all.sort_by_key(MatrixRow::position);
    all
}

/// Writes rows into a file.
pub(crate) fn write(path: &Path, rows: &[MatrixRow]) -> Result<(), String> {
    let text = serde_json::to_string_pretty(rows).map_err(|error| error.to_string())? + "\n";
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The table of the page, in Markdown.
fn table(rows: &[MatrixRow]) -> String {
    let mut table = "| driver | kernel | mechanism | result | date |\n|---|---|---|---|---|\n".to_owned();
    for row in rows {
        let MatrixRow { driver, kernel, mechanism, date, .. } = row;
        let result = row.text().replace('|', "\\|");
        table += &format!("| {driver} | {kernel} | {mechanism} | {result} | {date} |\n");
    }
    table
}

/// The page with the table between its two lines; `None` if the lines are missing.
fn with_table(page: &str, rows: &[MatrixRow]) -> Option<String> {
    let begin = page.find(BEGIN)? + BEGIN.len();
    let end = begin + page.get(begin..)?.find(END)?;
    Some(format!("{}{}{}", &page[..begin], table(rows), &page[end..]))
}

/// Writes the table into the page.
pub(crate) fn write_table(page: &Path, rows: &[MatrixRow]) -> Result<(), String> {
    let failed = |what: &str, error: std::io::Error| format!("cannot {what} {}: {error}", page.display());
    let text = std::fs::read_to_string(page).map_err(|error| failed("read", error))?;
    let written = with_table(&text, rows)
        .ok_or_else(|| format!("{} has no line {}", page.display(), BEGIN.trim_end()))?;
    std::fs::write(page, written).map_err(|error| failed("write", error))
}

/// The rows of a run as text.
pub(crate) fn summary(rows: &[MatrixRow]) -> String {
    let width = |text: fn(&MatrixRow) -> &str| rows.iter().map(|row| text(row).len()).max().unwrap_or(0);
    let (drivers, mechanisms) = (width(|row| &row.driver), width(|row| &row.mechanism));
    let line =
        |row: &MatrixRow| format!("{:drivers$}  {:mechanisms$}  {}\n", row.driver, row.mechanism, row.text());
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(driver: &str, mechanism: &str, outcome: RowOutcome) -> MatrixRow {
        MatrixRow {
            driver: driver.to_owned(),
            mechanism: mechanism.to_owned(),
            kernel: "7.2".to_owned(),
            outcome,
            reasons: Vec::new(),
            remarks: Vec::new(),
            date: "2026-11-28".to_owned(),
        }
    }

    #[test]
    fn the_page_has_the_table_of_the_results() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let page = std::fs::read_to_string(docs.join("interfaces.md")).unwrap();
        let rows = read(&docs.join("cards.json")).unwrap();
        assert!(rows.iter().all(|row| row.position().is_some()), "a row is not in the matrix");
        assert_eq!(with_table(&page, &rows).as_deref(), Some(page.as_str()), "`make cards` writes the table");
    }

    #[test]
    fn new_rows_replace_earlier_ones_and_stand_in_the_order_of_the_matrix() {
        let earlier = vec![
            row("veth", "auto", RowOutcome::Whole),
            row("igb", "native", RowOutcome::Wrong),
            row("gone", "native", RowOutcome::Whole),
        ];
        let new = [row("igb", "native", RowOutcome::Whole), row("igb", "zero-copy", RowOutcome::Refused)];
        let all = merged(earlier, &new);
        let names: Vec<_> =
            all.iter().map(|row| (row.driver.as_str(), row.mechanism.as_str(), row.outcome)).collect();
        assert_eq!(
            names,
            [
                ("igb", "zero-copy", RowOutcome::Refused),
                ("igb", "native", RowOutcome::Whole),
                ("veth", "auto", RowOutcome::Whole)
            ]
        );
    }

    #[test]
    fn a_row_that_was_whole_may_not_be_refused_and_auto_takes_the_best_that_works() {
        let mut refused = row("igb", "zero-copy", RowOutcome::Refused);
        refused.compare_with(&[row("igb", "zero-copy", RowOutcome::Whole)], &[]);
        assert_eq!(
            (refused.outcome, refused.reasons.as_slice()),
            (RowOutcome::Wrong, &["it was whole on 2026-11-28".to_owned()][..])
        );
        let of_driver =
            [row("igb", "zero-copy", RowOutcome::Refused), row("igb", "native", RowOutcome::Whole)];
        for (mode, outcome) in
            [("AF_XDP copy, native", RowOutcome::Whole), ("AF_PACKET, TPACKET_V2", RowOutcome::Wrong)]
        {
            let mut auto =
                MatrixRow { remarks: vec![mode.to_owned()], ..row("igb", AUTO, RowOutcome::Whole) };
            auto.compare_with(&[], &of_driver);
            assert_eq!(auto.outcome, outcome, "{mode}");
        }
    }

    #[test]
    fn a_table_stands_between_its_lines() {
        let page = format!("before\n{BEGIN}old\n{END}\nafter\n");
        let wrong =
            MatrixRow { reasons: vec!["a | b".to_owned()], ..row("igb", "native", RowOutcome::Wrong) };
        let written = with_table(&page, &[wrong]).unwrap();
        assert!(
            written.contains("| igb | 7.2 | native | WRONG: a \\| b | 2026-11-28 |\n<!-- end"),
            "{written}"
        );
        assert!(written.starts_with("before\n") && written.ends_with("-->\nafter\n"), "{written}");
        assert_eq!(with_table("nothing", &[]), None);
    }
}
