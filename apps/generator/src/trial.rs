//! One trial of RFC 2544: learning frames, a wait, the load for its time, a wait for the last frames, a verdict.
//!
//! A trial that the generator could not carry out as configured is *invalid*, whatever the result: its loss does not
//! measure the device under test (DUT). Frames are counted after the load has stopped and the wait is over (RFC 2544,
//! section 23).

use std::time::Duration;

use ringroad::OpenOptions;
use ringroad_traffic::meter::StreamSummary;
use serde::Serialize;

use crate::error::SessionError;
use crate::learning::learning_loads;
use crate::plan::{Load, TestPlan};
use crate::report::SessionReport;
use crate::session::{SessionOptions, TestSession};

/// The settings of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialPlan {
    /// Ports and loads. All loads get the trial's duration, and must have a port that should receive.
    pub plan: TestPlan,
    /// Duration of the load, s (RFC 2544, section 24: 60 s for a result, less in a search).
    pub duration_s: f64,
    /// Whether receiving ports first send frames from which a DUT learns addresses (RFC 2544, section 23).
    pub learning: bool,
    /// Wait between learning frames and load, s (RFC 2544, section 23: 2 s).
    pub settle_s: f64,
    /// Wait for the last frames, s (RFC 2544, section 23: 2 s).
    pub drain_s: f64,
    /// Greatest loss ratio that passes: 0 for RFC 2544's throughput.
    pub acceptable_loss_ratio: f64,
    /// Largest part of the intended frames missing from the offered load, and largest relative error of the duration,
    /// in a valid trial.
    pub tolerance_ratio: f64,
}

/// Outcome of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TrialVerdict {
    /// The loss is acceptable.
    Pass,
    /// The loss is not acceptable.
    Fail,
    /// The generator did not carry the load; the result does not measure the DUT.
    Invalid,
}

/// The result of a trial.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrialReport {
    pub verdict: TrialVerdict,
    /// Reasons why the trial is invalid, one sentence each; empty for a valid trial.
    pub reasons: Vec<String>,
    /// Configured duration, s.
    pub intended_duration_s: f64,
    /// Time from the start of the load to its end, s. If there are several loads: of the load that differs most from
    /// its configured duration.
    pub offered_duration_s: f64,
    /// Configured frames/s, all loads together; absent for the maximum rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intended_fps: Option<f64>,
    /// Sent frames/s, all loads together.
    pub offered_fps: f64,
    /// Received frames/s: distinct intact frames over the offered duration.
    pub forwarding_fps: f64,
    /// Frames due at the configured rate; at the maximum rate, the frames sent.
    pub intended_frames: u64,
    /// Frames sent.
    pub sent_frames: u64,
    /// Distinct frames that arrived.
    pub received_frames: u64,
    /// Frames sent that did not arrive intact. Duplicates do not compensate for lost frames.
    pub lost_frames: u64,
    /// Intended frames that were not sent.
    pub unsent_frames: u64,
    /// Lost frames divided by sent frames.
    pub loss_ratio: f64,
    /// Lost and unsent frames divided by intended frames, for searches that count the generator's failure as loss.
    pub loss_ratio_of_intended: f64,
    /// Greatest loss ratio that passes.
    pub acceptable_loss_ratio: f64,
    /// Copies of frames that had arrived before.
    pub duplicate_frames: u64,
    /// Frames that arrived after a frame that was sent later.
    pub reordered_frames: u64,
    /// Frames that arrived damaged.
    pub corrupted_frames: u64,
    /// The complete results of the session.
    pub report: SessionReport,
}

impl TrialPlan {
    /// A trial of `plan` with the waits of RFC 2544 and no loss accepted.
    #[must_use]
    pub fn new(plan: TestPlan, duration_s: f64) -> Self {
        Self {
            plan,
            duration_s,
            learning: true,
            settle_s: 2.0,
            drain_s: 2.0,
            acceptable_loss_ratio: 0.0,
            tolerance_ratio: 0.001,
        }
    }

    /// Runs the trial. `stopped` is called between the phases and ends the trial early, which makes it invalid.
    ///
    /// # Errors
    /// [`SessionError`] if it cannot begin or a port fails.
    pub fn run(
        &self,
        ports: &OpenOptions,
        options: &SessionOptions,
        stopped: &dyn Fn() -> bool,
    ) -> Result<TrialReport, SessionError> {
        let (plan, learning) = self.with_learning()?;
        let mut session = TestSession::open(plan, ports, options)?;
        let check_interval = Duration::from_millis(100);
        let wait = |session: &TestSession| while !session.wait_sent(check_interval) && !stopped() {};
        if !learning.is_empty() {
            session.start_loads(&learning);
            wait(&session);
            pause(Duration::from_secs_f64(self.settle_s.max(0.0)), stopped);
        }
        let own: Vec<usize> = (0..self.plan.loads.len()).collect();
        if !stopped() {
            session.start_loads(&own);
            wait(&session);
        }
        let was_stopped = stopped();
        let (report, ended) = session.finish(Duration::from_secs_f64(self.drain_s.max(0.0)));
        ended?;
        Ok(self.evaluate(report, was_stopped))
    }

