//! Text tables with aligned columns.

use std::collections::BTreeMap;

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table};
use ringroad_control::printable::printable;

use super::rates::grouped;

/// Maximum number of characters in a cell. Ringroad's names and reasons are shorter; only untrusted text is longer.
const MAX_CELL_CHARS: usize = 300;

/// Table of `headings`. A column is flush right if its heading begins with `>`.
pub(crate) struct Columns {
    table: Table,
    right: Vec<bool>,
    rows: usize,
}

impl Columns {
    pub(crate) fn new(headings: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let right: Vec<bool> = headings.iter().map(|heading| heading.starts_with('>')).collect();
        let mut columns = Self { table, right, rows: 0 };
        let cells = columns.cells(headings.iter().map(|heading| heading.trim_start_matches('>').to_owned()));
        columns.table.set_header(cells);
        for column in columns.table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        columns
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells = self.cells(cells);
        self.table.add_row(cells);
        self.rows += 1;
    }

    fn cells(&self, cells: impl IntoIterator<Item = String>) -> Vec<Cell> {
        let alignment = |right: bool| if right { CellAlignment::Right } else { CellAlignment::Left };
        let right = self.right.iter().copied().chain(std::iter::repeat(false));
        cells
            .into_iter()
            .zip(right)
            .map(|(text, right)| Cell::new(printable(&text, MAX_CELL_CHARS)).set_alignment(alignment(right)))
            .collect()
    }

    /// Returns the lines, or `otherwise` if there is no row.
    pub(crate) fn lines_or(&self, otherwise: &str) -> String {
        if self.rows == 0 {
            return format!("{otherwise}\n");
        }
        self.table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

/// Formats drops by cause in one cell, the greatest first; empty without drops.
pub(crate) fn drops(by_cause: &BTreeMap<String, u64>) -> String {
    let mut causes: Vec<_> = by_cause.iter().filter(|(_, frames)| **frames > 0).collect();
    causes.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    causes
        .iter()
        .map(|(cause, frames)| format!("{cause} {}", grouped(**frames)))
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_without_trailing_spaces() {
        let mut columns = Columns::new(&["port", ">frames", "mode"]);
        columns.row(["vale0:a".into(), "5".into(), "x".into()]);
        columns.row(["b".into(), "12 345".into(), String::new()]);
        assert_eq!(columns.lines_or("none"), "port     frames  mode\nvale0:a       5  x\nb        12 345\n");
    }

    #[test]
    fn cells_lose_control_characters_and_line_ends() {
        let mut columns = Columns::new(&["port"]);
        columns.row(["\x1b[2Jvale0:a\nforged".into()]);
        assert_eq!(columns.lines_or("none"), "port\n\u{fffd}[2Jvale0:a\u{fffd}forged\n");
    }

    #[test]
    fn a_table_without_rows_shows_the_given_text() {
        assert_eq!(Columns::new(&["port"]).lines_or("no ports"), "no ports\n");
    }

    #[test]
    fn drops_list_greatest_causes_first_and_omit_zeros() {
        let by_cause = BTreeMap::from([
            ("not_bound".to_owned(), 7),
            ("no_space".to_owned(), 1200),
            ("too_long".to_owned(), 0),
        ]);
        assert_eq!(drops(&by_cause), "no_space 1 200, not_bound 7");
        assert_eq!(drops(&BTreeMap::new()), "");
    }
}
