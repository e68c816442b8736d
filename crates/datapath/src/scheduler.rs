//! The scheduler of a worker: the order of turns of its queues, grouped by the owner whose share of its time they use.
//!
//! Users have turns in order (deficit round robin), and a user's programs have parts of its turns in order. Each turn
//! gives a user [`TURN_COST`] to spend on checks, copies and bytes; the user's next turns pay for overspent units, and
//! so do those of the program that spent them. So neither more ports, queues or programs nor dearer frames give a user
//! more time, or take time from the user's other programs. A turn serves a program's awake queues, and a few of its
//! sleeping ones. So a sleeping queue of a program with few queues never waits for the wake-ups of others.

use crate::exchange::MAX_WORKERS;

/// Units that a user may spend in a turn. One unit is about the copy of a short frame, 50 to 100 ns.
pub const TURN_COST: u64 = 512;
/// Sleeping queues of a program that a turn checks.
pub const SLEEPERS_PER_TURN: usize = 16;
/// Checks without a frame after which a queue that sleeps alone is put to sleep.
const EMPTY_POLLS_BEFORE_SLEEP: u16 = 1024;

/// The owner whose share of a worker's time a queue uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerId {
    /// User id: all queues of a user have one share.
    pub user: u64,
    /// Number of the program: the user's programs have equal parts of the share.
    pub program: u32,
}

/// The queues of a worker by owner.
#[derive(Debug, Default)]
pub(crate) struct QueueScheduler {
    users: Vec<User>,
    /// The user whose turn comes next.
    next: usize,
    /// Owners of queues, by queue index.
    positions: Vec<Option<QueuePosition>>,
}

#[derive(Debug, Clone, Copy)]
struct QueuePosition {
    user: usize,
    program: usize,
    /// Index in the program's `queues`.
    position: usize,
    empty_polls: u16,
}

#[derive(Debug)]
struct User {
    id: u64,
    programs: Vec<Program>,
    /// The program whose turn comes next.
    next: usize,
    credit: i64,
    /// Positions in the exchange to each worker at the end of the last two turns that handed frames over.
    handed: [[u64; MAX_WORKERS]; 2],
}

#[derive(Debug)]
struct Program {
    id: u32,
    /// Indexes of the awake queues, then of the sleeping ones.
    queues: Vec<u32>,
    awake: usize,
    next_awake: usize,
    next_sleeper: usize,
    credit: i64,
    /// The queue that the program's next turn begins with.
    first: Option<u32>,
}

impl User {
    /// Chooses the program with the next part of the turn.
    #[inline]
    fn next_program(&mut self) -> Option<usize> {
        if self.next >= self.programs.len() {
            self.next = 0;
        }
        self.next += 1;
        (!self.programs.is_empty()).then(|| self.next - 1)
    }
}

impl Program {
    fn sleepers(&self) -> usize {
        self.queues.len() - self.awake
    }

    fn next(&mut self, turn: &mut SchedulerTurn) -> Option<u32> {
        if self.credit <= 0 {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        if turn.awake > 0 && self.awake > 0 {
            turn.awake -= 1;
            if self.next_awake >= self.awake {
                self.next_awake = 0;
            }
            let queue_index = self.queues.get(self.next_awake).copied();
            self.next_awake += 1;
            return queue_index;
        }
        if turn.sleepers > 0 && self.sleepers() > 0 {
            turn.sleepers -= 1;
            if self.next_sleeper < self.awake || self.next_sleeper >= self.queues.len() {
                self.next_sleeper = self.awake;
            }
            let queue_index = self.queues.get(self.next_sleeper).copied();
            self.next_sleeper += 1;
            return queue_index;
        }
        None
    }
}

/// Adds a share; an owner with credit left keeps none of it for later.
fn give_share(credit: &mut i64) {
    *credit = (*credit + TURN_COST as i64).min(TURN_COST as i64);
}

/// Turn of a user: its current program, and the queues left to check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchedulerTurn {
    user: usize,
    program: usize,
    programs: usize,
    awake: usize,
    sleepers: usize,
}

