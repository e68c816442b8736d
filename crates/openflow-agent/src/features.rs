//! Features of tables: every table has all of them.

use ringroad_flow_tables::tables::TABLES;
use ringroad_openflow::message::{PropertyEntries, TableFeatures, TableProperty};
use ringroad_openflow::oxm::{OxmField, OxmId};
use ringroad_openflow::{Action, Text};

/// Numbers of all instructions but the one that leads to another table.
const INSTRUCTIONS: [u16; 5] = [2, 3, 4, 5, 6];
const GOTO_TABLE: u16 = 1;

/// Bit mask of the kinds of actions that buckets can have.
pub(crate) fn action_bits() -> u32 {
    Action::KINDS.iter().fold(0, |bits, kind| bits | 1 << kind)
}

/// Features of a table, for its own entries and for its table-miss entry.
pub(crate) fn table_features(table: u8, max_entries: u32) -> TableFeatures {
    let later: Vec<u8> = (table + 1..TABLES as u8).collect();
    let mut instructions = INSTRUCTIONS.to_vec();
    if !later.is_empty() {
        instructions.push(GOTO_TABLE);
    }
    let matched: Vec<OxmId> = OxmField::ALL.iter().map(|field| field.id(field.is_maskable())).collect();
    let wildcards: Vec<OxmId> = OxmField::ALL.iter().map(|field| field.id(false)).collect();
    let is_settable = |field: &&OxmField| {
        !matches!(field, OxmField::InPort | OxmField::InPhyPort | OxmField::Metadata | OxmField::Ipv6Exthdr)
    };
    let settable: Vec<OxmId> =
        OxmField::ALL.iter().filter(is_settable).map(|field| field.id(false)).collect();
    let mut actions = Action::KINDS.to_vec();
    actions.sort_unstable();
    let mut properties = vec![TableProperty::Match(matched), TableProperty::Wildcards(wildcards)];
    for side in [PropertyEntries::Entries, PropertyEntries::Miss] {
        properties.extend([
            TableProperty::Instructions(side, instructions.clone()),
            TableProperty::NextTables(side, later.clone()),
            TableProperty::WriteActions(side, actions.clone()),
            TableProperty::ApplyActions(side, actions.clone()),
            TableProperty::WriteSetField(side, settable.clone()),
            TableProperty::ApplySetField(side, settable.clone()),
        ]);
    }
    TableFeatures {
        table,
        name: Text::new(&format!("table{table}")),
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        config: 0,
        max_entries,
        properties,
    }
}
