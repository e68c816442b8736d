//! The search for a guest's kernel.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::GuestError;
use crate::kernel_fetch;

/// Environment variable that names a folder into which a linux-image package was unpacked.
pub const KERNEL_VARIABLE: &str = "RINGROAD_KERNEL_DIR";
/// Environment variable that names the folder for downloads.
pub const CACHE_VARIABLE: &str = "RINGROAD_CACHE_DIR";

/// A kernel with its modules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// Version, such as `6.1.0-56-cloud-amd64`.
    pub version: String,
    /// Path of the compressed image.
    pub image: PathBuf,
    /// Folder of the kernel's modules.
    pub modules: PathBuf,
}

impl Kernel {
    /// Finds a kernel: below `folder` if given; else below `$RINGROAD_KERNEL_DIR`; else the machine's own in /boot;
    /// else a kernel that was fetched before. Otherwise fetches Debian's kernel for clouds, and reports that to `tell`.
    ///
    /// # Errors
    /// [`GuestError`]: a named folder has no kernel, or fetching failed.
    pub fn find(folder: Option<&Path>, tell: impl FnMut(&str)) -> Result<Self, GuestError> {
        let variable =
            std::env::var_os(KERNEL_VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from);
        if let Some(folder) = folder.or(variable.as_deref()) {
            return Self::newest_below(folder).ok_or_else(|| GuestError::NoKernel(folder.to_owned()));
        }
        if let Some(own) = Self::newest_below(Path::new("/")) {
            return Ok(own);
        }
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let cache = cache_folder(
            variable(CACHE_VARIABLE).as_deref(),
            variable("XDG_CACHE_HOME").as_deref(),
            variable("HOME").as_deref(),
        );
        Self::fetched_into(&cache.join("kernel"), tell)
    }

    /// Returns Debian's kernel for clouds in `folder`. Fetches and unpacks it unless `folder` already contains a
    /// kernel.
    ///
    /// # Errors
    /// [`GuestError`]: the kernel cannot be fetched.
    pub fn fetched_into(folder: &Path, tell: impl FnMut(&str)) -> Result<Self, GuestError> {
        if Self::newest_below(folder).is_none() {
            kernel_fetch::fetch(folder, tell)?;
        }
        Self::newest_below(folder).ok_or_else(|| GuestError::NoKernel(folder.to_owned()))
    }

    /// Finds the newest readable kernel below `root` that has its modules there.
    fn newest_below(root: &Path) -> Option<Self> {
        let folders = ["lib/modules", "usr/lib/modules"].map(|folder| root.join(folder));
        let kernels = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
        let whole = kernels.filter_map(|entry| {
            let (version, modules) = (entry.file_name().into_string().ok()?, entry.path());
            // Debian's packages of newer kernels have the image beside the modules.
            let images = [root.join("boot").join(format!("vmlinuz-{version}")), modules.join("vmlinuz")];
            let image = images.into_iter().find(|image| fs::File::open(image).is_ok())?;
            modules.join("kernel").is_dir().then_some(Self { version, image, modules })
        });
        whole.max_by_key(|kernel| numbers(&kernel.version))
    }
}

/// Returns the numbers in a version, which decide the newest version.
fn numbers(version: &str) -> Vec<u64> {
    let parts = version.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    parts.map(|part| part.parse().unwrap_or(u64::MAX)).collect()
}

/// Returns the folder for downloads: `$RINGROAD_CACHE_DIR`, else `ringroad` in the user's cache (XDG Base Directory
/// Specification 0.8).
fn cache_folder(own: Option<&OsStr>, xdg: Option<&OsStr>, home: Option<&OsStr>) -> PathBuf {
    match (own, xdg.map(Path::new).filter(|folder| folder.is_absolute()), home) {
        (Some(own), _, _) => PathBuf::from(own),
        (None, Some(xdg), _) => xdg.join("ringroad"),
        (None, None, home) => Path::new(home.unwrap_or(OsStr::new("/root"))).join(".cache/ringroad"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_with_modules_is_taken() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("boot")).unwrap();
        for version in ["6.1.0-9-amd64", "6.1.0-56-amd64", "7.0.0-1-amd64"] {
            fs::write(root.path().join("boot").join(format!("vmlinuz-{version}")), "").unwrap();
        }
        assert_eq!(Kernel::newest_below(root.path()), None);
        fs::create_dir_all(root.path().join("lib/modules/6.1.0-9-amd64/kernel")).unwrap();
        fs::create_dir_all(root.path().join("usr/lib/modules/6.1.0-56-amd64/kernel")).unwrap();
        let found = Kernel::newest_below(root.path()).unwrap();
        assert_eq!(found.version, "6.1.0-56-amd64");
        assert!(found.modules.ends_with("usr/lib/modules/6.1.0-56-amd64"));
        let newer = root.path().join("usr/lib/modules/7.2.1+deb14-amd64");
        fs::create_dir_all(newer.join("kernel")).unwrap();
        fs::write(newer.join("vmlinuz"), "").unwrap();
        assert_eq!(Kernel::newest_below(root.path()).unwrap().image, newer.join("vmlinuz"));
    }

    #[test]
    fn a_folder_without_a_kernel_is_named() {
        let error = Kernel::find(Some(Path::new("/nonexistent")), |_| ()).unwrap_err();
        assert!(error.to_string().starts_with("/nonexistent has no boot/vmlinuz-VERSION"), "{error}");
    }

    #[test]
    fn fetched_files_go_to_the_cache_or_the_named_folder() {
        let folder = |own: Option<&str>, xdg: Option<&str>| {
            cache_folder(own.map(OsStr::new), xdg.map(OsStr::new), Some(OsStr::new("/home/u")))
        };
        assert_eq!(folder(Some("c"), Some("/x")), Path::new("c"));
        assert_eq!(folder(None, Some("/x")), Path::new("/x/ringroad"));
        assert_eq!(folder(None, Some("relative")), Path::new("/home/u/.cache/ringroad"));
    }
}
