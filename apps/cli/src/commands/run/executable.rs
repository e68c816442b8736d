//! Search for the program to run, as by a shell, and a check whether the dynamic linker can preload objects into it.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use object::elf::FileHeader64;
use object::read::elf::FileHeader;
use object::{Endianness, ReadCache};
use rustix::fs::{Access, access, getxattr};
use rustix::process::{getegid, geteuid};

use crate::failure::Failure;

/// Mode bits of a file that runs with its owner's or group's rights.
const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;
/// Attribute of a file that gives its process capabilities.
const CAPABILITIES: &str = "security.capability";

/// Finds the program's file: `name` itself if it has a slash, else the first executable file in `$PATH`.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let shown = name.display();
    let is_path = name.as_bytes().contains(&b'/');
    let folders = if is_path { None } else { std::env::var_os("PATH") };
    let candidates: Vec<PathBuf> = match &folders {
        Some(folders) => std::env::split_paths(folders).map(|folder| folder.join(name)).collect(),
        None => vec![PathBuf::from(name)],
    };
    let mut unusable = None;
    for candidate in candidates {
        match candidate.metadata() {
            Ok(metadata) if metadata.is_file() && access(&candidate, Access::EXEC_OK).is_ok() => {
                return Ok(candidate);
            }
            Ok(metadata) if metadata.is_file() || is_path => unusable = unusable.or(Some(candidate)),
            _ => {}
        }
    }
    Err(match unusable {
        Some(path) => Failure::not_executable(
            format!("{} cannot be run: it is not a file, or not executable", path.display()),
            "make it executable (chmod +x), or name another program",
        ),
        None if is_path => Failure::not_found(format!("there is no program {shown}"), ""),
        None => {
            Failure::not_found(format!("there is no program {shown} in PATH"), "install it, or name its path")
        }
    })
}

/// Refuses programs that do not use the dynamic linker, and programs for which the linker ignores `LD_PRELOAD`.
pub(super) fn check(program: &Path) -> Result<(), Failure> {
    let reading = |error| Failure::not_executable(format!("reading {}: {error}", program.display()), "");
    let file = File::open(program);
    let metadata = program.metadata().map_err(reading)?;
    if has_other_rights(program, &metadata) {
        return Err(Failure::not_executable(
            format!(
                "{} runs with rights that are not yours, so nothing can be preloaded into it",
                program.display()
            ),
            "run it as the user whose rights it takes, such as root",
        ));
    }
    // Files that can be executed but not read are left to the kernel.
    let Ok(file) = file else { return Ok(()) };
    let data = ReadCache::new(file);
    // A file with another header can be a script, or another format that the kernel can run.
    let Ok(header) = FileHeader64::<Endianness>::parse(&data) else {
        return if is_elf(program) {
            Err(refused(program, "is not a program for a 64-bit machine"))
        } else {
            Ok(())
        };
    };
    let interpreter = header.endian().and_then(|endian| {
        let headers = header.program_headers(endian, &data)?;
        Ok(headers.iter().any(|header| header.p_type.get(endian) == object::elf::PT_INTERP))
    });
    match interpreter {
        Ok(true) => Ok(()),
        Ok(false) => Err(refused(program, "is statically linked, so nothing can be preloaded into it")),
        Err(_) => Err(refused(program, "is a damaged ELF file")),
    }
}

fn refused(program: &Path, what: &str) -> Failure {
    Failure::not_executable(format!("{} {what}", program.display()), "use a dynamically linked build of it")
}

fn is_elf(program: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(program).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic)).is_ok()
        && magic == object::elf::ELFMAG
}

/// Whether the program runs with other rights than its user's, so that the kernel sets `AT_SECURE`.
fn has_other_rights(program: &Path, metadata: &Metadata) -> bool {
    let mode = metadata.mode();
    let capabilities = || getxattr(program, CAPABILITIES, &mut [0u8; 64]).is_ok();
    mode & SET_USER_ID != 0 && metadata.uid() != geteuid().as_raw()
        || mode & SET_GROUP_ID != 0 && metadata.gid() != getegid().as_raw()
        || !geteuid().is_root() && capabilities()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn programs_are_looked_up_as_in_a_shell() {
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(find(OsStr::new("/bin/sh")).unwrap(), Path::new("/bin/sh"));
        assert_eq!(find(OsStr::new("no-such-program")).unwrap_err().exit_status, 127);
        assert_eq!(find(OsStr::new("/no/such/program")).unwrap_err().exit_status, 127);
        assert_eq!(find(OsStr::new("/etc/passwd")).unwrap_err().exit_status, 126);
        assert_eq!(find(OsStr::new("/etc")).unwrap_err().exit_status, 126);
    }

    #[test]
    fn only_dynamic_programs_and_scripts_are_accepted() {
        let own = std::env::current_exe().unwrap();
        check(&own).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        check(&write("script", b"#!/bin/sh\n")).unwrap();
        let mut bytes = std::fs::read(own).unwrap();
        let told = |bytes: &[u8]| check(&write("program", bytes)).unwrap_err();
        assert!(told(&bytes[..40]).to_string().contains("64-bit"));
        // A file with 0 program headers (e_phnum) has no interpreter.
        bytes[56..58].fill(0);
        let failure = told(&bytes);
        assert!(failure.to_string().contains("statically linked"), "{failure}");
        assert_eq!(failure.exit_status, 126);
        bytes[4] = 1;
        assert!(told(&bytes).to_string().contains("64-bit"));
    }

    #[test]
    fn programs_with_other_rights_are_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
        // A set-user-ID file of the user itself adds no rights.
        check(&path).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
            assert!(check(&path).unwrap_err().to_string().contains("rights"));
        }
    }
}
