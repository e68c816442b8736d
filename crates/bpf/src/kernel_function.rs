//! Functions of the kernel that programs call by their number in the kernel's type information (kfuncs). Format: kernel
//! documentation, "BPF Type Format (BTF)".

use std::sync::OnceLock;

/// The kernel's own type information, of kernels with `CONFIG_DEBUG_INFO_BTF`.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";
/// First two bytes of type information.
const MAGIC: u16 = 0xEB9F;
/// `BTF_KIND_FUNC`.
const FUNCTION: u32 = 12;
/// Bytes of a type without its variable part.
const TYPE_BYTES: usize = 12;

/// Number of bpf_xdp_metadata_rx_vlan_tag() (Linux 6.8), which gives the VLAN tag that a driver received beside a
/// frame. `None` if the kernel does not have it, or its type information cannot be read.
pub(crate) fn vlan_tag_of_frame() -> Option<i32> {
    // The numbers change only with the kernel.
    static NUMBER: OnceLock<Option<i32>> = OnceLock::new();
    *NUMBER.get_or_init(|| number_of(&std::fs::read(KERNEL_TYPES).ok()?, b"bpf_xdp_metadata_rx_vlan_tag"))
}

/// Number of the function `name` in type information.
fn number_of(information: &[u8], name: &[u8]) -> Option<i32> {
    if *information.first_chunk::<2>()? != MAGIC.to_ne_bytes() {
        return None;
    }
    // struct btf_header: length of the header, then offset and length of the types and of the names.
    let header_bytes = word(information, 4)? as usize;
    let part = |at| {
        let start = header_bytes + word(information, at)? as usize;
        information.get(start..start + word(information, at + 4)? as usize)
    };
    let (mut types, names) = (part(8)?, part(16)?);
    for number in 1.. {
        // struct btf_type: offset of the name, then kind and number of members.
        let (name_at, kind) = (word(types, 0)? as usize, word(types, 4)?);
        let (kind, members) = (kind >> 24 & 0x1F, (kind & 0xFFFF) as usize);
        let is_named = || names.get(name_at..)?.strip_prefix(name)?.first().copied();
        if kind == FUNCTION && is_named() == Some(0) {
            return Some(number);
        }
        types = types.get(TYPE_BYTES + variable_bytes(kind, members)?..)?;
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

/// Bytes of the variable part of a type with this number of members; `None` for a kind that is not known.
fn variable_bytes(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // Integers, variables, tags of declarations.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Structures, unions, sections, enums of 64 bits.
        4 | 5 | 15 | 19 => 12 * members,
        // Enums, prototypes of functions.
        6 | 13 => 8 * members,
        // Pointers, forward declarations, typedef, volatile, const, restrict, functions, floats, tags of types.
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type information with an integer `a`, a structure `ab` of one member, and the functions `b` and `ab`.
    fn example() -> Vec<u8> {
        let kind = |kind: u32, members: u32| kind << 24 | members;
        let types: Vec<u8> = [
            [1, kind(1, 0), 4].as_slice(),
            &[32],
            &[3, kind(4, 1), 4],
            &[1, 1, 0],
            &[4, kind(FUNCTION, 0), 0],
            &[3, kind(FUNCTION, 0), 0],
        ]
        .concat()
        .into_iter()
        .flat_map(u32::to_ne_bytes)
        .collect();
        let names = b"\0a\0ab\0";
        let header =
            [24, 0, types.len() as u32, types.len() as u32, names.len() as u32].map(u32::to_ne_bytes);
        [&MAGIC.to_ne_bytes()[..], &[1, 0], &header.concat(), &types, names].concat()
    }

    #[test]
    fn functions_are_found_by_their_whole_name_and_other_types_are_not() {
        let information = example();
        assert_eq!(number_of(&information, b"ab"), Some(4));
        assert_eq!(number_of(&information, b"b"), Some(3));
        assert_eq!(number_of(&information, b"a"), None, "an integer");
    }

    #[test]
    fn information_that_is_cut_off_has_no_function() {
        let information = example();
        for end in 0..information.len() {
            assert_eq!(number_of(&information[..end], b"ab"), None, "{end} bytes");
        }
    }

    #[test]
    fn the_running_kernel_has_the_function_that_it_lists() {
        let listed = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let is_listed = listed.contains(" bpf_xdp_metadata_rx_vlan_tag\n");
        let has_types = std::path::Path::new(KERNEL_TYPES).exists();
        assert_eq!(vlan_tag_of_frame().is_some(), is_listed && has_types);
    }
}
