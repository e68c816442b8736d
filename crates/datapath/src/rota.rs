//! Whose turn it is: the queues of a worker, grouped by whose share of its time they take.
//!
//! Owners have turns in order (deficit round robin). Each turn gives an owner [`TURN_COST`] to spend on looks, copies and bytes; what it
//! spends beyond that it lacks in its next turns. So more ports, more queues or dearer frames buy nobody more time. Of an owner's queues
//! those that are awake come in turn, and besides them a few of those that sleep, so that a sleeper of an owner with few queues never
//! depends on how fast others' wake-ups are worked off.

use ringroad_port::batch::Batch;

use crate::engine::MAX_WORKERS;

/// What an owner may spend in a turn. One is about a short frame's copy, 50 to 100 ns.
pub const TURN_COST: u64 = 1024;
/// Sleeping queues of an owner that a turn looks at.
pub const SLEEPERS_PER_TURN: usize = 16;
/// Looks without a frame after which a queue that sleeps alone is put to sleep.
const LOOKS_BEFORE_SLEEP: u16 = 1024;

/// Whose share of a worker's time a queue takes. All queues of one owner have one share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerId(pub u64);

/// The queues of a worker by owner.
#[derive(Debug, Default)]
pub(crate) struct Rota {
    owners: Vec<Owner>,
    /// The owner whose turn comes next.
    next: usize,
    /// By place.
    seats: Vec<Option<Seat>>,
}

#[derive(Debug, Clone, Copy)]
struct Seat {
    owner: usize,
    /// In the owner's `places`.
    position: usize,
    empty_looks: u16,
}

#[derive(Debug)]
struct Owner {
    id: OwnerId,
    /// Those that are awake, then those that sleep.
    places: Vec<u32>,
    awake: usize,
    next_awake: usize,
    next_sleeper: usize,
    credit: i64,
    /// A batch that is not dispatched whole yet: whose, and its first frame that is not.
    rest: Option<(u32, usize)>,
    /// That batch. Its memory is allocated once in the life of an owner, and never for one whose batches fit.
    held: Option<Box<Batch>>,
    /// How much had been handed over to each worker at the end of the last two turns that did so.
    handed: [[u64; MAX_WORKERS]; 2],
}

impl Owner {
    fn sleepers(&self) -> usize {
        self.places.len() - self.awake
    }
}

/// What an owner's turn looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    owner: usize,
    awake: usize,
    sleepers: usize,
}

impl Rota {
    /// Puts a queue that is awake at the end of its owner's.
    pub(crate) fn insert(&mut self, place: u32, id: OwnerId) {
        self.remove(place);
        let owner = self.owners.iter().position(|owner| owner.id == id).unwrap_or_else(|| {
            self.owners.push(Owner {
                id,
                places: Vec::new(),
                awake: 0,
                next_awake: 0,
                next_sleeper: 0,
                credit: 0,
                rest: None,
                held: None,
                handed: [[0; MAX_WORKERS]; 2],
            });
            self.owners.len() - 1
        });
        let index = place as usize;
        if self.seats.len() <= index {
            self.seats.resize(index + 1, None);
        }
        let Some(entry) = self.owners.get_mut(owner) else { return };
        entry.places.push(place);
        let position = entry.places.len() - 1;
        if let Some(seat) = self.seats.get_mut(index) {
            *seat = Some(Seat { owner, position, empty_looks: 0 });
        }
        self.set_awake(place, true);
    }

    /// Takes a queue out. What is held of its frames must have been taken up before.
    pub(crate) fn remove(&mut self, place: u32) {
        self.set_awake(place, false);
        let Some(seat) = self.seats.get_mut(place as usize).and_then(Option::take) else { return };
        let Some(owner) = self.owners.get_mut(seat.owner) else { return };
        owner.places.swap_remove(seat.position);
        if let Some(&moved) = owner.places.get(seat.position) {
            self.seat(moved, |moved| moved.position = seat.position);
        } else if owner.places.is_empty() {
            self.owners.swap_remove(seat.owner);
            let moved = self.owners.get(seat.owner).map(|owner| owner.places.clone()).unwrap_or_default();
            for place in moved {
                self.seat(place, |moved| moved.owner = seat.owner);
            }
        }
    }

    fn seat(&mut self, place: u32, change: impl FnOnce(&mut Seat)) {
        if let Some(Some(seat)) = self.seats.get_mut(place as usize) {
            change(seat);
        }
    }

