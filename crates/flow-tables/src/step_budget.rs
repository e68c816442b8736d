//! The steps that a frame takes through tables, groups and meters. The owner of the frame's port pays for them
//! ([`ringroad_port::forwarding_plane::Decision`]), and one frame may take only so many: other frames of the worker
//! wait meanwhile.

use ringroad_openflow::action::Action;

/// Hash tables that the lookups of one frame may search, entries of merged ones that they may compare, and tables that the
/// interpreter of instructions may go through.
const MAX_SEARCHES: u64 = 2048;
/// Other actions that take about the time of one on headers, which counts as so many.
const ACTIONS_PER_CHANGE: usize = 4;
/// Actions, buckets and meters that one frame may go through, and actions of one list. Each group can multiply those of
/// the groups behind it. It is enough for a group that sends a frame with another header to each port of a switch
/// ([`ringroad_port::port_index::MAX_PORTS`]).
pub(crate) const MAX_ACTIONS: usize = 1536;
/// Buckets that are compared, and bands that measure, in the time of an action.
const BUCKETS_PER_ACTION: usize = 16;
const BANDS_PER_ACTION: usize = 4;

/// Counts the actions of a list, as a frame that goes through all of them does.
pub(crate) fn count_actions(actions: &[Action]) -> usize {
    let changes = actions.iter().filter(|action| action.effect().is_on_headers()).count();
    actions.len() + changes * (ACTIONS_PER_CHANGE - 1)
}

/// What the frames of a batch have taken, and what the present one may still take. (Counters in memory: the common path
/// has no register to spare.)
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepBudget {
    /// Of all frames.
    searched: u64,
    /// How many searches there are when the present frame has had all of its own.
    searches_end: u64,
    /// Of the present frame.
    acted: usize,
}

impl StepBudget {
    /// The first frame begins.
    pub fn new() -> Self {
        Self::of_searches(MAX_SEARCHES)
    }

    /// For a lookup that may search this much, and is done again with more where this is not enough.
    pub fn of_searches(searches: u64) -> Self {
        Self { searched: 0, searches_end: searches, acted: 0 }
    }

    /// The lookups of the next frame begin.
    #[inline]
    pub fn begin(&mut self) {
        self.searches_end = self.searched + MAX_SEARCHES;
    }

    /// The actions of the next frame begin, perhaps after some of its lookups.
    pub fn begin_actions(&mut self, has_searched: bool) {
        self.acted = 0;
        if !has_searched {
            self.begin();
        }
    }

    /// Searches one more hash table, or compares one more entry. False: the frame may not.
    #[inline]
    pub fn search(&mut self) -> bool {
        self.searched += 1;
        self.has_found()
    }

    /// Whether lookups found what there is to find: the frame was allowed all searches that they needed.
    #[inline]
    pub fn has_found(&self) -> bool {
        self.searched <= self.searches_end
    }

    /// Goes through so many actions, or what counts as such. `None`: the frame may not, and may none after that.
    #[inline]
    pub fn act(&mut self, actions: usize) -> Option<()> {
        self.acted += actions;
        if self.acted <= MAX_ACTIONS { Some(()) } else { self.refuse() }
    }

    #[cold]
    fn refuse(&mut self) -> Option<()> {
        self.acted = MAX_ACTIONS;
        None
    }

    /// Changes headers, by an action that [`Self::act`] has counted once.
    #[inline]
    pub fn change(&mut self) -> Option<()> {
        self.act(ACTIONS_PER_CHANGE - 1)
    }

    /// Compares so many buckets, to choose one.
    pub fn compare(&mut self, buckets: usize) -> Option<()> {
        self.act(buckets.div_ceil(BUCKETS_PER_ACTION))
    }

    /// Goes through a meter with so many bands.
    pub fn measure(&mut self, bands: usize) -> Option<()> {
        self.act(1 + bands.div_ceil(BANDS_PER_ACTION))
    }

    /// The searches of all frames.
    #[inline]
    pub fn searched(&self) -> u64 {
        self.searched
    }

    /// The actions of the present frame.
    pub fn acted(&self) -> u64 {
        self.acted as u64
    }
}
