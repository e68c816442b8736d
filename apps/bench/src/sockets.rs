//! Private folder for the sockets of one turn.

use std::path::Path;

use tempfile::TempDir;

use crate::error::BenchError;

/// Longest name of the folder, bytes: it leaves room for `/dpdk/<prefix>/dpdk_telemetry.v2` in a socket address of 108
/// bytes.
const FOLDER_BYTES: usize = 40;

/// Makes a folder with a short name for socket addresses. Dropping it removes the folder with its contents.
pub(crate) fn socket_folder() -> Result<TempDir, BenchError> {
    let preferred = std::env::temp_dir();
    let fits = preferred.as_os_str().len() + "/rr-123456".len() <= FOLDER_BYTES;
    let parent = if fits { preferred.as_path() } else { Path::new("/tmp") };
    tempfile::Builder::new().prefix("rr-").tempdir_in(parent).map_err(BenchError::TemporaryDirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_has_a_short_name_and_is_removed_after_the_turn() {
        let folder = socket_folder().unwrap();
        let path = folder.path().to_owned();
        assert!(path.as_os_str().len() <= FOLDER_BYTES);
        drop(folder);
        assert!(!path.exists());
    }
}
