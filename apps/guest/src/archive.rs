//! cpio archives in the format that Linux unpacks as an initramfs: "newc"
//! (Documentation/driver-api/early-userspace/buffer-format.rst).

use std::collections::BTreeSet;

/// Name of the entry that ends every archive.
const TRAILER: &str = "TRAILER!!!";

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;

/// Builder of an archive. Paths have no slash in front; folders on the way to an entry are made with it.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    folders: BTreeSet<String>,
}

impl Archive {
    /// Adds a folder.
    pub(crate) fn folder(&mut self, path: &str) {
        if path.is_empty() || !self.folders.insert(path.to_owned()) {
            return;
        }
        self.entry(path, DIRECTORY | 0o755, (0, 0), &[]);
    }

    /// Adds a file with permissions `mode`.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entry(path, FILE | mode, (0, 0), content);
    }

    /// Adds a symbolic link.
    pub(crate) fn symlink(&mut self, path: &str, target: &str) {
        self.entry(path, SYMLINK | 0o777, (0, 0), target.as_bytes());
    }

    /// Adds a character device by its major and minor number.
    pub(crate) fn character_device(&mut self, path: &str, mode: u32, number: (u32, u32)) {
        self.entry(path, CHARACTER_DEVICE | mode, number, &[]);
    }

    /// Returns the complete archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        if let Some((parent, _)) = name.rsplit_once('/') {
            self.folder(parent);
        }
        self.entries += 1;
        let links = if mode & DIRECTORY == DIRECTORY { 2 } else { 1 };
        // Inode, mode, user, group, links, time, length, device, device named by the entry, length of the name with its
        // zero, checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            links,
            0,
            content.len() as u32,
            0,
            0,
            device.0,
            device.1,
            name.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_hex_header_name_and_content_aligned_to_4() {
        let mut archive = Archive::default();
        archive.file("ab", 0o644, b"hello");
        let bytes = archive.finish();
        let header = "070701000000010000\
            81A40000000000000000000000010000000000000005\
            00000000000000000000000000000000000000030000\
            0000ab\0\0\0\0hello\0\0\0";
        assert_eq!(String::from_utf8_lossy(&bytes[..124]), header);
        assert!(bytes[124..].starts_with(b"070701"));
        assert!(String::from_utf8_lossy(&bytes).contains("TRAILER!!!\0"));
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn parent_folders_come_first_and_once() {
        let mut archive = Archive::default();
        archive.file("a/b/c", 0o644, b"");
        archive.symlink("a/b/d", "c");
        let text = String::from_utf8_lossy(&archive.finish()).into_owned();
        let at = |name: &str| text.find(name).unwrap();
        assert!(at("a\0") < at("a/b\0") && at("a/b\0") < at("a/b/c\0"), "{text}");
        assert_eq!(text.matches("a/b\0").count(), 1);
    }
}
