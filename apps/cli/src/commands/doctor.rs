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
/// With INTERFACE: by which mechanism Ringroad serves this interface, and why by no better one. The interface is only
/// looked at, not opened. It is looked up in the network namespace in which the command runs.
///
/// "fail" stops Ringroad from working here and makes the exit status 1; "warn" costs speed or a feature.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Network interface, such as eth0
    #[arg(value_name = "INTERFACE")]
    interface: Option<String>,
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
    verdict: Verdict,
    /// Text of the finding.
    finding: String,
    /// Advice; empty if there is nothing to do.
    advice: String,
}

impl From<(&'static str, Outcome)> for Check {
    fn from((check, (verdict, finding, advice)): (&'static str, Outcome)) -> Self {
        Self { check, verdict, finding, advice }
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
fn checks(socket: &Path) -> Vec<(&'static str, Outcome)> {
    [ringroad_itself::checks(socket), machine::checks(), interfaces::checks()].concat()
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
ringroad doctor eth0";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let checks = match &self.interface {
            Some(interface) => interfaces::checks_of(interface, &global.socket_path())?,
            None => checks(&global.socket_path()),
        };
        let checks: Vec<Check> = checks.into_iter().map(Check::from).collect();
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
    for check in &diagnosis.checks {
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
        for check in checks.into_iter().chain(interfaces::checks_of("lo", socket).unwrap()) {
            let (_, (verdict, _, advice)) = &check;
            assert_eq!(*verdict == Verdict::Ok, advice.is_empty(), "{check:?}");
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
