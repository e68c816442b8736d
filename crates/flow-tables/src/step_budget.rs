//! Steps that a frame takes through tables, groups and meters. The owner of the frame's port pays for them
//! ([`ringroad_port::forwarding_plane::Decision`]). One frame has a limit, because other frames of the worker wait
//! meanwhile.

use ringroad_openflow::action::Action;

/// Maximum number of searches for one frame: hash tables and merged entries that its lookups compare, and tables that
/// the interpreter of instructions goes through.
const MAX_SEARCHES: u64 = 2048;
/// Cost of an action on headers, in other actions.
const ACTIONS_PER_CHANGE: usize = 4;
/// Maximum number of actions, buckets and meters that one frame goes through, and of actions of one list. Each group
/// can multiply those of the groups behind it. This is enough for a group that sends a frame with another header to
/// each port of a switch ([`ringroad_port::port_index::MAX_PORTS`]).
pub(crate) const MAX_ACTIONS: usize = 1536;
/// Number of buckets compared, and of bands measured, in the time of an action.
const BUCKETS_PER_ACTION: usize = 16;
const BANDS_PER_ACTION: usize = 4;

/// Number of actions that a frame counts if it goes through the whole list.
pub(crate) fn count_actions(actions: &[Action]) -> usize {
    let changes = actions.iter().filter(|action| action.effect().is_on_headers()).count();
    actions.len() + changes * (ACTIONS_PER_CHANGE - 1)
}

/// Steps that the frames of a batch have taken, and the limit of the present frame. (The counters are in memory: the
/// common path has no register to spare.)
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepBudget {
    /// Searches of all frames.
    searched: u64,
    /// Value of `searched` at which the present frame has used up its searches.
    searches_end: u64,
    /// Actions of the present frame.
    acted: usize,
}

impl StepBudget {
    /// Begins the first frame, with the usual limit.
    pub fn new() -> Self {
        Self::of_searches(MAX_SEARCHES)
    }

    /// Begins a lookup with a limit of `searches`. A lookup that needs more is repeated with more.
    pub fn of_searches(searches: u64) -> Self {
        Self { searched: 0, searches_end: searches, acted: 0 }
    }

    /// Begins the lookups of the next frame.
    #[inline]
    pub fn begin(&mut self) {
        self.searches_end = self.searched + MAX_SEARCHES;
    }

    /// Begins the actions of the next frame, perhaps after some of its lookups.
    pub fn begin_actions(&mut self, has_searched: bool) {
        self.acted = 0;
        if !has_searched {
            self.begin();
        }
    }

    /// Counts one more hash table or compared entry. Returns false if the frame is beyond its limit.
    #[inline]
    pub fn search(&mut self) -> bool {
        self.searched += 1;
        self.has_found()
    }

    /// Whether the lookups are complete: the frame was allowed all searches that they needed.
    #[inline]
    pub fn has_found(&self) -> bool {
        self.searched <= self.searches_end
    }

    /// Counts this many actions. Returns `None` if the frame is beyond its limit, from then on for all its actions.
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

    /// Counts a change of headers, by an action that [`Self::act`] has counted once.
    #[inline]
    pub fn change(&mut self) -> Option<()> {
        self.act(ACTIONS_PER_CHANGE - 1)
    }

    /// Counts the comparison of this many buckets, to choose one.
    pub fn compare(&mut self, buckets: usize) -> Option<()> {
        self.act(buckets.div_ceil(BUCKETS_PER_ACTION))
    }

    /// Counts a meter with this many bands.
    pub fn measure(&mut self, bands: usize) -> Option<()> {
        self.act(1 + bands.div_ceil(BANDS_PER_ACTION))
    }

    /// Number of searches of all frames.
    #[inline]
    pub fn searched(&self) -> u64 {
        self.searched
    }

    /// Number of actions of the present frame.
    pub fn acted(&self) -> u64 {
        self.acted as u64
    }
}
