//! Files that a privileged process opens by an administrator's path, perhaps in a folder where other users may write.
//!
//! No other user can choose the file, and opening never waits: no link is followed, and pipes and files of other users
//! are refused.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// The purpose of opening a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilePurpose {
    /// Reading. The file may be another user's, because the administrator named it for its content.
    Read,
    /// Reading content that this user or root has written.
    ReadOwn,
    /// Appending. The mode determines who else can read the file.
    Append(u32),
    /// Replacing the content. The file is readable by this user only.
    Replace,
}

/// Reason why a file is not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardedFileError {
    /// The path is a link, which could lead anywhere.
    #[error("it is a symbolic link; name the file itself")]
    Link,
    /// The path is a folder, a pipe or a socket.
    #[error("it is not a regular file; name another")]
    NotAFile,
    /// Another user could read the written bytes, or has chosen the file that would be overwritten.
    #[error("it belongs to user {0}; remove it or name another")]
    OtherUser(u32),
    /// The file has a second name, which another user may have given it.
    #[error("it has several names (hard links); remove it or name another")]
    SecondName,
    /// The kernel refused.
    #[error("{0}")]
    System(#[from] Errno),
}

/// Opens `path`. Devices such as `/dev/null` are opened too, but never for reading: a read from a device may block.
///
/// # Errors
/// [`GuardedFileError`].
pub fn open(path: &Path, purpose: FilePurpose) -> Result<File, GuardedFileError> {
    let safe = OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let (flags, mode) = match purpose {
        FilePurpose::Read | FilePurpose::ReadOwn => (OFlags::RDONLY, 0),
        FilePurpose::Append(mode) => (OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE, mode),
        FilePurpose::Replace => (OFlags::WRONLY | OFlags::CREATE, 0o600),
    };
    let file = rustix::fs::open(path, flags | safe, Mode::from_raw_mode(mode));
    let file = File::from(file.map_err(|errno| match errno {
        Errno::LOOP => GuardedFileError::Link,
        // A pipe without a reader, or a socket.
        Errno::NXIO => GuardedFileError::NotAFile,
        errno => errno.into(),
    })?);
    let status = rustix::fs::fstat(&file)?;
    let kind = FileType::from_raw_mode(status.st_mode);
    if !matches!(purpose, FilePurpose::Read | FilePurpose::ReadOwn) && kind.is_char_device() {
        return Ok(file);
    }
    if !kind.is_file() {
        return Err(GuardedFileError::NotAFile);
    }
    let own = rustix::process::geteuid().as_raw();
    if purpose != FilePurpose::Read && status.st_uid != own && status.st_uid != 0 {
        return Err(GuardedFileError::OtherUser(status.st_uid));
    }
    if matches!(purpose, FilePurpose::ReadOwn | FilePurpose::Replace) && status.st_nlink > 1 {
        return Err(GuardedFileError::SecondName);
    }
    if purpose == FilePurpose::Replace {
        rustix::fs::ftruncate(&file, 0)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn links_pipes_and_foreign_files_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("target"), "mine").unwrap();
        std::os::unix::fs::symlink(at("target"), at("link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), Mode::RWXU).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        for purpose in
            [FilePurpose::Read, FilePurpose::ReadOwn, FilePurpose::Append(0o640), FilePurpose::Replace]
        {
            assert!(matches!(open(&at("link"), purpose), Err(GuardedFileError::Link)), "{purpose:?}");
            assert!(matches!(open(&at("fifo"), purpose), Err(GuardedFileError::NotAFile)), "{purpose:?}");
            assert!(open(&at("folder"), purpose).is_err(), "{purpose:?}");
        }
        std::fs::hard_link(at("target"), at("second")).unwrap();
        for purpose in [FilePurpose::ReadOwn, FilePurpose::Replace] {
            assert!(matches!(open(&at("second"), purpose), Err(GuardedFileError::SecondName)));
        }
        assert_eq!(std::fs::read(at("target")).unwrap(), b"mine");
    }

    #[test]
    fn a_rewritten_file_is_empty_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        drop(open(&path, FilePurpose::Replace).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o077, 0);
        std::fs::write(&path, "old").unwrap();
        assert_eq!(open(&path, FilePurpose::Replace).unwrap().metadata().unwrap().len(), 0);
        assert!(open(Path::new("/dev/null"), FilePurpose::Replace).is_ok());
        assert!(matches!(open(Path::new("/dev/zero"), FilePurpose::Read), Err(GuardedFileError::NotAFile)));
    }

    #[test]
    fn another_users_file_is_read_but_not_written() {
        if !ringroad_test_needs::is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("theirs");
        std::fs::write(&path, "theirs").unwrap();
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        assert!(open(&path, FilePurpose::Read).is_ok());
        for purpose in [FilePurpose::Append(0o640), FilePurpose::Replace] {
            assert!(matches!(open(&path, purpose), Err(GuardedFileError::OtherUser(12345))));
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
    }
}
