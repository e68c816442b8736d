//! Outcomes of frames, written into a plan for many frames at once if they are the same.

use ringroad_port::forwarding_plane::{BatchPlan, Outcome};

/// Outcomes of consecutive frames.
#[derive(Debug)]
pub(crate) struct OutcomeRun {
    /// First decided frame of the batch.
    first: usize,
    /// First frame whose outcome is not written yet.
    begin: usize,
    /// Outcome of the frames from `begin` on.
    outcome: Option<Outcome>,
}

impl OutcomeRun {
    pub fn new(first: usize) -> Self {
        Self { first, begin: first, outcome: None }
    }

    /// Sets the outcome of the next frame, which is `frame`.
    #[inline]
    pub fn set(&mut self, plan: &mut BatchPlan, frame: usize, outcome: Outcome) {
        let is_same = match (self.outcome, outcome) {
            // The case of most frames, without a comparison of other outcomes.
            (Some(Outcome::Port(last)), Outcome::Port(port)) => last == port,
            (last, outcome) => last == Some(outcome),
        };
        if !is_same {
            self.change(plan, frame, outcome);
        }
    }

    #[inline(never)]
    fn change(&mut self, plan: &mut BatchPlan, frame: usize, outcome: Outcome) {
        self.write(plan, frame);
        (self.begin, self.outcome) = (frame, Some(outcome));
    }

    /// Writes the outcomes of all frames before `end`.
    pub fn write(&mut self, plan: &mut BatchPlan, end: usize) {
        if let Some(outcome) = self.outcome.take() {
            plan.outcomes_mut(self.begin..end).fill(outcome);
        }
    }

    /// Writes the outcomes of all frames before `end`, after which no frame follows.
    pub fn finish(self, plan: &mut BatchPlan, end: usize) {
        match self.outcome {
            Some(outcome) if self.begin == self.first => plan.set_common(self.first..end, outcome),
            Some(outcome) => plan.outcomes_mut(self.begin..end).fill(outcome),
            None => {}
        }
    }
}
