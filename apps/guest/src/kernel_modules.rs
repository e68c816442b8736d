//! Kernel modules and their loading order, from the dependencies that each module declares.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

use crate::error::GuestError;
use crate::kernel::Kernel;
use crate::program::output_of;

/// Extensions of compressed modules, and the commands that uncompress them to standard output.
const COMPRESSED: [(&str, &str); 3] = [("xz", "xz"), ("zst", "zstd"), ("gz", "gzip")];

/// An uncompressed module.
#[derive(Debug)]
pub(crate) struct Module {
    /// Name of the module, with underscores.
    pub(crate) name: String,
    /// Content of the module's file.
    pub(crate) content: Vec<u8>,
}

/// Returns the modules `wanted` and all their dependencies, each module after its dependencies. Built-in modules are
/// omitted.
pub(crate) fn load_order(kernel: &Kernel, wanted: &[&str]) -> Result<Vec<Module>, GuestError> {
    let mut loader = Loader { kernel, files: HashMap::new(), built_in: built_in(kernel), order: Vec::new() };
    find_files(&kernel.modules.join("kernel"), &mut loader.files)?;
    wanted.iter().try_for_each(|module| loader.add(module))?;
    Ok(loader.order)
}

struct Loader<'a> {
    kernel: &'a Kernel,
    files: HashMap<String, PathBuf>,
    built_in: Vec<String>,
    order: Vec<Module>,
}

impl Loader<'_> {
    fn add(&mut self, module: &str) -> Result<(), GuestError> {
        if self.order.iter().any(|loaded| loaded.name == module) {
            return Ok(());
        }
        // The removal makes a circular dependency end in an error.
        let Some(file) = self.files.remove(module) else {
            let version = self.kernel.version.clone();
            let known = self.built_in.iter().any(|built_in| built_in == module);
            return if known {
                Ok(())
            } else {
                Err(GuestError::NoModule { version, module: module.to_owned() })
            };
        };
        let content = read(&file)?;
        for needed in dependencies(&file, &content)? {
            self.add(&needed)?;
        }
        self.order.push(Module { name: module.to_owned(), content });
        Ok(())
    }
}

fn built_in(kernel: &Kernel) -> Vec<String> {
    // A kernel package without this list has no built-in modules.
    let listed = fs::read_to_string(kernel.modules.join("modules.builtin")).unwrap_or_default();
    listed.lines().filter_map(|line| module_name(Path::new(line))).collect()
}

fn find_files(folder: &Path, files: &mut HashMap<String, PathBuf>) -> Result<(), GuestError> {
    for entry in fs::read_dir(folder).map_err(GuestError::file("read", folder))? {
        let entry = entry.map_err(GuestError::file("read", folder))?;
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            find_files(&path, files)?;
        } else if let Some(name) = module_name(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// Returns the name of a module's file: `virtio_rng` for `.../virtio-rng.ko.xz`.
fn module_name(file: &Path) -> Option<String> {
    let (name, ending) = file.file_name()?.to_str()?.split_once(".ko")?;
    let known =
        ending.is_empty() || COMPRESSED.iter().any(|(known, _)| ending.strip_prefix('.') == Some(known));
    known.then(|| name.replace('-', "_"))
}

fn read(file: &Path) -> Result<Vec<u8>, GuestError> {
    let ending = file.extension().and_then(|ending| ending.to_str());
    match COMPRESSED.iter().find(|(compressed, _)| ending == Some(compressed)) {
        Some((_, program)) => output_of(Command::new(program).arg("-dc").arg(file)),
        None => fs::read(file).map_err(GuestError::file("read", file)),
    }
}

/// Returns the value of `depends=` in a module's section `.modinfo`: names separated by commas.
fn dependencies(file: &Path, content: &[u8]) -> Result<Vec<String>, GuestError> {
    let bad = |reason: String| GuestError::BadModule { path: file.to_owned(), reason };
    let elf: ElfFile64 = ElfFile64::parse(content).map_err(|error| bad(error.to_string()))?;
    let section =
        elf.section_by_name(".modinfo").ok_or_else(|| bad("it has no section .modinfo".to_owned()))?;
    let information = section.data().map_err(|error| bad(error.to_string()))?;
    let depends = information.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(depends.unwrap_or_default()).replace('-', "_");
    Ok(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_named_after_its_file_with_underscores() {
        let name = |file: &str| module_name(Path::new(file));
        assert_eq!(name("drivers/char/virtio-rng.ko").as_deref(), Some("virtio_rng"));
        assert_eq!(name("virtio_net.ko.xz").as_deref(), Some("virtio_net"));
        assert_eq!(name("modules.order"), None);
        assert_eq!(name("x.ko.old"), None);
    }

    #[test]
    fn a_missing_module_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("kernel")).unwrap();
        fs::write(folder.path().join("modules.builtin"), "kernel/net/ipv6/ipv6.ko\n").unwrap();
        fs::write(folder.path().join("kernel/empty.ko"), "").unwrap();
        let kernel =
            Kernel { version: "6.1".into(), image: PathBuf::new(), modules: folder.path().to_owned() };
        assert!(load_order(&kernel, &["ipv6"]).unwrap().is_empty());
        let missing = load_order(&kernel, &["bridge"]).unwrap_err();
        assert!(missing.to_string().starts_with("kernel 6.1 has no module bridge"), "{missing}");
        assert!(matches!(load_order(&kernel, &["empty"]), Err(GuestError::BadModule { .. })));
    }
}
