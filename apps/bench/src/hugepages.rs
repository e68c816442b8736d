//! Huge pages for the length of a turn, and the peers' memory without huge pages.
//!
//! The kernel's pool of 2 MiB pages is a number in sysfs that root can raise. The reserve raises it by the missing
//! number and lowers it by the same number when it is dropped: at the end, on an error, on a panic. Lowering by the
//! added number, rather than restoring the former number, prevents two benches from undoing each other's changes. A
//! lock on that file prevents simultaneous changes. Only a bench that is killed outright cannot return the pages.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// Size of one page of the pool, bytes.
pub const PAGE_BYTES: u64 = 2 << 20;

/// Number of pages requested beyond need, since other programs that start meanwhile take free pages.
const SPARE_PAGES: u64 = 16;

/// Folder of the pool in sysfs (Documentation/admin-guide/mm/hugetlbpage.rst).
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// Reasons why huge pages are not available.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HugepageError {
    /// The pool cannot be read or resized.
    #[error("cannot {action} {}: {source}", .file.display())]
    Pool {
        /// Failed action: lock, read or write.
        action: &'static str,
        /// The file in sysfs.
        file: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The pool's file does not contain a number.
    #[error("{} does not contain a number", .0.display())]
    Unreadable(PathBuf),
    /// The kernel found less free memory for pages than needed.
    #[error("the kernel has {available} free 2 MiB pages, but {wanted} are needed")]
    NotEnough {
        /// Number of needed pages.
        wanted: u64,
        /// Number of free pages after the request.
        available: u64,
    },
}

/// Time in which memory that is in use for the moment, such as for writing files, may become free.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two attempts to enlarge the pool.
const PAUSE: Duration = Duration::from_millis(100);
/// File that makes the kernel compact memory (`Documentation/admin-guide/sysctl/vm.rst`).
const COMPACT: &str = "/proc/sys/vm/compact_memory";

/// Pages reserved in the kernel's pool until dropped.
#[derive(Debug)]
pub struct HugepageReserve {
    pool: PathBuf,
    added: u64,
    /// File with the shared lock that shows other processes this reserve.
    _mark: Option<File>,
}

impl HugepageReserve {
    /// Ensures that at least `pages` pages of 2 MiB are free, and a few more if possible. While other reserves exist,
    /// the free pages belong to them, so this reserve adds `pages` pages of its own.
    ///
    /// # Errors
    /// [`HugepageError`]: the pool has too few pages, or cannot be changed. It is then unchanged.
    pub fn of(pages: u64) -> Result<Self, HugepageError> {
        let until = Instant::now() + PATIENCE;
        loop {
            match Self::in_pool(Path::new(POOL), pages) {
                Err(HugepageError::NotEnough { .. }) if Instant::now() < until => {}
                result => return result,
            }
            // Fragmented memory is compacted. A user without the right to do that gets an error after the last attempt.
            let _ = fs::write(COMPACT, "1");
            sleep(PAUSE);
        }
    }

    fn in_pool(pool: &Path, pages: u64) -> Result<Self, HugepageError> {
        let free_file = pool.join("free_hugepages");
        let lock = lock(pool)?;
        let (mark, is_only) = mark(&free_file)?;
        let free = available(pool)?;
        let mut reserve = Self { pool: pool.to_owned(), added: 0, _mark: Some(mark) };
        if is_only && free >= pages {
            return Ok(reserve);
        }
        let missing = if is_only { pages - free } else { pages };
        let (former, surplus) = (persistent(pool)?, read_number(&pool.join("surplus_hugepages"))?);
        // Surplus pages, which programs still use, become persistent when the number is raised. So they are included
        // in the number.
        write_number(&pool.join("nr_hugepages"), former + surplus + missing + SPARE_PAGES)?;
        // The kernel adds as many pages as it finds, without an error.
        reserve.added = persistent(pool)?.saturating_sub(former);
        let found = available(pool)?;
        drop(lock);
        if found < pages {
            return Err(HugepageError::NotEnough { wanted: pages, available: found });
        }
        Ok(reserve)
    }

    /// Whether the pool had to be enlarged.
    #[must_use]
    pub fn enlarged(&self) -> bool {
        self.added > 0
    }
}

