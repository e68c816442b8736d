//! Fates of frames, written into a plan for many frames at once where they are the same.

use ringroad_port::plan::{Fate, Plan};

/// Fates of one frame after the other.
#[derive(Debug)]
pub(crate) struct Fates {
    /// The first frame of the batch that is decided.
    first: usize,
    /// The first frame of those whose fate is not written yet.
    begin: usize,
    /// Their fate.
    fate: Option<Fate>,
}

impl Fates {
    pub fn new(first: usize) -> Self {
        Self { first, begin: first, fate: None }
    }

    /// The fate of the next frame, which is `frame`.
    #[inline]
    pub fn set(&mut self, plan: &mut Plan, frame: usize, fate: Fate) {
        let is_same = match (self.fate, fate) {
            // Most frames.
            (Some(Fate::Port(last)), Fate::Port(port)) => last == port,
            (last, fate) => last == Some(fate),
        };
        if !is_same {
            self.change(plan, frame, fate);
        }
    }

    #[inline(never)]
    fn change(&mut self, plan: &mut Plan, frame: usize, fate: Fate) {
        self.write(plan, frame);
        (self.begin, self.fate) = (frame, Some(fate));
    }

    /// Writes the fates of all frames before `end`.
    pub fn write(&mut self, plan: &mut Plan, end: usize) {
        if let Some(fate) = self.fate.take() {
            plan.fates_mut(self.begin..end).fill(fate);
        }
    }

    /// The same, where no frame follows.
    pub fn finish(self, plan: &mut Plan, end: usize) {
        match self.fate {
            Some(fate) if self.begin == self.first => plan.set_common(self.first..end, fate),
            Some(fate) => plan.fates_mut(self.begin..end).fill(fate),
            None => {}
        }
    }
}
