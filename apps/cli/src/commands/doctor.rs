//! `ringroad doctor`: checks of this machine, with advice. One module per area of checks.

mod interfaces;
mod machine;
mod ringroad_itself;

use std::path::Path;

use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::MainVerb;

/// Check what this machine offers, and advise
///
/// With INTERFACE: by which mechanism Ringroad serves this interface, why by no better one, and what a better one would
/// take. With --all: the same of each interface. Interfaces are only looked at, not opened. They are looked up in the
/// network namespace in which the command runs.
///
/// "fail" stops Ringroad from working here and makes the exit status 1; "warn" costs speed or a feature.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Network interface, such as eth0
    #[arg(value_name = "INTERFACE")]
    interface: Option<String>,
    /// Check each network interface but loopback
    #[arg(long, conflicts_with = "interface")]
    all: bool,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// A check and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    check: &'static str,
    /// Interface that is checked; `None` in checks of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<String>,
    verdict: Verdict,
    /// Text of the finding.
    finding: String,
    /// Advice; empty if there is nothing to do.
    advice: String,
}

impl From<(&'static str, Outcome)> for Check {
    fn from((check, (verdict, finding, advice)): (&'static str, Outcome)) -> Self {
        Self { check, interface: None, verdict, finding, advice }
    }
}

/// Outcome of a check: verdict, finding and advice.
type Outcome = (Verdict, String, String);

fn ok(finding: impl Into<String>) -> Outcome {
    (Verdict::Ok, finding.into(), String::new())
}

fn warn(finding: impl Into<String>, advice: impl Into<String>) -> Outcome {
    (Verdict::Warn, finding.into(), advice.into())
}

fn fail(finding: impl Into<String>, advice: impl Into<String>) -> Outcome {
    (Verdict::Fail, finding.into(), advice.into())
}

/// Makes all checks of the machine.
fn checks(socket: &Path) -> Vec<Check> {
    let checks = [ringroad_itself::checks(socket), machine::checks(), interfaces::checks()].concat();
    checks.into_iter().map(Check::from).collect()
}

#[derive(Debug, Serialize)]
struct Diagnosis {
    healthy: bool,
    checks: Vec<Check>,
}

impl MainVerb for DoctorArgs {
    const EXAMPLES: &str = "\
ringroad doctor
# Whether eth0 gets zero copy, and why not
ringroad doctor eth0
# The same of each interface
ringroad doctor --all";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let checks = match &self.interface {
            Some(interface) => interfaces::checks_of(interface, &global.socket_path())?,
            None if self.all => interfaces::checks_of_all(&global.socket_path())?,
            None => checks(&global.socket_path()),
        };
        let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail);
        let names = failed.map(|check| check.check).collect::<Vec<_>>().join(", ");
        let diagnosis = Diagnosis { healthy: names.is_empty(), checks };
        output.result(&diagnosis, text)?;
        if diagnosis.healthy {
            return Ok(());
        }
        Err(Failure::new(
            format!("Ringroad cannot work here: {names}"),
            "follow the advice at each failed check",
        ))
    }
}

fn text(diagnosis: &Diagnosis) -> String {
    let mut lines = Vec::new();
    let mut interface = &None;
    for check in &diagnosis.checks {
        if check.interface != *interface {
            lines.push(String::new());
            interface = &check.interface;
        }
        let verdict = match check.verdict {
            Verdict::Ok => "ok  ",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        lines.push(format!("{verdict}  {}: {}", check.check, check.finding));
        if !check.advice.is_empty() {
            lines.push(format!("      {}", check.advice));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failed_check_has_advice() {
        let socket = Path::new("/nonexistent/folder/socket");
        let checks = checks(socket);
        assert!(checks.len() > 10);
        let of_links = [interfaces::checks_of("lo", socket), interfaces::checks_of_all(socket)];
        for check in checks.into_iter().chain(of_links.into_iter().flat_map(Result::unwrap)) {
            assert_eq!(check.verdict == Verdict::Ok, check.advice.is_empty(), "{check:?}");
        }
    }

    #[test]
    fn advice_is_printed_below_its_check() {
        let outcomes = [("kernel", ok("6.1")), ("memory", fail("none", "buy some"))];
        let checks = outcomes.map(Check::from).to_vec();
        let text = text(&Diagnosis { healthy: false, checks });
        assert_eq!(text, "ok    kernel: 6.1\nFAIL  memory: none\n      buy some");
    }
}