impl Drop for HugepageReserve {
    fn drop(&mut self) {
        if self.added > 0
            && let Ok(_lock) = lock(&self.pool)
            && let Ok(persistent) = persistent(&self.pool)
        {
            // A destructor cannot report this error. The number remains visible in `ringroad doctor` and /proc/meminfo.
            let _ = write_number(&self.pool.join("nr_hugepages"), persistent.saturating_sub(self.added));
        }
    }
}

/// Locks the pool: other processes cannot change it until the lock is dropped.
fn lock(pool: &Path) -> Result<File, HugepageError> {
    let file = pool.join("nr_hugepages");
    let lock = File::open(&file).and_then(|opened| {
        flock(&opened, FlockOperation::LockExclusive)?;
        Ok(opened)
    });
    lock.map_err(cannot("lock", &file))
}

/// Marks a reserve by a lock that all reserves share. Returns also whether there is no other reserve. Marks are made
/// one at a time, under the pool's [`lock`].
fn mark(file: &Path) -> Result<(File, bool), HugepageError> {
    let marked = File::open(file).and_then(|opened| {
        let is_only = flock(&opened, FlockOperation::NonBlockingLockExclusive).is_ok();
        flock(&opened, FlockOperation::LockShared)?;
        Ok((opened, is_only))
    });
    marked.map_err(cannot("lock", file))
}

/// Returns the number of pages that a program can still get. The kernel's free pages include pages that are mapped but
/// not touched yet, which it keeps for their user (Documentation/admin-guide/mm/hugetlbpage.rst, `resv_hugepages`).
fn available(pool: &Path) -> Result<u64, HugepageError> {
    let free = read_number(&pool.join("free_hugepages"))?;
    Ok(free.saturating_sub(read_number(&pool.join("resv_hugepages"))?))
}

/// Returns the number of configured pages of the pool. `nr_hugepages` includes surplus pages: pages removed from the
/// pool but still in use, which are freed by their user.
fn persistent(pool: &Path) -> Result<u64, HugepageError> {
    let all = read_number(&pool.join("nr_hugepages"))?;
    Ok(all.saturating_sub(read_number(&pool.join("surplus_hugepages"))?))
}

/// Kind of memory for DPDK peers in this run.
#[derive(Debug)]
pub enum PeerMemory {
    /// Anonymous huge pages, reserved for the length of each turn.
    Hugepages {
        /// Number of 2 MiB pages that a turn needs.
        pages: u64,
        /// Whether the pool has to be enlarged for a turn.
        enlarged: bool,
    },
    /// Ordinary pages, which cost a peer more address translations.
    OrdinaryPages { reason: String },
}

impl PeerMemory {
    /// Chooses huge pages if `pages` pages are available now, else ordinary pages.
    #[must_use]
    pub fn arrange(pages: u64) -> Self {
        match HugepageReserve::of(pages) {
            Ok(reserve) => Self::Hugepages { pages, enlarged: reserve.enlarged() },
            Err(error) => Self::OrdinaryPages { reason: error.to_string() },
        }
    }

    /// Reserves the pages for one turn, and not longer: every program, Ringroad included, can take free pages of the
    /// pool.
    ///
    /// # Errors
    /// [`HugepageError`]: the pages are no longer available.
    pub fn lend(&self) -> Result<Option<HugepageReserve>, HugepageError> {
        match self {
            Self::Hugepages { pages, .. } => HugepageReserve::of(*pages).map(Some),
            Self::OrdinaryPages { .. } => Ok(None),
        }
    }

    /// Formats a line for the report.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Hugepages { enlarged: true, .. } => {
                "2 MiB huge pages, the pool enlarged for each turn and restored".into()
            }
            Self::Hugepages { enlarged: false, .. } => "2 MiB huge pages, free in the pool".into(),
            Self::OrdinaryPages { reason } => format!("ordinary pages (--no-huge): {reason}"),
        }
    }
}

fn read_number(file: &Path) -> Result<u64, HugepageError> {
    let text = fs::read_to_string(file).map_err(cannot("read", file))?;
    text.trim().parse().map_err(|_| HugepageError::Unreadable(file.to_owned()))
}

