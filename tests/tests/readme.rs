//! Checks of README: its commands print the output that it shows, and everything that it names exists. The same for the
//! first commands of `docs/installation.md`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ringroad_tests::command::{run, stderr};
use ringroad_tests::daemon::{Daemon, binary};
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

/// Units that may change with the size of a number.
const UNITS: [&str; 7] = ["ns", "µs", "ms", "s", "pps", "kpps", "Mpps"];

/// Beginnings of lines in README that cannot run here: they need root, a guest or a foreign program, or have no end.
/// Each entry names the test that runs such lines, and a part of this test.
const ELSEWHERE: [(&str, &str, &str); 22] = [
    ("ringroad down", "tests/tests/cli.rs", r#""down""#),
    ("ringroad trial", "tests/tests/generator.rs", r#""trial""#),
    ("ringroad otg", "tests/clients/conftest.py", r#""otg""#),
    ("ringroad capture", "tests/tests/capture.rs", r#""capture""#),
    ("ringroad run -- tcpdump", "tests/tests/pcap_programs.rs", r#""tcpdump""#),
    ("ringroad run -- ./program", "tests/tests/netmap_device.rs", r#""run""#),
    ("ringroad trace", "tests/tests/trace.rs", r#""trace""#),
    ("ringroad sflow", "tests/tests/sflow.rs", r#""sflow""#),
    ("ringroad metrics --listen", "tests/clients/test_metrics.py", r#""--listen""#),
    ("ringroad vm", "tests/tests/guests.rs", r#""vm""#),
    ("ringroad testpmd", "tests/tests/guests.rs", r#""testpmd""#),
    ("ringroad container", "tests/tests/guests.rs", r#""container""#),
    ("ringroad link", "tests/tests/link.rs", r#""link""#),
    ("ringroad attach vale0:vm --driver vhost-user:/", "tests/tests/vhost_user.rs", r#""vhost-user:"#),
    ("ringroad attach vale0:card --driver sze2:", "tests/tests/sze2.rs", r#""sze2:"#),
    ("ringroad attach vale0:eth0 --host", "tests/tests/host_rings.rs", r#""--host""#),
    ("ringroad recv eth0", "tests/tests/interfaces.rs", r#""recv""#),
    ("ringroad bench", "tests/tests/bench_sze2.rs", r#""bench""#),
    ("ringroad-lab documents", "lab/tests/documents/test_documents_verb.py", r#""documents""#),
    ("cargo run --example firewall", "tests/tests/host_rings.rs", "examples/firewall"),
    ("cc program.c", "scripts/test-installation", "pkg-config --cflags --libs"),
    ("with ringroad.Port(", "crates/python/recipes/send_frame.py", "with ringroad.Port("),
];

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(checkout().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Lines of each code block.
fn blocks(page: &str) -> Vec<Vec<&str>> {
    let parts = page.split("```").skip(1).step_by(2);
    parts.map(|block| block.lines().skip(1).collect()).collect()
}

/// Code spans within lines.
fn spans(page: &str) -> Vec<&str> {
    let prose = page.split("```").step_by(2);
    prose.flat_map(|prose| prose.split('`').skip(1).step_by(2)).collect()
}

/// Everything in README that a user may type, without the prompt.
fn commands(page: &str) -> Vec<&str> {
    let shown = blocks(page).concat().into_iter().filter_map(|line| line.strip_prefix("$ "));
    shown.chain(spans(page).into_iter().map(|span| span.strip_prefix("# ").unwrap_or(span))).collect()
}

/// Output that the page shows in a block.
fn shown_output<'a>(block: &[&'a str]) -> Vec<&'a str> {
    block.iter().copied().filter(|line| !line.starts_with("$ ")).collect()
}

/// Length of the number with which `text` begins, groups of digits, decimals and unit included.
fn number_len(text: &str) -> usize {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut len = digits(text);
    if len == 0 {
        return 0;
    }
    while text[len..].starts_with(' ') && digits(&text[len + 1..]) == 3 {
        len += 4;
    }
    if text[len..].starts_with('.') {
        len += 1 + digits(&text[len + 1..]);
    }
    let unit =
        text[len..].strip_prefix(' ').and_then(|rest| rest.split(|c: char| !c.is_alphanumeric()).next());
    len + unit.filter(|unit| UNITS.contains(unit)).map_or(0, |unit| 1 + unit.len())
}

/// A line in the form for comparisons: `#` for each number with its unit, and one space for several. Digits within a
/// word, as of `vale0` and `p99.9`, stay.
fn comparable(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(next) = rest.chars().next() {
        let in_word = text.ends_with(|last: char| last.is_alphanumeric() || ".:_".contains(last));
        let number = if in_word { 0 } else { number_len(rest) };
        if number > 0 {
            text.push('#');
        } else if next != ' ' || !text.ends_with(' ') {
            text.push(next);
        }
        rest = &rest[number.max(next.len_utf8())..];
    }
    text
}

/// Whether a program printed the output that a page shows. Each number may differ, and columns may be wider. `...` at
/// the end of a line stands for the rest of the line, and a line `...` stands for any number of lines. All else is
/// literal.
fn matches(shown: &[&str], printed: &[&str]) -> bool {
    let Some((first, later)) = shown.split_first() else { return printed.is_empty() };
    if *first == "..." {
        return (0..=printed.len()).any(|left_out| matches(later, &printed[left_out..]));
    }
    let Some((line, printed)) = printed.split_first() else { return false };
    let (first, line) = (comparable(first), comparable(line));
    let is_same = match first.strip_suffix("...") {
        Some(begin) => line.starts_with(begin),
        None => line == first,
    };
    is_same && matches(later, printed)
}

/// A shell in a folder of its own, with the binaries under test in its path, and a daemon's socket.
fn shell(folder: &Path, socket: &Path, script: &str) -> Command {
    let examples = folder.join("examples");
    if !examples.exists() {
        symlink(checkout().join("examples"), examples).unwrap();
    }
    let programs = binary("ringroad").parent().unwrap().display().to_string();
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(folder).stdin(Stdio::null());
    shell
        .env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()))
        .env("RINGROAD_SOCKET", socket);
    shell
}

/// The folder of a session, and the processes that it started. Both end with the session.
struct Session {
    folder: TempDir,
    group: Option<Pid>,
}

impl Session {
    fn shell(&self, script: &str) -> Command {
        shell(self.folder.path(), &self.folder.path().join("r.sock"), script)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = run(self.shell("ringroad --quiet down"));
    }
}

/// Output of a block's commands, typed one after the other in a folder without a daemon.
fn printed_by(block: &[&str]) -> String {
    let folder = tempfile::Builder::new().prefix("ringroad-readme-").tempdir().unwrap();
    let mut session = Session { folder, group: None };
    let typed: Vec<&str> = block.iter().filter_map(|line| line.strip_prefix("$ ")).collect();
    let mut shell = session.shell(&typed.join("\n"));
    // The output goes to a file, since a command in the background would hold a pipe open.
    let output = session.folder.path().join("output");
    let file = File::create(&output).unwrap();
    shell.process_group(0).stdout(file.try_clone().unwrap()).stderr(file);
    let mut child = shell.spawn().unwrap();
    session.group = Some(Pid::from_child(&child));
    child.wait().unwrap();
    std::fs::read_to_string(output).unwrap()
}

/// Blocks of a page that begin with a command of Ringroad.
fn sessions(page: &str) -> impl Iterator<Item = Vec<&str>> {
    blocks(page).into_iter().filter(|block| block.first().is_some_and(|line| line.starts_with("$ ringroad ")))
}

/// Output of a block's commands, which is as the block shows it. `path` is the page.
fn printed_as_shown(path: &str, block: &[&str]) -> String {
    let shown = shown_output(block);
    // On a machine that stands still for longer than the generator's --drain, the generator has more to report.
    let mut printed = String::new();
    let is_as_shown = (0..5).any(|_| {
        printed = printed_by(block);
        matches(&shown, &printed.lines().collect::<Vec<_>>())
    });
    assert!(is_as_shown, "{path} shows\n{}\nand not\n{printed}", shown.join("\n"));
    printed
}

#[test]
fn the_first_commands_after_an_installation_print_what_is_shown() {
    let page = read("docs/installation.md");
    let block = sessions(&page).next().unwrap();
    let printed = printed_as_shown("docs/installation.md", &block);
    assert!(printed.contains("1 000 received, 0 lost,"), "{printed}");
}

#[test]
fn commands_print_what_is_shown() {
    let page = read("README.md");
    assert!(sessions(&page).next().is_some());
    for block in sessions(&page) {
        let printed = printed_as_shown("README", &block);
        // The counts of generator and switch agree.
        let counts: Vec<&str> =
            printed.split("no_space ").skip(1).map(|rest| &rest[..number_len(rest)]).collect();
        assert!(counts.len() == 2 && counts[0] == counts[1], "{printed}");
        assert!(printed.contains(&format!(" received, {} lost", counts[0])), "{printed}");
    }
}

#[test]
fn another_word_or_line_is_not_what_is_shown() {
    let same = [
        ("a: 2 550 received, 10 lost (0.39 %)", "a: 17 received, 1 234 567 lost (100.00 %)"),
        ("latency p50 1.5 µs, max 3.00 s at 999.5 pps", "latency p50 12.31 ms, max 812 ns at 1.250 Mpps"),
        ("port     drops        state", "port     drops            state"),
        ("latency min 1.0 µs, p99 3 ms, ...", "latency min 7 ns, p99 3 ms, p99.9 8 ms"),
    ];
    for (shown, printed) in same {
        assert!(matches(&[shown], &[printed]), "{shown}\n{printed}");
    }
    let others = [
        ("no_space 10", "not_bound 10"),
        ("vale0:b: 1 lost", "vale1:b: 1 lost"),
        ("p99 1 ms", "p99.9 1 ms"),
        ("0  2 550  no_space", "2 550  no_space"),
        ("10 lost", "many lost"),
        ("10 lost", "10 lost, 3 late"),
        ("latency min 1.0 µs, ...", "delay min 1.0 µs, p99 2 ms"),
    ];
    for (shown, printed) in others {
        assert!(!matches(&[shown], &[printed]), "{shown}\n{printed}");
    }
    assert!(matches(&["a", "...", "d"], &["a", "b", "c", "d"]) && matches(&["a", "...", "d"], &["a", "d"]));
    assert!(!matches(&["a", "...", "d"], &["a", "b"]) && !matches(&["a"], &["a", "b"]));

    // Each word that README shows matters: another word in its position must not match.
    let page = read("README.md");
    for block in blocks(&page).into_iter().filter(|block| block[0].starts_with("$ ")) {
        let printed = shown_output(&block);
        assert!(matches(&printed, &printed));
        for (number, line) in printed.iter().enumerate() {
            for word in line.split(' ').filter(|word| word.contains(char::is_alphabetic)) {
                if UNITS.contains(&word.trim_matches(|c: char| !c.is_alphanumeric())) {
                    continue;
                }
                let wrong = line.replacen(word, "wrong", 1);
                let shown = [&printed[..number], &[wrong.as_str()], &printed[number + 1..]].concat();
                assert!(!matches(&shown, &printed), "{wrong}");
            }
        }
    }
}

#[test]
fn every_line_is_run_here_or_by_another_test() {
    let page = read("README.md");
    for line in spans(&page) {
        let (line, needs_root) = match line.strip_prefix("# ") {
            Some(line) => (line, true),
            None => (line, false),
        };
        if line.starts_with("let ") {
            assert!(include_str!("readme.rs").contains(line), "{line}: no test compiles it");
        } else if let Some((_, test, evidence)) = ELSEWHERE.iter().find(|(begin, ..)| line.starts_with(begin))
        {
            assert!(read(test).contains(evidence), "{line}: {test} has no {evidence}");
        } else if line.starts_with("ringroad ") {
            assert!(!needs_root, "{line}: no test runs it");
            let daemon = Daemon::start();
            let output = run(shell(daemon.folder(), &daemon.socket(), line));
            assert!(output.status.success(), "{line}: {}", stderr(&output));
        } else {
            // The line is a name, or a target of the Makefile.
            assert!(!line.contains(' ') || line.starts_with("make "), "{line}: no test runs it");
        }
    }
}

/// README's example in Rust.
#[expect(dead_code, reason = "it is enough that it compiles")]
fn in_rust() -> Result<(), Box<dyn std::error::Error>> {
    let mut port = ringroad::Port::open("vale0:a")?;
    port.tx().send(&[0xFF; 60])?;
    Ok(())
}

#[test]
fn every_verb_option_and_value_is_one_of_the_program() {
    let page = read("README.md");
    let folder = tempfile::tempdir().unwrap();
    let lines = commands(&page).into_iter().filter(|line| line.starts_with("ringroad "));
    let mut parsed = 0;
    for line in lines {
        // The program parses all arguments before --help, and then prints its help.
        let question = match line.split_once(" -- ") {
            Some((before, after)) => format!("{before} --help -- {after}"),
            None => format!("{line} --help"),
        };
        let answer = run(shell(folder.path(), &folder.path().join("r.sock"), &question));
        assert!(answer.status.success(), "{line}: {}", stderr(&answer));
        parsed += 1;
    }
    assert!(parsed > 20, "{parsed} lines");
    for kind in ["vhost-user", "memif", "veth", "tap", "pcap"] {
        assert!(blocks(&page)[0].concat().contains(kind), "the picture has {kind}");
        let question = format!("ringroad kinds {kind}");
        assert!(
            run(shell(folder.path(), &folder.path().join("r.sock"), &question)).status.success(),
            "{kind}"
        );
    }
}

#[test]
fn every_target_is_one_of_the_makefile() {
    let page = read("README.md");
    let makefile = read("Makefile");
    let targets: Vec<&str> =
        commands(&page).into_iter().filter_map(|line| line.strip_prefix("make ")).collect();
    assert!(targets.contains(&"demo") && targets.contains(&"test"), "{targets:?}");
    for target in targets {
        assert!(makefile.contains(&format!("\n{target}: ")), "make {target}");
    }
    assert!(makefile.contains("\n\t$(TARGET)/demo/ringroad demo\n"), "`make demo` runs what README names");
}

#[test]
fn every_page_and_heading_exists() {
    let page = read("README.md");
    let links: Vec<&str> = page.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
    assert!(links.len() > 20, "{links:?}");
    for link in links {
        let (path, heading) = link.split_once('#').unwrap_or((link, ""));
        let text = read(path);
        let mut headings = text.lines().filter(|line| line.starts_with('#')).map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            words.replace(|c: char| !c.is_alphanumeric() && c != '-' && c != '_', "")
        });
        assert!(heading.is_empty() || headings.any(|known| known == heading), "{link}");
    }
}
