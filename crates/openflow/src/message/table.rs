//! Flow tables: counters and features.

use crate::error::ErrorCode;
use crate::oxm::OxmId;
use crate::text_field::Text;
use crate::wire::{Reader, Wire, kind_and_part, pad, to_eight, wire_struct};

wire_struct! {
    /// A change of a table.
    pub struct TableMod {
        /// Table, or [`table_id::ALL`](crate::table_id::ALL).
        pub table: u8 => 3,
        /// Value without a meaning in OpenFlow 1.3. Programs of older versions set it to 3.
        pub config: u32,
    }

    /// Counters of a table.
    pub struct TableStats {
        pub table: u8 => 3,
        /// Number of entries.
        pub active: u32,
        /// Number of packets that were looked up.
        pub lookups: u64,
        /// Number of packets that an entry matched.
        pub matched: u64,
    }

    /// Features of a table.
    pub struct TableFeatures {
        [length else FEATURES_BAD_LEN]
        pub table: u8 => 5,
        /// Name of the table.
        pub name: Text<32>,
        /// Metadata bits that the table can match.
        pub metadata_match: u64,
        /// Metadata bits that the table can write.
        pub metadata_write: u64,
        /// See [`TableMod`].
        pub config: u32,
        /// Maximum number of entries.
        pub max_entries: u32,
        /// Further features.
        pub properties: Vec<TableProperty>,
    }
}

/// Entries that a property is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PropertyEntries {
    /// All entries. The table-miss entry is one of them unless the table has separate features for it.
    Entries,
    /// The table-miss entry: for packets that no other entry matches.
    Miss,
}

/// A property of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableProperty {
    /// Supported instructions, by number.
    Instructions(PropertyEntries, Vec<u16>),
    /// Tables that entries can go to.
    NextTables(PropertyEntries, Vec<u8>),
    /// Supported actions in an action set, by [`Action::kind`](crate::Action::kind).
    WriteActions(PropertyEntries, Vec<u16>),
    /// Supported actions that are done at once.
    ApplyActions(PropertyEntries, Vec<u16>),
    /// Fields that can be matched.
    Match(Vec<OxmId>),
    /// Fields that a match need not have.
    Wildcards(Vec<OxmId>),
    /// Fields that an action set can set.
    WriteSetField(PropertyEntries, Vec<OxmId>),
    /// Fields that actions can set at once.
    ApplySetField(PropertyEntries, Vec<OxmId>),
}

impl TableProperty {
    /// Number of this kind of property.
    pub fn kind(&self) -> u16 {
        let (number, side) = match self {
            Self::Instructions(side, _) => (0, *side),
            Self::NextTables(side, _) => (2, *side),
            Self::WriteActions(side, _) => (4, *side),
            Self::ApplyActions(side, _) => (6, *side),
            Self::Match(_) => (8, PropertyEntries::Entries),
            Self::Wildcards(_) => (10, PropertyEntries::Entries),
            Self::WriteSetField(side, _) => (12, *side),
            Self::ApplySetField(side, _) => (14, *side),
        };
        number + u16::from(side == PropertyEntries::Miss)
    }
}

/// Length of an instruction or action without its content, bytes.
const ID_BYTES: u16 = 4;

/// Reads kinds of instructions or actions. Those of experimenters have content, and are refused.
fn read_ids(reader: &mut Reader) -> Result<Vec<u16>, ErrorCode> {
    let mut ids = Vec::new();
    while !reader.is_empty() {
        ids.push(reader.get()?);
        if reader.get::<u16>()? != ID_BYTES {
            return Err(ErrorCode::FEATURES_BAD_ARGUMENT);
        }
    }
    Ok(ids)
}

impl Wire for TableProperty {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let (kind, mut body) = reader.kind_and_part()?;
        reader.skip(to_eight(4 + body.len()))?;
        let side = if kind.is_multiple_of(2) { PropertyEntries::Entries } else { PropertyEntries::Miss };
        match kind {
            0 | 1 => Ok(Self::Instructions(side, read_ids(&mut body)?)),
            2 | 3 => Ok(Self::NextTables(side, body.get()?)),
            4 | 5 => Ok(Self::WriteActions(side, read_ids(&mut body)?)),
            6 | 7 => Ok(Self::ApplyActions(side, read_ids(&mut body)?)),
            8 => Ok(Self::Match(body.get()?)),
            10 => Ok(Self::Wildcards(body.get()?)),
            12 | 13 => Ok(Self::WriteSetField(side, body.get()?)),
            14 | 15 => Ok(Self::ApplySetField(side, body.get()?)),
            _ => Err(ErrorCode::FEATURES_BAD_TYPE),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        kind_and_part(out, self.kind(), |out| match self {
            Self::Instructions(_, ids) | Self::WriteActions(_, ids) | Self::ApplyActions(_, ids) => {
                for id in ids {
                    id.write(out);
                    ID_BYTES.write(out);
                }
            }
            Self::NextTables(_, tables) => tables.write(out),
            Self::Match(fields)
            | Self::Wildcards(fields)
            | Self::WriteSetField(_, fields)
            | Self::ApplySetField(_, fields) => fields.write(out),
        });
        pad(out, to_eight(out.len() - start));
    }
}