impl QueueScheduler {
    /// Adds an awake queue to its owner's.
    pub(crate) fn insert(&mut self, queue_index: u32, id: OwnerId) {
        self.remove(queue_index);
        let user = self.users.iter().position(|user| user.id == id.user).unwrap_or_else(|| {
            self.users.push(User {
                id: id.user,
                programs: Vec::new(),
                next: 0,
                credit: 0,
                handed: [[0; MAX_WORKERS]; 2],
            });
            self.users.len() - 1
        });
        let Some(User { programs, .. }) = self.users.get_mut(user) else { return };
        let program = programs.iter().position(|program| program.id == id.program).unwrap_or_else(|| {
            programs.push(Program {
                id: id.program,
                queues: Vec::new(),
                awake: 0,
                next_awake: 0,
                next_sleeper: 0,
                credit: 0,
                first: None,
            });
            programs.len() - 1
        });
        let index = queue_index as usize;
        if self.positions.len() <= index {
            self.positions.resize(index + 1, None);
        }
        let Some(entry) = programs.get_mut(program) else { return };
        entry.queues.push(queue_index);
        let position = entry.queues.len() - 1;
        if let Some(at) = self.positions.get_mut(index) {
            *at = Some(QueuePosition { user, program, position, empty_polls: 0 });
        }
        self.set_awake(queue_index, true);
    }

    /// Removes a queue.
    pub(crate) fn remove(&mut self, queue_index: u32) {
        self.set_awake(queue_index, false);
        let Some(at) = self.positions.get_mut(queue_index as usize).and_then(Option::take) else { return };
        let Some(user) = self.users.get_mut(at.user) else { return };
        let Some(program) = user.programs.get_mut(at.program) else { return };
        program.queues.swap_remove(at.position);
        program.first.take_if(|first| *first == queue_index);
        if program.queues.is_empty() {
            user.programs.swap_remove(at.program);
        }
        if user.programs.is_empty() {
            self.users.swap_remove(at.user);
        }
        // The last user or program has moved to the index of the removed one.
        let Some(user) = self.users.get(at.user) else { return };
        for (program, entry) in user.programs.iter().enumerate() {
            for (position, &queue_index) in entry.queues.iter().enumerate() {
                if let Some(Some(moved)) = self.positions.get_mut(queue_index as usize) {
                    (moved.user, moved.program, moved.position) = (at.user, program, position);
                }
            }
        }
    }

    /// Marks a queue as awake or as sleeping.
    pub(crate) fn set_awake(&mut self, queue_index: u32, awake: bool) {
        let Some(&Some(at)) = self.positions.get(queue_index as usize) else { return };
        let Some(program) = self.owner_of(queue_index) else { return };
        if (at.position < program.awake) == awake {
            return;
        }
        // The border between awake and sleeping queues moves by one, and the queue swaps with its neighbour there.
        let other = if awake { program.awake } else { program.awake - 1 };
        program.awake = if awake { program.awake + 1 } else { program.awake - 1 };
        program.queues.swap(at.position, other);
        let moved = program.queues.get(at.position).copied();
        if let Some(Some(moved)) = moved.and_then(|moved| self.positions.get_mut(moved as usize)) {
            moved.position = at.position;
        }
        if let Some(Some(at)) = self.positions.get_mut(queue_index as usize) {
            (at.position, at.empty_polls) = (other, 0);
        }
    }

    /// Begins the next user's turn.
    #[inline]
    pub(crate) fn begin_turn(&mut self) -> Option<SchedulerTurn> {
        if self.next >= self.users.len() {
            self.next = 0;
        }
        let user = self.users.get_mut(self.next)?;
        give_share(&mut user.credit);
        let programs = user.programs.len();
        if user.credit <= 0
            && let Some(program) = user.programs.iter_mut().min_by_key(|program| program.credit)
        {
            // The user loses the turn, but the program still gets its share, so that it pays only once for overspent
            // units.
            give_share(&mut program.credit);
        }
        let turn = SchedulerTurn { user: self.next, program: usize::MAX, programs, awake: 0, sleepers: 0 };
        self.next += 1;
        Some(turn)
    }

    /// The next queue to check in a turn; `None` if the turn is over.
    #[inline]
    pub(crate) fn next(&mut self, turn: &mut SchedulerTurn) -> Option<u32> {
        let user = self.users.get_mut(turn.user)?;
        while user.credit > 0 {
            if let Some(program) = user.programs.get_mut(turn.program)
                && let Some(next) = program.next(turn)
            {
                return Some(next);
            }
            if turn.programs == 0 {
                return None;
            }
            turn.programs -= 1;
            turn.program = user.next_program()?;
            let program = user.programs.get_mut(turn.program)?;
            give_share(&mut program.credit);
            (turn.awake, turn.sleepers) = (program.awake, program.sleepers().min(SLEEPERS_PER_TURN));
        }
        None
    }