    /// Moves a queue among those that are awake, or among those that sleep.
    pub(crate) fn set_awake(&mut self, place: u32, awake: bool) {
        let Some(&Some(seat)) = self.seats.get(place as usize) else { return };
        let Some(owner) = self.owners.get_mut(seat.owner) else { return };
        if (seat.position < owner.awake) == awake {
            return;
        }
        // The border moves by one, and the queue changes places with the one beside it.
        let other = if awake { owner.awake } else { owner.awake - 1 };
        owner.awake = if awake { owner.awake + 1 } else { owner.awake - 1 };
        owner.places.swap(seat.position, other);
        let moved = owner.places.get(seat.position).copied();
        if let Some(moved) = moved {
            self.seat(moved, |moved| moved.position = seat.position);
        }
        self.seat(place, |seat| (seat.position, seat.empty_looks) = (other, 0));
    }

    /// Begins the next owner's turn.
    #[inline]
    pub(crate) fn begin_turn(&mut self) -> Option<Turn> {
        if self.next >= self.owners.len() {
            self.next = 0;
        }
        let index = self.next;
        let owner = self.owners.get_mut(index)?;
        self.next += 1;
        // Who had nothing to spend it on keeps nothing for later.
        owner.credit = (owner.credit + TURN_COST as i64).min(TURN_COST as i64);
        Some(Turn { owner: index, awake: owner.awake, sleepers: owner.sleepers().min(SLEEPERS_PER_TURN) })
    }

    /// The next queue to look at in a turn, and how many frames of a batch of its that is held were dispatched; `None` where the turn is over.
    #[inline]
    pub(crate) fn next(&mut self, turn: &mut Turn) -> Option<(u32, usize)> {
        let owner = self.owners.get_mut(turn.owner)?;
        if owner.credit <= 0 {
            return None;
        }
        if let Some(rest) = owner.rest.take() {
            return Some(rest);
        }
        if turn.awake > 0 && owner.awake > 0 {
            turn.awake -= 1;
            if owner.next_awake >= owner.awake {
                owner.next_awake = 0;
            }
            let place = owner.places.get(owner.next_awake).copied();
            owner.next_awake += 1;
            return place.map(|place| (place, 0));
        }
        if turn.sleepers > 0 && owner.sleepers() > 0 {
            turn.sleepers -= 1;
            if owner.next_sleeper < owner.awake || owner.next_sleeper >= owner.places.len() {
                owner.next_sleeper = owner.awake;
            }
            let place = owner.places.get(owner.next_sleeper).copied();
            owner.next_sleeper += 1;
            return place.map(|place| (place, 0));
        }
        None
    }

    /// Lets the turn go round its owner's queues once more, because there was something at one.
    #[inline]
    pub(crate) fn go_on(&self, turn: &mut Turn) {
        turn.awake = self.owners.get(turn.owner).map_or(0, |owner| owner.awake);
    }

    /// What other workers must be done with before an owner has this turn: what it had handed over to them in its last turn but one.
    #[inline]
    pub(crate) fn handed_before(&self, turn: &Turn) -> &[u64; MAX_WORKERS] {
        self.owners.get(turn.owner).map_or(&[0; MAX_WORKERS], |owner| &owner.handed[0])
    }

    /// Notes up to where something was handed over `before` and `after` a turn.
    pub(crate) fn note_handed(&mut self, turn: &Turn, before: [u64; MAX_WORKERS], after: [u64; MAX_WORKERS]) {
        if let Some(owner) = self.owners.get_mut(turn.owner).filter(|_| before != after) {
            owner.handed = [owner.handed[1], after];
        }
    }

    /// Takes `cost` from whoever the queue at `place` belongs to.
    #[inline]
    pub(crate) fn charge(&mut self, place: u32, cost: u64) {
        if let Some(owner) = self.owner_of(place) {
            owner.credit -= cost as i64;
        }
    }

    /// Notes whether a look found frames. Says whether the queue has been quiet for so long that it may sleep while others work.
    #[inline]
    pub(crate) fn note_look(&mut self, place: u32, found: bool) -> bool {
        let Some(Some(seat)) = self.seats.get_mut(place as usize) else { return false };
        seat.empty_looks = if found { 0 } else { seat.empty_looks.saturating_add(1) };
        seat.empty_looks >= LOOKS_BEFORE_SLEEP
    }

    #[inline]
    fn owner_of(&mut self, place: u32) -> Option<&mut Owner> {
        let &Some(seat) = self.seats.get(place as usize)? else { return None };
        self.owners.get_mut(seat.owner)
    }

    /// Keeps `batch` of the queue at `place`, whose frames from `from` on are not dispatched yet, and gives an empty one for it.
    #[cold]
    pub(crate) fn hold(&mut self, place: u32, from: usize, batch: &mut Batch) {
        if let Some(owner) = self.owner_of(place) {
            owner.rest = Some((place, from));
            std::mem::swap(batch, owner.held.get_or_insert_with(Box::default));
        }
    }

    /// Gives back in `batch` what is held of the queue at `place`.
    #[cold]
    pub(crate) fn take_up(&mut self, place: u32, batch: &mut Batch) {
        if let Some(held) = self.owner_of(place).and_then(|owner| owner.held.as_mut()) {
            std::mem::swap(batch, held);
        }
    }

