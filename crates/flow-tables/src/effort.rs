//! The steps that a frame takes through tables, groups and meters. The owner of the frame's port pays for them
//! ([`ringroad_port::plan::Decided`]), and one frame may take only so many: other frames of the worker wait meanwhile.

/// Hash tables that the lookups of one frame may search, entries of merged ones that they may compare, and tables that the
/// interpreter of instructions may go through.
const MAX_SEARCHES: u32 = 2048;
/// Actions, buckets and meters that one frame may go through: each group can multiply those of the groups behind it.
const MAX_ACTIONS: u32 = MAX_LIST as u32;
/// Actions of one list.
pub(crate) const MAX_LIST: usize = 2048;
/// Buckets that are compared, and bands that measure, in the time of an action.
const BUCKETS_PER_ACTION: usize = 16;
const BANDS_PER_ACTION: usize = 4;

/// What one frame may still take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effort {
    searches_left: u32,
    actions_left: u32,
}

impl Effort {
    /// A frame begins.
    #[inline]
    pub fn new() -> Self {
        Self { searches_left: MAX_SEARCHES, actions_left: MAX_ACTIONS }
    }

    /// For a lookup that may search this much, and is done again with more where this is not enough.
    pub fn of_searches(searches_left: u32) -> Self {
        Self { searches_left, actions_left: 0 }
    }

    /// Searches one more hash table, or compares one more entry. False: the frame may not.
    #[inline]
    pub fn search(&mut self) -> bool {
        self.searches_left = self.searches_left.saturating_sub(1);
        self.searches_left > 0
    }

    /// Whether lookups found what there is to find: the frame was allowed all searches that they needed.
    #[inline]
    pub fn has_found(&self) -> bool {
        self.searches_left > 0
    }

    /// Goes through so many actions, or what counts as such. `None`: the frame may not.
    #[inline]
    pub fn act(&mut self, actions: usize) -> Option<()> {
        let left = u32::try_from(actions).ok().and_then(|actions| self.actions_left.checked_sub(actions));
        self.actions_left = left.unwrap_or(0);
        left.map(|_| ())
    }

    /// Compares so many buckets, to choose one.
    pub fn compare(&mut self, buckets: usize) -> Option<()> {
        self.act(buckets.div_ceil(BUCKETS_PER_ACTION))
    }

    /// Goes through a meter with so many bands.
    pub fn measure(&mut self, bands: usize) -> Option<()> {
        self.act(1 + bands.div_ceil(BANDS_PER_ACTION))
    }

    /// The steps since `before`, which is the same frame's earlier effort.
    #[inline]
    pub fn since(self, before: Self) -> u64 {
        let searches = before.searches_left - self.searches_left;
        u64::from(searches) + u64::from(before.actions_left - self.actions_left)
    }
}