fn write_number(file: &Path, number: u64) -> Result<(), HugepageError> {
    fs::write(file, format!("{number}\n")).map_err(cannot("write", file))
}

fn cannot(action: &'static str, file: &Path) -> impl FnOnce(io::Error) -> HugepageError {
    let file = file.to_owned();
    move |source| HugepageError::Pool { action, file, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(total: u64, free: u64) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        write_number(&folder.path().join("nr_hugepages"), total).unwrap();
        write_number(&folder.path().join("free_hugepages"), free).unwrap();
        write_number(&folder.path().join("surplus_hugepages"), 0).unwrap();
        write_number(&folder.path().join("resv_hugepages"), 0).unwrap();
        folder
    }

    fn total(pool: &tempfile::TempDir) -> u64 {
        read_number(&pool.path().join("nr_hugepages")).unwrap()
    }

    #[test]
    fn enough_free_pages_leave_the_pool_alone() {
        let pool = pool(10, 8);
        let reserve = HugepageReserve::in_pool(pool.path(), 8).unwrap();
        assert!(!reserve.enlarged());
        drop(reserve);
        assert_eq!(total(&pool), 10);
    }

    #[test]
    fn a_second_reserve_has_pages_of_its_own() {
        let pool = pool(10, 9);
        let first = HugepageReserve::in_pool(pool.path(), 8).unwrap();
        assert!(!first.enlarged());
        let second = HugepageReserve::in_pool(pool.path(), 8).unwrap();
        assert_eq!(total(&pool), 10 + 8 + SPARE_PAGES);
        drop((first, second));
        assert_eq!(total(&pool), 10);
        assert!(!HugepageReserve::in_pool(pool.path(), 8).unwrap().enlarged());
    }

    #[test]
    fn pages_that_others_mapped_and_did_not_touch_are_not_free() {
        let pool = pool(10, 9);
        write_number(&pool.path().join("resv_hugepages"), 4).unwrap();
        let reserve = HugepageReserve::in_pool(pool.path(), 8);
        // Plain files stand for sysfs, so the number of free pages never changes.
        assert!(matches!(reserve, Err(HugepageError::NotEnough { wanted: 8, available: 5 })));
    }

    #[test]
    fn a_kernel_that_gives_too_little_is_an_error_and_the_pool_is_restored() {
        // Plain files stand for sysfs, so the number of free pages never changes, as with fragmented memory.
        let pool = pool(10, 3);
        let error = HugepageReserve::in_pool(pool.path(), 8).unwrap_err();
        assert!(matches!(error, HugepageError::NotEnough { wanted: 8, available: 3 }));
        assert_eq!(total(&pool), 10);
    }

    #[test]
    fn the_former_number_is_restored_after_a_panic() {
        let pool = pool(15, 3);
        let result = std::panic::catch_unwind(|| {
            let _reserve = HugepageReserve { pool: pool.path().to_owned(), added: 5, _mark: None };
            panic!("a peer went wrong");
        });
        assert!(result.is_err());
        assert_eq!(total(&pool), 10);
    }

    #[test]
    fn removed_pages_that_are_still_in_use_do_not_count_as_the_pools_own() {
        // Nine surplus pages and none persistent: the kernel counts surplus pages in nr_hugepages.
        let pool = pool(9, 0);
        write_number(&pool.path().join("surplus_hugepages"), 9).unwrap();
        assert_eq!(persistent(pool.path()).unwrap(), 0);
        let reserve = HugepageReserve { pool: pool.path().to_owned(), added: 137, _mark: None };
        // State of the kernel after the number was raised to 137.
        write_number(&pool.path().join("nr_hugepages"), 137).unwrap();
        write_number(&pool.path().join("surplus_hugepages"), 0).unwrap();
        drop(reserve);
        assert_eq!(total(&pool), 0);
    }

    #[test]
    fn a_machine_without_the_pool_differs_from_one_without_memory() {
        let folder = tempfile::tempdir().unwrap();
        let error = HugepageReserve::in_pool(folder.path(), 1).unwrap_err();
        assert!(matches!(error, HugepageError::Pool { action: "lock", .. }), "{error}");
    }
}
