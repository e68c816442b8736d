//! eBPF instructions that the programs of this crate use. Encoding: kernel documentation, "BPF Instruction Set
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

/// Mark of an immediate load of a map's descriptor (`BPF_PSEUDO_MAP_FD`).
const MAP_DESCRIPTOR: u8 = 1;
/// Mark of a call of a function by its number in the kernel's type information (`BPF_PSEUDO_KFUNC_CALL`).
const KERNEL_FUNCTION: u8 = 2;
/// Mark of an immediate load of the address of a map's only value (`BPF_PSEUDO_MAP_VALUE`, Linux 5.2).
const MAP_VALUE: u8 = 2;

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

    /// `to = from`
    pub(crate) const fn copy(to: u8, from: u8) -> Self {
        Self::new(0xBF, to, from, 0, 0)
    }

    /// `to += value`
    pub(crate) const fn add(to: u8, value: i32) -> Self {
        Self::new(0x07, to, 0, 0, value)
    }

    /// `to += from`
    pub(crate) const fn add_register(to: u8, from: u8) -> Self {
        Self::new(0x0F, to, from, 0, 0)
    }

    /// `to = to in network byte order`, 16 bits.
    pub(crate) const fn to_network_order_16(to: u8) -> Self {
        Self::new(0xDC, to, 0, 0, 16)
    }

    /// `to = *(u16 *)(from + offset)`
    pub(crate) const fn load_16(to: u8, from: u8, offset: i16) -> Self {
        Self::new(0x69, to, from, offset, 0)
    }

    /// `to = *(u32 *)(from + offset)`
    pub(crate) const fn load_32(to: u8, from: u8, offset: i16) -> Self {
        Self::new(0x61, to, from, offset, 0)
    }

    /// `to = *(u64 *)(from + offset)`
    pub(crate) const fn load_64(to: u8, from: u8, offset: i16) -> Self {
        Self::new(0x79, to, from, offset, 0)
    }

    /// `*(u16 *)(to + offset) = from`
    pub(crate) const fn store_16(to: u8, offset: i16, from: u8) -> Self {
        Self::new(0x6B, to, from, offset, 0)
    }

    /// `*(u32 *)(to + offset) = from`
    pub(crate) const fn store_32(to: u8, offset: i16, from: u8) -> Self {
        Self::new(0x63, to, from, offset, 0)
    }

    /// `*(u64 *)(to + offset) = from`
    pub(crate) const fn store_64(to: u8, offset: i16, from: u8) -> Self {
        Self::new(0x7B, to, from, offset, 0)
    }

    /// `*(u32 *)(to + offset) = value`
    pub(crate) const fn store_value_32(to: u8, offset: i16, value: u32) -> Self {
        Self::new(0x62, to, 0, offset, value.cast_signed())
    }

    /// Skips `skipped` instructions if `register` is 0.
    pub(crate) const fn skip_if_zero(register: u8, skipped: i16) -> Self {
        Self::new(0x15, register, 0, skipped, 0)
    }

    /// Skips `skipped` instructions if the lower 32 bits of `register` do not equal `value`.
    pub(crate) const fn skip_unless_equal_32(register: u8, value: u32, skipped: i16) -> Self {
        Self::new(0x56, register, 0, skipped, value.cast_signed())
    }

    /// Skips `skipped` instructions if `register` is above `other`.
    pub(crate) const fn skip_if_above(register: u8, other: u8, skipped: i16) -> Self {
        Self::new(0x2D, register, other, skipped, 0)
    }

    /// Returns this jump with another number of skipped instructions.
    pub(crate) const fn skipping(self, skipped: i16) -> Self {
        Self { offset: skipped, ..self }
    }

    /// Skips `skipped` instructions if the lower 32 bits of `register` equal `value`.
    pub(crate) const fn skip_if_equal_32(register: u8, value: u32, skipped: i16) -> Self {
        Self::new(0x16, register, 0, skipped, value.cast_signed())
    }

    /// `to = address of the map with this descriptor`. Takes two instructions.
    pub(crate) const fn set_map(to: u8, descriptor: i32) -> [Self; 2] {
        [Self::new(0x18, to, MAP_DESCRIPTOR, 0, descriptor), Self::new(0, 0, 0, 0, 0)]
    }

    /// `to = address of the only value of the array with this descriptor`. Takes two instructions.
    pub(crate) const fn set_map_value(to: u8, descriptor: i32) -> [Self; 2] {
        [Self::new(0x18, to, MAP_VALUE, 0, descriptor), Self::new(0, 0, 0, 0, 0)]
    }

    /// Calls kernel function number `helper` (`enum bpf_func_id`).
    pub(crate) const fn call(helper: i32) -> Self {
        Self::new(0x85, 0, 0, 0, helper)
    }

    /// Calls the kernel function with this number in the kernel's type information (kfunc).
    pub(crate) const fn call_by_type(number: i32) -> Self {
        Self::new(0x85, 0, KERNEL_FUNCTION, 0, number)
    }

    /// Exits with register 0 as the result.
    pub(crate) const fn exit() -> Self {
        Self::new(0x95, 0, 0, 0, 0)
    }
}
