//! The preloaded objects, and their paths.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A shared object that is preloaded before a program's libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Object {
    file: &'static str,
    /// Option that leaves the object out.
    option: &'static str,
}

/// The library for programs written for netmap.
pub(super) const NETMAP: Object = Object { file: "libringroad_preload_netmap.so", option: "--no-netmap" };
/// The library for programs written for libpcap.
pub(super) const PCAP: Object = Object { file: "libringroad_preload_pcap.so", option: "--no-pcap" };

/// Environment variable that names the folder of the objects.
const FOLDER_VARIABLE: &str = "RINGROAD_LIB_DIR";
/// Installed path of the objects, relative to the folder of the binaries.
const INSTALLED: &str = "../lib/ringroad";

/// Returns the paths of all objects in `wanted`.
pub(super) fn find(wanted: impl Iterator<Item = Object>) -> Result<Vec<PathBuf>, Failure> {
    let folders = match std::env::var_os(FOLDER_VARIABLE) {
        Some(folder) => vec![PathBuf::from(folder)],
        None => {
            let own = std::env::current_exe().unwrap_or_default();
            let own = own.parent().unwrap_or(Path::new("/"));
            vec![own.to_owned(), own.join(INSTALLED)]
        }
    };
    wanted.map(|object| object.find_in(&folders)).collect()
}

/// Returns the value of `LD_PRELOAD` with `objects` before its present entries.
pub(super) fn before(objects: &[PathBuf], present: Option<&OsStr>) -> OsString {
    let present = present.filter(|present| !present.is_empty());
    let all: Vec<&OsStr> = objects.iter().map(|path| path.as_os_str()).chain(present).collect();
    all.join(OsStr::new(":"))
}

impl Object {
    fn find_in(self, folders: &[PathBuf]) -> Result<PathBuf, Failure> {
        let Some(found) = folders.iter().map(|folder| folder.join(self.file)).find(|path| path.is_file())
        else {
            let searched: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
            return Err(Failure::new(
                format!("{} was not found in {}", self.file, searched.join(" or ")),
                format!(
                    "install it, name its folder in ${FOLDER_VARIABLE}, or do without it: {}",
                    self.option
                ),
            ));
        };
        // A canonical path stays valid for a program that runs in another folder.
        let found = found.canonicalize().unwrap_or(found);
        if found.as_os_str().as_bytes().iter().any(|byte| b": ".contains(byte)) {
            return Err(Failure::new(
                format!("{} has a colon or space in its path, which LD_PRELOAD cannot hold", found.display()),
                format!("put it elsewhere and name that folder in ${FOLDER_VARIABLE}"),
            ));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_error_lists_the_searched_paths() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [PathBuf::from("/nonexistent"), folder.path().to_owned()];
        let told = PCAP.find_in(&folders).unwrap_err().to_string();
        for part in ["libringroad_preload_pcap.so", "/nonexistent", "RINGROAD_LIB_DIR", "--no-pcap"] {
            assert!(told.contains(part), "{told}");
        }
        std::fs::write(folder.path().join(PCAP.file), "").unwrap();
        assert!(PCAP.find_in(&folders).unwrap().ends_with(PCAP.file));
        let spaced = folder.path().join("a b");
        std::fs::create_dir(&spaced).unwrap();
        std::fs::write(spaced.join(PCAP.file), "").unwrap();
        assert!(PCAP.find_in(&[spaced]).unwrap_err().to_string().contains("space"));
    }

    #[test]
    fn existing_preload_entries_follow_ours() {
        let value =
            |present: Option<&str>| before(&["/l/a.so".into(), "/l/b.so".into()], present.map(OsStr::new));
        assert_eq!(value(None), "/l/a.so:/l/b.so");
        assert_eq!(value(Some("")), "/l/a.so:/l/b.so");
        assert_eq!(value(Some("libx.so /y.so")), "/l/a.so:/l/b.so:libx.so /y.so");
    }
}