    /// The plan with learning loads appended, and the indexes of these loads.
    fn with_learning(&self) -> Result<(TestPlan, Vec<usize>), SessionError> {
        let mut plan = self.plan.clone();
        plan.check()?;
        for load in &mut plan.loads {
            (load.duration, load.frames) = (Some(self.duration_s), None);
        }
        let own = plan.loads.len();
        if self.learning {
            let loads: Vec<Load> = plan.loads.iter().flat_map(learning_loads).collect();
            plan.loads.extend(loads);
        }
        let learning = (own..plan.loads.len()).collect();
        Ok((plan, learning))
    }

    fn evaluate(&self, mut report: SessionReport, was_stopped: bool) -> TrialReport {
        report.loads.truncate(self.plan.loads.len());
        let arrivals = || report.loads.iter().flat_map(|load| &load.arrivals);
        let sum = |of: fn(&StreamSummary) -> u64| arrivals().map(|arrival| of(&arrival.stream)).sum::<u64>();
        let (received, lost) = (sum(|stream| stream.distinct), sum(|stream| stream.lost));
        let offered = |of: fn(&crate::report::LoadReport) -> u64| report.loads.iter().map(of).sum::<u64>();
        let sent = offered(|load| load.offered.sent_frames);
        let intended = offered(|load| load.offered.intended_frames);
        let unsent = offered(|load| load.offered.shortfall_frames());
        let offered_duration_s = report
            .loads
            .iter()
            .map(|load| load.offered.elapsed_ns as f64 / 1e9)
            .max_by(|a, b| (a - self.duration_s).abs().total_cmp(&(b - self.duration_s).abs()))
            .unwrap_or(0.0);
        // A frame of a load that leads to several ports is expected at each.
        let expected = received + lost;
        let ratio = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let loss_ratio = ratio(lost, expected);
        let mut reasons = Vec::new();
        if was_stopped {
            reasons.push("the trial was stopped before its end".to_owned());
        }
        if sent == 0 {
            reasons.push("the generator sent nothing".to_owned());
        }
        if ratio(unsent, intended) > self.tolerance_ratio {
            reasons.push(format!(
                "the generator sent {:.3} % less than configured ({unsent} of {intended} frames): lower the rate",
                ratio(unsent, intended) * 100.0
            ));
        }
        if (offered_duration_s - self.duration_s).abs() > self.tolerance_ratio.max(1e-3) * self.duration_s {
            reasons.push(format!(
                "the load lasted {offered_duration_s:.6} s instead of {:.6} s",
                self.duration_s
            ));
        }
        for port in report.ports.iter().filter(|port| port.unsent_slots > 0) {
            reasons.push(format!(
                "{} slots of port {} were handed over and never taken: whether their frames are lost is not known",
                port.unsent_slots, port.port
            ));
        }
        let excess = sum(|stream| stream.excess);
        if excess > 0 {
            reasons.push(format!(
                "{excess} more frames arrived than were sent: another trial's frames are among them"
            ));
        }
        let verdict = match (reasons.is_empty(), loss_ratio <= self.acceptable_loss_ratio) {
            (false, _) => TrialVerdict::Invalid,
            (true, true) => TrialVerdict::Pass,
            (true, false) => TrialVerdict::Fail,
        };
        let per_s =
            |frames: u64| if offered_duration_s > 0.0 { frames as f64 / offered_duration_s } else { 0.0 };
        TrialReport {
            verdict,
            reasons,
            intended_duration_s: self.duration_s,
            offered_duration_s,
            intended_fps: report.loads.iter().map(|load| load.intended_fps).sum(),
            offered_fps: per_s(sent),
            forwarding_fps: per_s(received),
            intended_frames: intended,
            sent_frames: sent,
            received_frames: received,
            lost_frames: lost,
            unsent_frames: unsent,
            loss_ratio,
            loss_ratio_of_intended: ratio(lost + unsent, expected + unsent),
            acceptable_loss_ratio: self.acceptable_loss_ratio,
            duplicate_frames: sum(|stream| stream.duplicates),
            reordered_frames: sum(|stream| stream.reordered),
            corrupted_frames: sum(|stream| stream.corrupted),
            report,
        }
    }
}

/// Waits for `span`, or until `stopped` reports an end.
fn pause(span: Duration, stopped: &dyn Fn() -> bool) {
    let until = std::time::Instant::now() + span;
    loop {
        let left = until.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() || stopped() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}