    /// What the owner of the queue at `place` has under way: whose batch, and its first frame that is not dispatched. Not any more, then.
    pub(crate) fn take_rest(&mut self, place: u32) -> Option<(u32, usize)> {
        self.owner_of(place)?.rest.take()
    }

    /// Undoes [`Self::take_rest`].
    pub(crate) fn put_rest_back(&mut self, rest: (u32, usize)) {
        if let Some(owner) = self.owner_of(rest.0) {
            owner.rest = Some(rest);
        }
    }

    /// Whether a batch is held.
    pub(crate) fn has_rest(&self) -> bool {
        self.owners.iter().any(|owner| owner.rest.is_some())
    }

    /// The `number`th of all queues; `None` beyond the last.
    pub(crate) fn place(&self, number: usize) -> Option<u32> {
        self.owners.iter().flat_map(|owner| &owner.places).nth(number).copied()
    }

    /// A queue that is awake, the `skip`th.
    pub(crate) fn awake_place(&self, skip: usize) -> Option<u32> {
        self.owners.iter().flat_map(|owner| owner.places.iter().take(owner.awake)).nth(skip).copied()
    }

    /// Whether some owner has more sleepers than its turns look at.
    pub(crate) fn has_unwatched(&self) -> bool {
        self.owners.iter().any(|owner| owner.sleepers() > SLEEPERS_PER_TURN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(rota: &mut Rota, cost: u64) -> Vec<u32> {
        let mut turn = rota.begin_turn().unwrap();
        let mut places = Vec::new();
        while let Some((place, _)) = rota.next(&mut turn) {
            rota.charge(place, cost);
            places.push(place);
        }
        places
    }

    #[test]
    fn owners_with_many_queues_get_no_more_than_those_with_one() {
        let mut rota = Rota::default();
        for place in 0..1000 {
            rota.insert(place, OwnerId(1));
        }
        rota.insert(1000, OwnerId(2));
        let mut served = [0; 2];
        for _ in 0..200 {
            for place in looks(&mut rota, TURN_COST) {
                served[usize::from(place == 1000)] += 1;
            }
        }
        assert_eq!(served, [100, 100]);
    }

    #[test]
    fn what_an_owner_spent_too_much_it_lacks_later() {
        let mut rota = Rota::default();
        rota.insert(0, OwnerId(1));
        rota.insert(1, OwnerId(2));
        assert_eq!(looks(&mut rota, 10 * TURN_COST), [0]);
        let mut turns = 0;
        loop {
            assert_eq!(looks(&mut rota, 1), [1]);
            turns += 1;
            if looks(&mut rota, 1) == [0] {
                break;
            }
        }
        assert_eq!(turns, 10);
    }

    #[test]
    fn every_queue_of_an_owner_comes_in_turn_also_where_others_leave_sleep_and_wake() {
        let mut rota = Rota::default();
        for place in 0..100 {
            rota.insert(place, OwnerId(u64::from(place % 3)));
        }
        let mut is_there = [true; 100];
        let mut number = 7u32;
        for _ in 0..3000 {
            number = number.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            let place = number >> 16 & 0x7f;
            match number >> 8 & 3 {
                _ if place >= 100 => continue,
                0 => {
                    rota.remove(place);
                    is_there[place as usize] = false;
                }
                1 => rota.set_awake(place, false),
                2 => rota.set_awake(place, true),
                _ => {
                    rota.insert(place, OwnerId(u64::from(number % 3)));
                    is_there[place as usize] = true;
                }
            }
            let mut all: Vec<u32> = (0..).map_while(|number| rota.place(number)).collect();
            all.sort_unstable();
            let expected: Vec<u32> = (0..100).filter(|&place| is_there[place as usize]).collect();
            assert_eq!(all, expected);
            for owner in &rota.owners {
                assert!(!owner.places.is_empty() && owner.awake <= owner.places.len());
            }
        }
        // Awake ones in one turn each, sleepers a few at a time.
        let mut seen = [0; 100];
        for _ in 0..3 * 100 {
            for place in looks(&mut rota, 1) {
                seen[place as usize] += 1;
            }
        }
        assert!((0..100).all(|place| (seen[place] > 0) == is_there[place]), "{seen:?}");
    }

    #[test]
    fn a_batch_that_is_held_comes_first_and_once() {
        let mut rota = Rota::default();
        rota.insert(0, OwnerId(1));
        rota.insert(1, OwnerId(1));
        rota.hold(1, 17, &mut Batch::new());
        let mut turn = rota.begin_turn().unwrap();
        assert_eq!(rota.next(&mut turn), Some((1, 17)));
        assert_eq!(rota.next(&mut turn), Some((0, 0)));
        assert_eq!(rota.next(&mut turn), Some((1, 0)));
        assert_eq!(rota.next(&mut turn), None);
    }
}
