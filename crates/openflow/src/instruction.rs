//! Instructions of a flow entry.

use std::ops::RangeInclusive;

use crate::action::Action;
use crate::error::ErrorCode;
use crate::wire::{Reader, Wire, kind_and_part, pad};

/// Instructions of a flow entry, in the order in which a switch does them. Each kind occurs at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Instructions {
    /// Meter that the packet goes through first.
    pub meter: Option<u32>,
    /// Actions done at once, in their order.
    pub apply: Option<Vec<Action>>,
    /// Whether the action set is emptied.
    pub clear: bool,
    /// Actions that go into the action set.
    pub write: Option<Vec<Action>>,
    /// Value and mask written to the metadata.
    pub metadata: Option<(u64, u64)>,
    /// Next table; `None` if the packet's path ends here.
    pub goto: Option<u8>,
}

const GOTO_TABLE: u16 = 1;
const WRITE_METADATA: u16 = 2;
const WRITE_ACTIONS: u16 = 3;
const APPLY_ACTIONS: u16 = 4;
const CLEAR_ACTIONS: u16 = 5;
const METER: u16 = 6;
const EXPERIMENTER: u16 = 0xffff;
/// Kinds whose length is followed by padding, and its bytes.
const PADDED: RangeInclusive<u16> = WRITE_METADATA..=CLEAR_ACTIONS;
const PADDING: usize = 4;

impl Wire for Instructions {
    fn read(reader: &mut Reader) -> Result<Self, ErrorCode> {
        let mut instructions = Self::default();
        let mut list = Reader::new(reader.rest(), ErrorCode::INSTRUCTION_BAD_LEN);
        let mut seen = 0u8;
        while !list.is_empty() {
            let (kind, mut body) = list.kind_and_part()?;
            if PADDED.contains(&kind) {
                body.skip(PADDING)?;
            }
            match kind {
                GOTO_TABLE => {
                    instructions.goto = Some(body.get()?);
                    body.skip(3)?;
                }
                WRITE_METADATA => instructions.metadata = Some((body.get()?, body.get()?)),
                WRITE_ACTIONS => instructions.write = Some(body.get()?),
                APPLY_ACTIONS => instructions.apply = Some(body.get()?),
                CLEAR_ACTIONS => instructions.clear = true,
                METER => instructions.meter = Some(body.get()?),
                EXPERIMENTER => return Err(ErrorCode::INSTRUCTION_BAD_EXPERIMENTER),
                _ => return Err(ErrorCode::INSTRUCTION_UNKNOWN),
            }
            body.finish()?;
            // OpenFlow 1.3 has no code of its own for a repeated instruction.
            if seen & 1 << kind != 0 {
                return Err(ErrorCode::INSTRUCTION_UNSUPPORTED);
            }
            seen |= 1 << kind;
        }
        Ok(instructions)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut instruction = |kind: u16, body: &dyn Fn(&mut Vec<u8>)| {
            kind_and_part(out, kind, |out| {
                pad(out, if PADDED.contains(&kind) { PADDING } else { 0 });
                body(out);
            });
        };
        if let Some(meter) = self.meter {
            instruction(METER, &|out| meter.write(out));
        }
        if let Some(actions) = &self.apply {
            instruction(APPLY_ACTIONS, &|out| actions.write(out));
        }
        if self.clear {
            instruction(CLEAR_ACTIONS, &|_| {});
        }
        if let Some(actions) = &self.write {
            instruction(WRITE_ACTIONS, &|out| actions.write(out));
        }
        if let Some((value, mask)) = self.metadata {
            instruction(WRITE_METADATA, &|out| [value, mask].write(out));
        }
        if let Some(table) = self.goto {
            instruction(GOTO_TABLE, &|out| {
                table.write(out);
                pad(out, 3);
            });
        }
    }
}
