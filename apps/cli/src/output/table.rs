//! Text tables with aligned columns.

use std::collections::BTreeMap;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use ringroad_control::printable::printable;

use super::rates::grouped;

/// Maximum number of characters in a cell. Ringroad's names and reasons are shorter; only untrusted text is longer.
const MAX_CELL_CHARS: usize = 300;

/// A column of a table: its heading, and the cell that it makes of a row's value.
pub(crate) type Column<T> = (&'static str, fn(&T) -> String);

/// Makes a table with a line for each of `values`, or returns `otherwise` if there are none.
pub(crate) fn table<T>(
    values: impl IntoIterator<Item = T>,
    columns: &[Column<T>],
    otherwise: &str,
) -> String {
    let headings: Vec<_> = columns.iter().map(|(heading, _)| *heading).collect();
    let row = |value| columns.iter().map(|(_, cell)| cell(&value)).collect::<Vec<_>>();
    lines(&headings, values.into_iter().map(row), otherwise)
}

/// Makes a table of `rows`, or returns `otherwise` if there are none. A column is flush right if its heading begins with
/// `>`.
pub(crate) fn lines<R: IntoIterator<Item = String>>(
    headings: &[&str],
    rows: impl IntoIterator<Item = R>,
    otherwise: &str,
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.iter().map(|heading| heading.trim_start_matches('>')));
    for row in rows {
        table.add_row(row.into_iter().map(|cell| printable(&cell, MAX_CELL_CHARS)));
    }
    if table.is_empty() {
        return format!("{otherwise}\n");
    }
    for (column, heading) in table.column_iter_mut().zip(headings) {
        column.set_padding((0, 2));
        if heading.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
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
        let columns: [Column<(&str, u64, &str)>; 3] = [
            ("port", |row| row.0.to_owned()),
            (">in", |row| grouped(row.1)),
            ("mode", |row| row.2.to_owned()),
        ];
        assert_eq!(
            table([("vale0:a", 5, "x"), ("b", 12_345, "")], &columns, "none"),
            "port         in  mode\nvale0:a       5  x\nb        12 345\n"
        );
    }

    #[test]
    fn cells_lose_control_characters_and_line_ends() {
        let text = lines(&["port"], [["\x1b[2Jvale0:a\nforged".into()]], "none");
        assert_eq!(text, "port\n\u{fffd}[2Jvale0:a\u{fffd}forged\n");
    }

    #[test]
    fn a_table_without_rows_shows_the_given_text() {
        assert_eq!(table([(); 0], &[("port", |()| String::new())], "no ports"), "no ports\n");
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