    /// Records the cost of a check of the queue at `queue_index` in a turn, and whether it found frames. If it did, the
    /// turn checks all queues of the program once more. Returns whether the queue has been quiet for so long that it
    /// may sleep while others work.
    #[inline]
    pub(crate) fn note_poll(
        &mut self,
        turn: &mut SchedulerTurn,
        queue_index: u32,
        found: bool,
        cost: u64,
    ) -> bool {
        let Some(user) = self.users.get_mut(turn.user) else { return false };
        user.credit -= cost as i64;
        let Some(program) = user.programs.get_mut(turn.program) else { return false };
        program.credit -= cost as i64;
        if found {
            turn.awake = program.awake;
        }
        // Queues that a turn checks anyway need not sleep.
        let may_sleep = program.awake > SLEEPERS_PER_TURN;
        let Some(Some(at)) = self.positions.get_mut(queue_index as usize) else { return false };
        at.empty_polls = if found { 0 } else { at.empty_polls.saturating_add(1) };
        may_sleep && at.empty_polls >= EMPTY_POLLS_BEFORE_SLEEP
    }

    /// Positions that other workers must have consumed before a user has this turn: those of the user's last turn but
    /// one.
    #[inline]
    pub(crate) fn handed_before(&self, turn: &SchedulerTurn) -> &[u64; MAX_WORKERS] {
        self.users.get(turn.user).map_or(&[0; MAX_WORKERS], |user| &user.handed[0])
    }

    /// Records the positions of the exchanges `before` and `after` a turn.
    pub(crate) fn note_handed(
        &mut self,
        turn: &SchedulerTurn,
        before: [u64; MAX_WORKERS],
        after: [u64; MAX_WORKERS],
    ) {
        if let Some(user) = self.users.get_mut(turn.user).filter(|_| before != after) {
            user.handed = [user.handed[1], after];
        }
    }

    /// Charges `cost` to the owner of the queue at `queue_index`, outside of a turn.
    pub(crate) fn charge(&mut self, queue_index: u32, cost: u64) {
        let Some(&Some(at)) = self.positions.get(queue_index as usize) else { return };
        let Some(user) = self.users.get_mut(at.user) else { return };
        user.credit -= cost as i64;
        if let Some(program) = user.programs.get_mut(at.program) {
            program.credit -= cost as i64;
        }
    }

    #[inline]
    fn owner_of(&mut self, queue_index: u32) -> Option<&mut Program> {
        let &Some(at) = self.positions.get(queue_index as usize)? else { return None };
        self.users.get_mut(at.user)?.programs.get_mut(at.program)
    }

    fn programs(&self) -> impl Iterator<Item = &Program> {
        self.users.iter().flat_map(|user| &user.programs)
    }

    /// Lets the next turn of the program of the queue at `queue_index` begin with this queue.
    #[cold]
    pub(crate) fn begin_with(&mut self, queue_index: u32) {
        if let Some(owner) = self.owner_of(queue_index) {
            owner.first = Some(queue_index);
        }
    }

    /// Index of the `skip`th awake queue.
    pub(crate) fn awake_queue(&self, skip: usize) -> Option<u32> {
        self.programs().flat_map(|owner| owner.queues.iter().take(owner.awake)).nth(skip).copied()
    }

