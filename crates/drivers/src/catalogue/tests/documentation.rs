//! The tables of `docs/port-names.md` that follow from the catalogue.

use std::fmt::Write as _;
use std::path::Path;

use crate::catalogue::kinds;
use crate::catalogue::port_kind::PortKind;
use crate::catalogue::port_name::COMMON_OPTIONS;
use crate::catalogue::port_option::PortOption;
use crate::catalogue::switch_port::SWITCH_PORT_OPTIONS;

/// Variable that makes the test write the tables into the page, as `make docs` does.
const WRITE: &str = "RINGROAD_WRITE_DOCS";

/// A line for each kind of port, in Markdown.
fn table_of_kinds() -> String {
    let mut table = "| name | port |\n|---|---|\n".to_owned();
    for kind in kinds() {
        let page = kind.page.map(|page| format!(": [{page}]({page})")).unwrap_or_default();
        let _ = writeln!(table, "| `{}` | {}{page} |", kind.form, kind.about);
    }
    table
}

/// A line for each option that every port has, in Markdown.
fn table_of_common_options() -> String {
    let mut table = "| option | meaning | default |\n|---|---|---|\n".to_owned();
    for option in COMMON_OPTIONS {
        let _ = writeln!(table, "| `{}=` | {} | {} |", option.key, option.help, option.default);
    }
    table
}

/// A line for each option that ports of switches have beside the common ones, in Markdown.
fn table_of_switch_port_options() -> String {
    let mut table = "| option | meaning | values | default |\n|---|---|---|---|\n".to_owned();
    for PortOption { key, help, value, default, .. } in SWITCH_PORT_OPTIONS {
        let _ = writeln!(table, "| `{key}=` | {help} | {value} | {default} |");
    }
    table
}

/// A line for each device option, with the kinds that have it, in Markdown.
fn table_of_device_options() -> String {
    let mut options: Vec<(&PortOption, Vec<&PortKind>)> = Vec::new();
    for kind in kinds() {
        for &option in kind.options {
            let is_same = |other: &PortOption| {
                (other.key, other.help, other.default) == (option.key, option.help, option.default)
            };
            match options.iter_mut().find(|(other, _)| is_same(other)) {
                Some((_, kinds)) => kinds.push(kind),
                None => options.push((option, vec![kind])),
            }
        }
    }
    let mut table = "| option | of | meaning | values | default |\n|---|---|---|---|---|\n".to_owned();
    for (option, kinds) in options {
        let forms: Vec<_> = kinds.iter().map(|kind| format!("`{}`", kind.form)).collect();
        let administrators = if option.for_administrators { "; administrators only" } else { "" };
        let PortOption { key, help, value, default, .. } = option;
        let forms = forms.join(", ");
        let _ = writeln!(table, "| `{key}=` | {forms} | {help}{administrators} | {value} | {default} |");
    }
    table
}

#[test]
fn the_page_on_port_names_has_the_tables_of_the_catalogue() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/port-names.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut expected = page.clone();
    for (name, table) in [
        ("kinds", table_of_kinds()),
        ("common options", table_of_common_options()),
        ("options of ports of switches", table_of_switch_port_options()),
        ("device options", table_of_device_options()),
    ] {
        let (begin, end) =
            (format!("<!-- {name} of the catalogue -->\n"), format!("<!-- end of the {name} -->"));
        let (before, rest) = expected.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
        let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end}"));
        expected = format!("{before}{begin}{table}{end}{after}");
    }
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(page == expected, "docs/port-names.md differs from the catalogue: run `make docs`");
}
