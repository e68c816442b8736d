//! Download of Debian's kernel package, unpacked by any user: nothing is installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::error::GuestError;
use crate::program::{self, output_of};

/// The package that depends on the newest kernel for virtual machines.
const META_PACKAGE: &str = "linux-image-cloud-amd64";

/// Fetches the kernel and unpacks it into the folder `into`. The files are first unpacked into a folder beside `into`,
/// so that `into` is complete or missing.
pub(crate) fn fetch(into: &Path, mut tell: impl FnMut(&str)) -> Result<(), GuestError> {
    program::find("apt-get", "apt")?;
    let package = newest_package()?;
    let work = into.with_extension(std::process::id().to_string());
    let fetched = fetch_into(&package, &work, into, &mut tell);
    // A failure to remove the temporary files is ignored.
    let _ = fs::remove_dir_all(&work);
    fetched
}

fn newest_package() -> Result<String, GuestError> {
    let none = |said| GuestError::NoKernelPackage { package: META_PACKAGE, said };
    let listed = match output_of(Command::new("apt-cache").args(["depends", "--important", META_PACKAGE])) {
        Ok(listed) => listed,
        Err(GuestError::Failed { said, .. }) => return Err(none(said)),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&listed);
    let package = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    package.map(str::to_owned).ok_or_else(|| none("it depends on no kernel".to_owned()))
}

fn fetch_into(
    package: &str,
    work: &Path,
    into: &Path,
    tell: &mut impl FnMut(&str),
) -> Result<(), GuestError> {
    fs::create_dir_all(work).map_err(GuestError::file("make", work))?;
    tell(&format!("fetching {package} (about 30 MB, once; nothing is installed)"));
    let mut apt = Command::new("apt-get");
    // User root, since apt would otherwise fetch as a user who cannot write here.
    apt.args(["-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=3", "download", package]);
    output_of(apt.current_dir(work))?;
    let mut entries = fs::read_dir(work).map_err(GuestError::file("read", work))?.flatten();
    let archive = entries.find(|entry| entry.path().extension().is_some_and(|ending| ending == "deb"));
    let archive = archive.map(|entry| entry.path()).ok_or_else(|| GuestError::Failed {
        command: format!("apt-get download {package}"),
        said: "no package was downloaded".to_owned(),
    })?;
    tell(&format!("unpacking it into {}", into.display()));
    let unpacked = work.join("unpacked");
    output_of(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&unpacked))?;
    match fs::rename(&unpacked, into) {
        // Another process has made the folder first.
        Err(_) if into.is_dir() => Ok(()),
        result => result.map_err(GuestError::file("make", into)),
    }
}
