//! Search for programs of this machine, and commands run to their end.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::GuestError;

/// Finds `program` in PATH, or fails with the name of its Debian `package`.
///
/// # Errors
/// [`GuestError::ProgramMissing`].
pub fn find(program: &'static str, package: &'static str) -> Result<PathBuf, GuestError> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
        .ok_or(GuestError::ProgramMissing { program, package })
}

/// Runs a command to its end and returns its standard output.
pub(crate) fn output_of(command: &mut Command) -> Result<Vec<u8>, GuestError> {
    let words = || {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    };
    let program = command.get_program().to_string_lossy().into_owned();
    let text = words();
    let output =
        command.stdin(Stdio::null()).output().map_err(|source| GuestError::Start { program, source })?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = last_lines(&String::from_utf8_lossy(&output.stderr), 3);
    Err(GuestError::Failed { command: text, said })
}

/// Returns the shared libraries of `program` and its loader; none if it is linked statically.
pub fn libraries(program: &Path) -> Result<Vec<PathBuf>, GuestError> {
    // ldd fails for a program that needs no libraries, with a localised message.
    match output_of(Command::new("ldd").env("LC_ALL", "C").arg(program)) {
        Ok(text) => Ok(libraries_in(&String::from_utf8_lossy(&text))),
        Err(GuestError::Failed { said, .. }) if said.contains("not a dynamic executable") => Ok(Vec::new()),
        Err(error) => Err(error),
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

/// Returns the last lines of a text, joined to one line.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = find("rr-no-such-program", "rr-package").unwrap_err();
        assert_eq!(
            error.to_string(),
            "rr-no-such-program is not installed; on Debian: apt-get install rr-package"
        );
        assert!(find("sh", "dash").is_ok());
    }

    #[test]
    fn a_failed_command_is_reported_with_its_last_output() {
        let failed =
            output_of(Command::new("sh").args(["-c", "echo a >&2; echo b >&2; exit 3"])).unwrap_err();
        assert!(failed.to_string().ends_with("failed: a | b"), "{failed}");
        assert_eq!(output_of(Command::new("echo").arg("x")).unwrap(), b"x\n");
    }

    #[test]
    fn libraries_are_files_and_the_vdso_is_skipped() {
        let listed = "\tlinux-vdso.so.1 (0x00007f)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(libraries_in(listed), expected.map(PathBuf::from));
        assert!(libraries_in("\tstatically linked\n").is_empty());
    }
}
