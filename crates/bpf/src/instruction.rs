//! eBPF instructions, as far as the programs here use them. Encoding: kernel documentation, "BPF Instruction Set
//! Architecture" (RFC 9669).

/// One instruction: opcode, registers (source in the upper half), offset, immediate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    opcode: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Marks an immediate load as that of a map's descriptor (`BPF_PSEUDO_MAP_FD`).
const MAP_DESCRIPTOR: u8 = 1;

impl Instruction {
    const fn new(opcode: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Self {
        Self { opcode, registers: to | from << 4, offset, immediate }
    }

    /// `to = value`
    pub(crate) const fn set(to: u8, value: i32) -> Self {
        Self::new(0xB7, to, 0, 0, value)
    }

    /// `to = value`, 32 bits without sign extension.
    pub(crate) const fn set_32(to: u8, value: u32) -> Self {
        Self::new(0xB4, to, 0, 0, value.cast_signed())
    }

    /// `to = *(u32 *)(from + offset)`
    pub(crate) const fn load_32(to: u8, from: u8, offset: i16) -> Self {
        Self::new(0x61, to, from, offset, 0)
    }

    /// `*(u32 *)(to + offset) = from`
    pub(crate) const fn store_32(to: u8, offset: i16, from: u8) -> Self {
        Self::new(0x63, to, from, offset, 0)
    }

    /// Skips `skipped` instructions where the lower 32 bits of `register` equal `value`.
    pub(crate) const fn skip_if_equal_32(register: u8, value: u32, skipped: i16) -> Self {
        Self::new(0x16, register, 0, skipped, value.cast_signed())
    }

    /// `to = address of the map with this descriptor`: takes two places.
    pub(crate) const fn set_map(to: u8, descriptor: i32) -> [Self; 2] {
        [Self::new(0x18, to, MAP_DESCRIPTOR, 0, descriptor), Self::new(0, 0, 0, 0, 0)]
    }

    /// Calls kernel function number `helper` (`enum bpf_func_id`).
    pub(crate) const fn call(helper: i32) -> Self {
        Self::new(0x85, 0, 0, 0, helper)
    }

    /// Returns register 0.
    pub(crate) const fn exit() -> Self {
        Self::new(0x95, 0, 0, 0, 0)
    }
}
