//! `ringroad vm kernel`.

use std::path::PathBuf;

use clap::Args;
use ringroad_guest::Kernel;

use crate::failure::Failure;
use crate::output::Output;

/// Find the kernel for guests, or fetch it
///
/// Takes the first kernel that it finds: below --kernel, below $RINGROAD_KERNEL_DIR, this machine's own in /boot, a
/// kernel fetched before. Otherwise it fetches Debian's linux-image-cloud-amd64, and unpacks it into
/// $RINGROAD_CACHE_DIR or ringroad in the user's cache.
#[derive(Debug, Args)]
pub(super) struct FindKernel {
    /// Folder into which a linux-image package was unpacked
    #[arg(long, value_name = "DIR")]
    kernel: Option<PathBuf>,
    /// Fetch Debian's kernel into this folder unless the folder has one, even if another kernel is found
    #[arg(long, value_name = "DIR", conflicts_with = "kernel")]
    fetch: Option<PathBuf>,
}

impl FindKernel {
    pub(super) fn run(&self, output: &Output) -> Result<(), Failure> {
        let tell = |line: &str| output.note(line);
        let kernel = match &self.fetch {
            Some(folder) => Kernel::fetched_into(folder, tell)?,
            None => Kernel::find(self.kernel.as_deref(), tell)?,
        };
        output.result(&kernel, |Kernel { version, image, modules }| {
            format!("{version}: {}, modules in {}", image.display(), modules.display())
        })
    }
}