    /// Whether some program has more sleeping queues than its turns check.
    pub(crate) fn has_unwatched(&self) -> bool {
        self.programs().any(|owner| owner.sleepers() > SLEEPERS_PER_TURN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(user: u64) -> OwnerId {
        OwnerId { user, program: 0 }
    }

    fn polled_queues(scheduler: &mut QueueScheduler, cost: u64) -> Vec<u32> {
        let mut turn = scheduler.begin_turn().unwrap();
        let mut queues = Vec::new();
        while let Some(queue_index) = scheduler.next(&mut turn) {
            scheduler.note_poll(&mut turn, queue_index, false, cost);
            queues.push(queue_index);
        }
        queues
    }

    #[test]
    fn owners_with_many_queues_get_no_more_than_those_with_one() {
        let mut scheduler = QueueScheduler::default();
        for queue_index in 0..1000 {
            scheduler.insert(queue_index, owner(1));
        }
        scheduler.insert(1000, owner(2));
        let mut served = [0; 2];
        for _ in 0..200 {
            for queue_index in polled_queues(&mut scheduler, TURN_COST) {
                served[usize::from(queue_index == 1000)] += 1;
            }
        }
        assert_eq!(served, [100, 100]);
    }

    #[test]
    fn programs_of_one_user_share_its_turns() {
        let mut scheduler = QueueScheduler::default();
        for queue_index in 0..100 {
            scheduler.insert(queue_index, OwnerId { user: 1, program: 1 });
        }
        scheduler.insert(100, OwnerId { user: 1, program: 2 });
        scheduler.insert(101, owner(2));
        let mut served = [0; 3];
        for _ in 0..400 {
            for queue_index in polled_queues(&mut scheduler, TURN_COST) {
                served[queue_index.saturating_sub(99) as usize] += 1;
            }
        }
        assert_eq!(served, [100, 100, 200]);
    }

    #[test]
    fn an_owners_next_turns_pay_for_overspent_units() {
        let mut scheduler = QueueScheduler::default();
        scheduler.insert(0, owner(1));
        scheduler.insert(1, owner(2));
        assert_eq!(polled_queues(&mut scheduler, 10 * TURN_COST), [0]);
        let mut turns = 0;
        loop {
            assert_eq!(polled_queues(&mut scheduler, 1), [1]);
            turns += 1;
            if polled_queues(&mut scheduler, 1) == [0] {
                break;
            }
        }
        assert_eq!(turns, 10);
    }

    #[test]
    fn queues_take_turns_while_others_leave_sleep_and_wake() {
        let mut scheduler = QueueScheduler::default();
        for queue_index in 0..100 {
            scheduler
                .insert(queue_index, OwnerId { user: u64::from(queue_index % 3), program: queue_index % 2 });
        }
        let mut is_there = [true; 100];
        let mut number = 7u32;
        for _ in 0..3000 {
            number = number.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let queue_index = number >> 16 & 0x7f;
            match number >> 8 & 3 {
                _ if queue_index >= 100 => continue,
                0 => {
                    scheduler.remove(queue_index);
                    is_there[queue_index as usize] = false;
                }
                1 => scheduler.set_awake(queue_index, false),
                2 => scheduler.set_awake(queue_index, true),
                _ => {
                    scheduler
                        .insert(queue_index, OwnerId { user: u64::from(number % 3), program: number % 5 });
                    is_there[queue_index as usize] = true;
                }
            }
            let mut all: Vec<u32> = scheduler.programs().flat_map(|owner| &owner.queues).copied().collect();
            all.sort_unstable();
            let expected: Vec<u32> = (0..100).filter(|&queue_index| is_there[queue_index as usize]).collect();
            assert_eq!(all, expected);
            assert!(scheduler.users.iter().all(|user| !user.programs.is_empty()));
            for owner in scheduler.programs() {
                assert!(!owner.queues.is_empty() && owner.awake <= owner.queues.len());
            }
        }
        // Awake queues are all checked in a turn, sleeping ones a few at a time.
        let mut seen = [0; 100];
        for _ in 0..3 * 100 {
            for queue_index in polled_queues(&mut scheduler, 1) {
                seen[queue_index as usize] += 1;
            }
        }
        assert!((0..100).all(|queue_index| (seen[queue_index] > 0) == is_there[queue_index]), "{seen:?}");
    }

    #[test]
    fn a_program_begins_with_the_named_queue_once_and_never_with_one_that_left() {
        let mut scheduler = QueueScheduler::default();
        scheduler.insert(0, owner(1));
        scheduler.insert(1, owner(1));
        scheduler.begin_with(1);
        let mut turn = scheduler.begin_turn().unwrap();
        assert_eq!(std::array::from_fn(|_| scheduler.next(&mut turn)), [Some(1), Some(0), Some(1), None]);
        scheduler.begin_with(1);
        scheduler.remove(1);
        let mut turn = scheduler.begin_turn().unwrap();
        assert_eq!(std::array::from_fn(|_| scheduler.next(&mut turn)), [Some(0), None]);
    }
}
