//! The machine's busybox, with the libraries that it needs.

use std::path::PathBuf;
use std::process::Command;

use crate::error::GuestError;
use crate::program;

/// The tools of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busybox {
    pub program: PathBuf,
    /// Shared libraries and loader of busybox; empty if it is linked statically.
    pub libraries: Vec<PathBuf>,
}

impl Busybox {
    /// Finds busybox in PATH.
    ///
    /// # Errors
    /// [`GuestError`]: busybox is not installed, or ldd failed.
    pub fn find() -> Result<Self, GuestError> {
        let program = program::find("busybox", "busybox")?;
        // ldd fails for a program that needs no libraries, with a localised message.
        let listed = program::output_of(Command::new("ldd").env("LC_ALL", "C").arg(&program));
        let libraries = match listed {
            Ok(text) => libraries_in(&String::from_utf8_lossy(&text)),
            Err(GuestError::Failed { said, .. }) if said.contains("not a dynamic executable") => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(Self { program, libraries })
    }
}

/// Returns the files that ldd lists: `libc.so.6 => /lib/libc.so.6 (0x..)` and `/lib64/ld-linux-x86-64.so.2 (0x..)`, but
/// not the kernel's vDSO.
fn libraries_in(listed: &str) -> Vec<PathBuf> {
    let file = |line: &str| {
        let path = line.split_once("=> ").map_or(line, |(_, path)| path).split_whitespace().next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    listed.lines().filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_files_and_the_vdso_is_skipped() {
        let listed = "\tlinux-vdso.so.1 (0x00007f)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(libraries_in(listed), expected.map(PathBuf::from));
        assert!(libraries_in("\tstatically linked\n").is_empty());
    }
}
