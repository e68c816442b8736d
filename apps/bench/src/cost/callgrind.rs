//! Runs a program under callgrind and reads its counts.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use super::CostError;

/// Name of the part for the standard library.
const STD: &str = "std";

/// Instruction counts of callgrind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallgrindCounts {
    /// Number of instructions by part: a crate, or a library without line information.
    pub parts: BTreeMap<String, f64>,
}

impl CallgrindCounts {
    /// Returns the number of instructions of all parts.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.parts.values().sum()
    }

    /// Returns `self` plus `factor` times `other`, part by part.
    #[must_use]
    pub fn plus(&self, factor: f64, other: &Self) -> Self {
        let mut sum = self.clone();
        for (part, count) in &other.parts {
            *sum.parts.entry(part.clone()).or_default() += factor * count;
        }
        sum
    }

    /// Returns each part times `factor`.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        Self::default().plus(factor, self)
    }

    /// Parses a file that callgrind wrote with uncompressed names and positions.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut counts = Self::default();
        let (mut object, mut file, mut own) = ("", "", "");
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            match line.split_once('=') {
                Some(("ob", name)) => object = name,
                Some(("fl" | "fi" | "fe", name)) => file = name,
                // A function begins in its own file. Files after the first are of inlined code.
                Some(("fn", _)) => own = file,
                // The callee has counts of its own. The next line is their sum, and is skipped.
                Some(("calls", _)) => drop(lines.next()),
                Some(_) => {}
                None if line.starts_with(|first: char| first.is_ascii_digit()) => {
                    let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<f64>().ok());
                    // Inlined code of the standard library counts as work of its caller.
                    let part = Some(part(object, file)).filter(|part| part != STD);
                    let part = part.unwrap_or_else(|| self::part(object, own));
                    *counts.parts.entry(part).or_default() += cost.unwrap_or_default();
                }
                None => {}
            }
        }
        counts
    }
}

/// Returns the part to which an instruction of `file` belongs: the folder of a crate, the standard library, or the
/// object if the lines are unknown.
fn part(object: &str, file: &str) -> String {
    let folders: Vec<&str> = file.split('/').collect();
    let after = |folder: &str| {
        let at = folders.iter().rposition(|name| *name == folder)?;
        folders.get(at + 1).filter(|_| folders.len() > at + 2).map(|name| (*name).to_owned())
    };
    // Path of a dependency: two folders are between `registry` and the dependency's name.
    let dependency = folders.iter().position(|name| *name == "registry").and_then(|at| folders.get(at + 3));
    if let Some(dependency) = dependency {
        return dependency.rsplit_once('-').map_or(*dependency, |(name, _)| name).to_owned();
    }
    if let Some(part) = ["crates", "apps", "satellites"].into_iter().find_map(after) {
        return part;
    }
    if folders.contains(&"library") {
        return STD.into();
    }
    let name = object.rsplit('/').next().unwrap_or(object);
    name.split(".so").next().unwrap_or(name).to_owned()
}

/// Runs `program` with `words` and `environment` under callgrind, and counts the instructions within the function
/// `counted`. The last word of the program's output is the number of moved frames. The output of callgrind stays in
/// `file`, for callgrind_annotate.
///
/// # Errors
/// [`CostError`]: valgrind is missing, the program failed, or its output is invalid.
pub fn count(
    program: &Path,
    words: &[String],
    environment: &[(String, String)],
    counted: &str,
    file: &Path,
) -> Result<(u64, CallgrindCounts), CostError> {
    let name = words.join(" ");
    let output = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no"])
        .arg(format!("--toggle-collect={counted}"))
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program)
        .args(words)
        .envs(environment.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::null())
        .output()
        .map_err(CostError::Valgrind)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(CostError::Program { program: name, status: output.status, said });
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let frames = said.split_whitespace().next_back().and_then(|word| word.parse().ok());
    let wrong = |what: &str| CostError::Output { program: name.clone(), what: what.into() };
    let frames = frames.ok_or_else(|| wrong("it did not print how many frames it has moved"))?;
    let text =
        std::fs::read_to_string(file).map_err(|source| CostError::File { path: file.to_owned(), source })?;
    let counts = CallgrindCounts::parse(&text);
    if counts.total() == 0.0 {
        return Err(wrong(&format!("callgrind did not see the function {counted}; build with line tables")));
    }
    Ok((frames, counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output in the format of callgrind 3.19.
    const FILE: &str = "\
# callgrind format
events: Ir

ob=/work/target/release/deps/cost-1
fl=apps/bench/benches/cost/main.rs
fn=cost::counted
12 3
cob=/lib/x86_64-linux-gnu/libc.so.6
cfi=???
cfn=memcpy
calls=2 0
13 1000
fi=crates/ring/src/copy.rs
40 7
fi=/rustc/abc/library/core/src/slice/iter.rs
70 2
fe=apps/bench/benches/cost/main.rs
14 1
fl=/rustc/abc/library/alloc/src/vec/mod.rs
fn=alloc::vec::Vec::push
5 20

ob=/lib/x86_64-linux-gnu/libc.so.6
fl=???
fn=memcpy
0 1000

totals: 1033
";

    #[test]
    fn each_instruction_counts_once_for_the_part_it_was_written_in() {
        let counts = CallgrindCounts::parse(FILE);
        let expected = [("bench", 6.0), ("libc", 1000.0), ("ring", 7.0), ("std", 20.0)];
        assert_eq!(counts.parts, expected.map(|(part, count)| (part.to_owned(), count)).into());
        assert_eq!(counts.total(), 1033.0);
    }

    #[test]
    fn the_difference_is_taken_part_by_part() {
        let counts = CallgrindCounts::parse(FILE);
        let half = counts.plus(-0.5, &counts);
        assert_eq!((half.total(), half.parts["ring"]), (516.5, 3.5));
        assert_eq!(counts.times(0.1).parts["libc"], 100.0);
    }

    #[test]
    fn dependencies_and_the_standard_library_are_parts_by_their_names() {
        for (file, expected) in [
            ("/root/.cargo/registry/src/index.crates.io-1949/crc32c-0.6.8/src/lib.rs", "crc32c"),
            ("/rustc/abc/library/core/src/slice/iter.rs", STD),
            ("/src/satellites/libsze2/src/szecard.rs", "libsze2"),
            ("crates/ring/src/copy.rs", "ring"),
            ("???", "libc"),
        ] {
            assert_eq!(part("/lib/libc.so.6", file), expected, "{file}");
        }
    }
}
