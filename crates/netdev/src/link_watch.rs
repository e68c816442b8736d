//! The links that this process uses. One thread follows the kernel's notifications about all of them, and every user
//! reads the state of a link from one word.
//!
//! The thread belongs to the process and is not the daemon's server thread: a driver in a program has no loop that
//! could follow links, and the server may be busy with a request for seconds. It exists while a link is watched. For
//! each network namespace with such links it has sockets for `RTM_NEWLINK` and `RTM_DELLINK` (rtnetlink(7)), and for
//! the changes of a driver's settings (ethtool's group "monitor"). If notifications were lost, it reads all its links
//! again.
//!
//! The kernel notifies of a lost carrier at once, or at the end of the second if other links lost their carrier within
//! the same second (`net/core/link_watch.c`). So two events make a link *doubted*: a frame was refused, or the link's
//! other end changed, even one in another namespace. A doubted link is read again at once.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use crate::error::NetdevError;
use crate::ethtool_monitor::{EthtoolEvent, EthtoolMonitor};
use crate::link::{LinkInfo, query};
use crate::link_monitor::{LinkEvent, LinkMonitor};
use crate::namespace::{Namespace, NamespaceId};
use crate::netlink::Requests;

/// Whether a link can carry frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// The link is up and has carrier.
    Running,
    /// The link is up and has no carrier.
    NoCarrier,
    /// The link is set down.
    Down,
    /// The link was deleted, or moved to another namespace. This state is final: a later link with its index or name is
    /// another link.
    Gone,
}

impl LinkState {
    /// Reason why no frame passes the interface `name`, with the remedy. `None` while the link carries frames.
    #[must_use]
    pub fn fault(self, name: &str) -> Option<String> {
        match self {
            Self::Running => None,
            Self::NoCarrier => {
                Some(format!("interface {name} has no carrier: its other end is down or unplugged"))
            }
            Self::Down => {
                Some(format!("interface {name} is down: bring it up with `ip link set dev {name} up`"))
            }
            Self::Gone => Some(format!("interface {name} is gone")),
        }
    }

    fn of(link: &LinkInfo) -> Self {
        match (link.up, link.running && link.carrier) {
            (false, _) => Self::Down,
            (true, true) => Self::Running,
            (true, false) => Self::NoCarrier,
        }
    }
}

/// Content of a link's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkView {
    pub state: LinkState,
    /// Maximum payload of a frame, bytes.
    pub mtu: u32,
    /// Number that changes with MTU, queues and rings, and at the end of the link or of a later link with its name. A
    /// change of the state alone does not change it.
    pub revision: u32,
}

/// Layout of the word: state, revision, MTU.
const STATE_BITS: u32 = 2;
const REVISION_BITS: u32 = 30;
const REVISION_MASK: u32 = (1 << REVISION_BITS) - 1;

impl LinkView {
    fn word(self) -> u64 {
        (self.mtu as u64) << (STATE_BITS + REVISION_BITS)
            | ((self.revision & REVISION_MASK) as u64) << STATE_BITS
            | self.state as u64
    }

    fn of_word(word: u64) -> Self {
        Self {
            state: state_of(word),
            mtu: (word >> (STATE_BITS + REVISION_BITS)) as u32,
            revision: (word >> STATE_BITS) as u32 & REVISION_MASK,
        }
    }
}

fn state_of(word: u64) -> LinkState {
    match word & ((1 << STATE_BITS) - 1) {
        0 => LinkState::Running,
        1 => LinkState::NoCarrier,
        2 => LinkState::Down,
        _ => LinkState::Gone,
    }
}

// States of a link's doubt.
const SURE: u8 = 0;
const DOUBTED: u8 = 1;
const BEING_READ: u8 = 2;

/// Minimum time between two answers to doubts. Each answer costs a request under the kernel's lock of all links.
const DOUBT_PAUSE: Duration = Duration::from_millis(10);

/// A link that this process watches, until the value is dropped.
#[derive(Debug)]
pub struct LinkWatch {
    watched: Arc<Watched>,
}

/// State that all watches of one link share. Only the holder of [`REGISTRY`] writes the word.
#[derive(Debug)]
struct Watched {
    index: u32,
    /// Name of the link when it was first watched.
    name: String,
    word: AtomicU64,
    doubt: AtomicU8,
    thread: Arc<ThreadEnd>,
}

impl Watched {
    fn view(&self) -> LinkView {
        LinkView::of_word(self.word.load(Ordering::Relaxed))
    }

    /// Changes the word. Returns whether it differs from before.
    fn put(&self, change: impl FnOnce(LinkView) -> LinkView) -> bool {
        let before = self.view();
        let after = change(before);
        self.word.store(after.word(), Ordering::Relaxed);
        after != before
    }

    /// Stores the kernel's report of the link. Returns whether the word differs from before.
    fn follow(&self, link: &LinkInfo) -> bool {
        self.put(|before| match before.state {
            LinkState::Gone => before,
            _ => LinkView {
                state: LinkState::of(link),
                mtu: link.mtu,
                revision: before.revision + u32::from(before.mtu != link.mtu),
            },
        })
    }

    /// Stores that the link has ended. Returns whether the word differs from before.
    fn end(&self) -> bool {
        self.put(|before| match before.state {
            LinkState::Gone => before,
            _ => LinkView { state: LinkState::Gone, revision: before.revision + 1, ..before },
        })
    }

    /// Stores that something changed that the word does not show. Returns whether the word differs from before.
    fn revise(&self) -> bool {
        self.put(|before| LinkView { revision: before.revision + 1, ..before })
    }
}

impl LinkWatch {
    /// Index of the link in its network namespace.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.watched.index
    }

    /// Watches the link with index `index` of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`NetdevError`], for example if there is no such link.
    pub fn open(index: u32) -> Result<Self, NetdevError> {
        let namespace = NamespaceId::of(&Namespace::Current.path())
            .ok_or_else(|| socket_error("find the namespace of")(std::io::ErrorKind::NotFound.into()))?;
        let mut registry = registry();
        let opened = registry.watch(namespace, index);
        registry.tidy();
        opened.map(|watched| Self { watched })
    }

    /// Whether the link can carry frames. Costs one atomic load.
    #[inline]
    #[must_use]
    pub fn state(&self) -> LinkState {
        state_of(self.watched.word.load(Ordering::Relaxed))
    }

    /// Whether the link can carry frames.
    #[inline]
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state() == LinkState::Running
    }

    /// Whether the link exists and is set up, with or without carrier.
    #[inline]
    #[must_use]
    pub fn is_up(&self) -> bool {
        matches!(self.state(), LinkState::Running | LinkState::NoCarrier)
    }

    /// Present state, revision and MTU of the link.
    #[must_use]
    pub fn view(&self) -> LinkView {
        self.watched.view()
    }

    /// Requests that the link is read again soon, because a frame was refused although the link seems to run. The
    /// kernel may notify of a lost carrier up to a second late, but a query shows it at once. Costs at most one system
    /// call, and none while an earlier doubt waits for its answer.
    #[cold]
    pub fn doubt(&self) {
        if self.watched.doubt.swap(DOUBTED, Ordering::Relaxed) != DOUBTED {
            ring(&self.watched.thread.doubts);
        }
    }

    /// Whether a doubt waits for its answer.
    #[must_use]
    pub fn is_doubted(&self) -> bool {
        // After the answer the word has the result.
        self.watched.doubt.load(Ordering::Acquire) != SURE
    }

    /// Reads the link again now, for a caller that learned of its end elsewhere and must know before it continues.
    #[cold]
    pub fn refresh(&self) {
        let mut registry = registry();
        let has_it =
            |space: &&mut Space| space.watched.iter().any(|entry| Arc::ptr_eq(&entry.watched, &self.watched));
        let space = registry.spaces.values_mut().find(has_it);
        if space.is_some_and(|space| space.read(|watched| std::ptr::eq(watched, &*self.watched))) {
            registry.ring_bells();
        }
    }
}

/// Rings `bell`, an eventfd, at each change of a link that this process watches, as long as the bell exists.
pub fn ring_at_changes(bell: &Arc<OwnedFd>) {
    registry().bells.push(Arc::downgrade(bell));
}

impl Drop for LinkWatch {
    fn drop(&mut self) {
        let mut registry = registry();
        for entry in registry.spaces.values_mut().flat_map(|space| &mut space.watched) {
            if Arc::ptr_eq(&entry.watched, &self.watched) {
                entry.watches -= 1;
            }
        }
        registry.tidy();
    }
}

fn ring(event: impl AsFd) {
    // If the counter is full, the bell rings already.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

fn socket_error(operation: &'static str) -> impl Fn(std::io::Error) -> NetdevError {
    move |source| NetdevError::Socket { operation, source }
}

/// The watched links of one namespace.
#[derive(Debug)]
struct Space {
    /// Number of its sockets in the thread's epoll set.
    number: u64,
    links: LinkMonitor,
    /// Monitor of the other ends of links; `None` without the permission to listen to other namespaces.
    other_ends: Option<LinkMonitor>,
    /// Monitor of queues and rings; `None` if the kernel has no ethtool over netlink.
    settings: Option<EthtoolMonitor>,
    requests: Requests,
    watched: Vec<Entry>,
}

/// Effects of the kernel's reports.
#[derive(Debug, Clone, Copy, Default)]
struct Followed {
    /// Whether a watched link changed.
    has_changed: bool,
    /// Whether a watched link must be read again.
    has_doubts: bool,
}

#[derive(Debug)]
struct Entry {
    watched: Arc<Watched>,
    watches: usize,
}

impl Space {
    /// Opens the sockets in the calling thread's namespace.
    fn open(number: u64, thread: &ThreadEnd) -> Result<Self, NetdevError> {
        let settings = match EthtoolMonitor::open() {
            Ok(monitor) => Some(monitor),
            Err(NetdevError::NoEthtool) => None,
            Err(error) => return Err(error),
        };
        let requests = Requests::open(NETLINK_ROUTE)?;
        let (links, other_ends) = (LinkMonitor::open()?, LinkMonitor::open_across_namespaces().ok());
        let space = Self { number, links, other_ends, settings, requests, watched: Vec::new() };
        thread.watch(&space.links, number)?;
        if let Some(other_ends) = &space.other_ends {
            thread.watch(other_ends, number)?;
        }
        if let Some(settings) = &space.settings {
            thread.watch(settings, number)?;
        }
        Ok(space)
    }

    /// Applies the kernel's pending reports to the watched links.
    fn follow(&mut self) -> Followed {
        let Self { links, other_ends, settings, watched, .. } = self;
        let (mut has_changed, mut has_lost, mut has_doubts) = (false, false, false);
        let took = links.events(|event| match event {
            LinkEvent::Changed(link) => {
                for Entry { watched, .. } in watched.iter() {
                    has_changed |= match (watched.index == link.index, watched.view().state) {
                        // Another link may have taken its name.
                        (_, LinkState::Gone) if watched.name == link.name => watched.revise(),
                        (true, _) => watched.follow(&link),
                        _ => false,
                    };
                }
            }
            LinkEvent::Gone { index, .. } => {
                for Entry { watched, .. } in watched.iter().filter(|entry| entry.watched.index == index) {
                    has_changed |= watched.end();
                }
            }
            LinkEvent::Lost => has_lost = true,
        });
        has_lost |= took.is_err();
        if let Some(settings) = settings {
            let took = settings.events(|event| match event {
                EthtoolEvent::Changed(index) => {
                    for Entry { watched, .. } in watched.iter().filter(|entry| entry.watched.index == index) {
                        has_changed |= watched.revise();
                    }
                }
                EthtoolEvent::Lost => has_lost = true,
            });
            has_lost |= took.is_err();
        }
        if let Some(other_ends) = other_ends {
            let mut doubt = |peer: Option<u32>| {
                for entry in
                    watched.iter().filter(|entry| peer.is_none_or(|peer| peer == entry.watched.index))
                {
                    entry.watched.doubt.store(DOUBTED, Ordering::Relaxed);
                    has_doubts = true;
                }
            };
            let took = other_ends.events(|event| match event {
                LinkEvent::Changed(link) => link.peer.into_iter().for_each(|peer| doubt(Some(peer.index))),
                LinkEvent::Gone { .. } => {}
                LinkEvent::Lost => doubt(None),
            });
            if took.is_err() {
                doubt(None);
            }
        }
        if has_lost {
            has_changed |= self.read(|_| true);
            for entry in &self.watched {
                has_changed |= entry.watched.revise();
            }
        }
        Followed { has_changed, has_doubts }
    }

    /// Reads the doubted links. Returns whether one changed.
    fn answer_doubts(&mut self) -> bool {
        // A new doubt during the reading rings again.
        let change = |watched: &Watched, from, to| {
            let change = watched.doubt.compare_exchange(from, to, Ordering::Release, Ordering::Relaxed);
            change.is_ok()
        };
        let has_changed = self.read(|watched| change(watched, DOUBTED, BEING_READ));
        for entry in &self.watched {
            change(&entry.watched, BEING_READ, SURE);
        }
        has_changed
    }

    /// Reads the links for which `wanted` is true. Returns whether one changed.
    fn read(&mut self, wanted: impl Fn(&Watched) -> bool) -> bool {
        let Self { requests, watched, .. } = self;
        let mut has_changed = false;
        for Entry { watched, .. } in watched.iter().filter(|entry| wanted(&entry.watched)) {
            has_changed |= match query(requests, watched.index) {
                Ok(link) => watched.follow(&link),
                Err(error) if error.is_no_interface() => watched.end(),
                // The kernel has no memory now. The next event repeats the reading.
                Err(_) => false,
            };
        }
        has_changed
    }
}

/// All watched links of this process.
static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    spaces: BTreeMap::new(),
    next_number: FIRST_SPACE,
    thread: None,
    bells: Vec::new(),
});

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Registry {
    spaces: BTreeMap<NamespaceId, Space>,
    next_number: u64,
    thread: Option<Arc<ThreadEnd>>,
    bells: Vec<Weak<OwnedFd>>,
}

impl Registry {
    fn ring_bells(&mut self) {
        self.bells.retain(|bell| bell.upgrade().inspect(|bell| ring(bell)).is_some());
    }

    fn watch(&mut self, namespace: NamespaceId, index: u32) -> Result<Arc<Watched>, NetdevError> {
        let thread = match &self.thread {
            Some(thread) => Arc::clone(thread),
            None => Arc::clone(self.thread.insert(ThreadEnd::start()?)),
        };
        let space = match self.spaces.entry(namespace) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(vacant) => {
                self.next_number += 1;
                vacant.insert(Space::open(self.next_number, &thread)?)
            }
        };
        let is_it = |entry: &&mut Entry| {
            entry.watched.index == index && entry.watched.view().state != LinkState::Gone
        };
        if let Some(known) = space.watched.iter_mut().find(is_it) {
            known.watches += 1;
            return Ok(Arc::clone(&known.watched));
        }
        // The link is read after the sockets listen, so that no change is missed.
        let link = query(&mut space.requests, index)?;
        let view = LinkView { state: LinkState::of(&link), mtu: link.mtu, revision: 0 };
        let watched = Arc::new(Watched {
            index,
            name: link.name,
            word: AtomicU64::new(view.word()),
            doubt: AtomicU8::new(SURE),
            thread,
        });
        space.watched.push(Entry { watched: Arc::clone(&watched), watches: 1 });
        Ok(watched)
    }

    /// Removes namespaces without watched links, and ends the thread if none is left.
    fn tidy(&mut self) {
        for space in self.spaces.values_mut() {
            space.watched.retain(|entry| entry.watches > 0);
        }
        // A closed socket leaves the epoll set.
        self.spaces.retain(|_, space| !space.watched.is_empty());
        if self.spaces.is_empty()
            && let Some(thread) = self.thread.take()
        {
            ring(&thread.end);
        }
    }
}

// Events of the thread's epoll set. Namespaces have greater numbers.
const END: u64 = 0;
const DOUBTS: u64 = 1;
const FIRST_SPACE: u64 = 1;

/// Descriptors by which other threads reach this thread.
#[derive(Debug)]
struct ThreadEnd {
    set: OwnedFd,
    /// Eventfd that is rung when the thread must end.
    end: OwnedFd,
    /// Eventfd that is rung when a link is doubted.
    doubts: OwnedFd,
}

impl ThreadEnd {
    /// Starts the thread that follows the kernel's notifications.
    fn start() -> Result<Arc<Self>, NetdevError> {
        let made = || -> std::io::Result<Arc<Self>> {
            let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            let this =
                Self { set: epoll::create(epoll::CreateFlags::CLOEXEC)?, end: event()?, doubts: event()? };
            epoll::add(&this.set, &this.end, EventData::new_u64(END), EventFlags::IN)?;
            epoll::add(&this.set, &this.doubts, EventData::new_u64(DOUBTS), EventFlags::IN)?;
            let this = Arc::new(this);
            let own = Arc::clone(&this);
            std::thread::Builder::new().name("links".to_owned()).spawn(move || own.run())?;
            Ok(this)
        };
        made().map_err(socket_error("start the thread for"))
    }

    fn watch(&self, socket: impl AsFd, number: u64) -> Result<(), NetdevError> {
        epoll::add(&self.set, socket, EventData::new_u64(number), EventFlags::IN)
            .map_err(|errno| socket_error("watch")(errno.into()))
    }

    fn run(&self) {
        let empty = epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let mut events = [empty; 64];
        let mut has_doubts = false;
        let mut next_answer = Instant::now();
        loop {
            let wait = next_answer.saturating_duration_since(Instant::now());
            let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
            let ready = epoll::wait(&self.set, &mut events, has_doubts.then_some(&wait)).unwrap_or(0);
            let mut registry = registry();
            let mut has_changed = false;
            for event in events.iter().take(ready) {
                match event.data.u64() {
                    END => return,
                    DOUBTS => {
                        let _ = rustix::io::read(&self.doubts, &mut [0; 8]);
                        has_doubts = true;
                    }
                    number => {
                        let mut spaces = registry.spaces.values_mut();
                        let space = spaces.find(|space| space.number == number);
                        let followed = space.map(Space::follow).unwrap_or_default();
                        has_changed |= followed.has_changed;
                        has_doubts |= followed.has_doubts;
                    }
                }
            }
            if has_doubts && Instant::now() >= next_answer {
                has_doubts = false;
                next_answer = Instant::now() + DOUBT_PAUSE;
                for space in registry.spaces.values_mut() {
                    has_changed |= space.answer_doubts();
                }
            }
            if has_changed {
                registry.ring_bells();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};
    use std::process::Command;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::link::link_by_name;
    use crate::link_change::{VethEnd, create_veth, delete_link, move_to_namespace, set_mtu, set_up};
    use crate::test_namespace::{in_new_namespace, new_namespace};

    /// A watch with a bell.
    struct Belled {
        watch: LinkWatch,
        bell: Arc<OwnedFd>,
    }

    impl Belled {
        fn of(name: &str) -> Self {
            let watch = LinkWatch::open(link_by_name(name).unwrap().index).unwrap();
            let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
            ring_at_changes(&bell);
            Self { watch, bell }
        }

        /// Waits at the bell until the view of the link is as `requested`.
        fn until(&self, what: &str, requested: impl Fn(LinkView) -> bool) -> LinkView {
            loop {
                let view = self.watch.view();
                if requested(view) {
                    return view;
                }
                let patience = Timespec { tv_sec: 120, tv_nsec: 0 };
                let rung = poll(&mut [PollFd::new(&self.bell, PollFlags::IN)], Some(&patience)).unwrap();
                assert_eq!(rung, 1, "no {what}: {:?}", self.watch.view());
                rustix::io::read(&self.bell, &mut [0; 8]).unwrap();
            }
        }

        fn until_state(&self, state: LinkState) -> LinkView {
            self.until(&format!("{state:?}"), |view| view.state == state)
        }
    }

    fn ip(arguments: &str) {
        let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
        assert!(status.success(), "ip {arguments}");
    }

    #[test]
    fn a_word_keeps_state_mtu_and_revision() {
        for state in [LinkState::Running, LinkState::NoCarrier, LinkState::Down, LinkState::Gone] {
            for (mtu, revision) in [(0, 0), (1500, 7), (u32::MAX, REVISION_MASK)] {
                let view = LinkView { state, mtu, revision };
                assert_eq!(LinkView::of_word(view.word()), view);
            }
        }
    }

    #[test]
    fn each_change_of_a_link_rings_from_any_namespace_and_shows_in_its_word() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            let link = Belled::of("va");
            assert_eq!(link.watch.state(), LinkState::Down);
            set_up("va", true).unwrap();
            link.until_state(LinkState::NoCarrier);
            assert!(link.watch.is_up() && !link.watch.is_running());
            // A reader may be in any namespace.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    crate::test_namespace::unshare_network();
                    ring(&link.bell);
                    link.until_state(LinkState::NoCarrier);
                });
            });
            set_up("vb", true).unwrap();
            let before = link.until_state(LinkState::Running);
            set_mtu("va", 1400).unwrap();
            let after = link.until("MTU", |view| view.mtu == 1400);
            assert_ne!(before.revision, after.revision);
            ip("link set va name vc");
            set_up("vb", false).unwrap();
            link.until_state(LinkState::NoCarrier);
        });
    }

    #[test]
    fn another_link_under_the_name_of_one_that_is_gone_rings_and_is_not_mistaken_for_it() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            let link = Belled::of("va");
            let index = link_by_name("va").unwrap().index;
            delete_link("va").unwrap();
            let gone = link.until_state(LinkState::Gone);
            // The new link has the same index, too.
            ip(&format!("link add va index {index} type veth peer name vb"));
            let back = link.until("other link", |view| view.revision != gone.revision);
            assert_eq!(back.state, LinkState::Gone);
            assert_eq!(Belled::of("va").watch.state(), LinkState::Down);
        });
    }

    #[test]
    fn a_link_that_moves_to_another_namespace_is_gone() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            let link = Belled::of("vb");
            let other = new_namespace();
            move_to_namespace("vb", other.as_fd()).unwrap();
            link.until_state(LinkState::Gone);
        });
    }

    #[test]
    fn another_number_of_queues_is_another_revision() {
        if !ringroad_test_needs::has_program("ethtool") {
            return;
        }
        in_new_namespace(|| {
            create_veth(VethEnd::here("va").queues(4), VethEnd::here("vb")).unwrap();
            let link = Belled::of("va");
            let before = link.watch.view();
            let set = Command::new("ethtool").args(["-L", "va", "rx", "2", "tx", "2"]).status().unwrap();
            assert!(set.success());
            let after = link.until("change of queues", |view| view.revision != before.revision);
            assert_eq!((after.state, after.mtu), (before.state, before.mtu));
        });
    }

    #[test]
    fn the_carrier_of_a_link_is_seen_lost_as_soon_as_its_other_end_is_down_in_another_namespace() {
        in_new_namespace(|| {
            let other = new_namespace();
            create_veth(VethEnd::here("va"), VethEnd::within("vb", other.as_fd())).unwrap();
            let other = format!("/proc/{}/fd/{}", std::process::id(), other.as_fd().as_raw_fd());
            let other = Namespace::File(other.into());
            let set_other = |up| crate::in_namespace(&other, || set_up("vb", up).unwrap()).unwrap();
            set_up("va", true).unwrap();
            let link = Belled::of("va");
            // Carrier changes come more often than the kernel notifies of them without a query.
            for _ in 0..20 {
                set_other(true);
                link.until_state(LinkState::Running);
                set_other(false);
                link.until_state(LinkState::NoCarrier);
            }
        });
    }

    #[test]
    fn a_doubted_link_is_read_again() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            let link = Belled::of("va");
            // The word is set as if a notification were still to come.
            let wrong = LinkView { state: LinkState::Running, ..link.watch.view() };
            link.watch.watched.word.store(wrong.word(), Ordering::Relaxed);
            link.watch.doubt();
            link.until_state(LinkState::Down);
        });
    }

    #[test]
    fn lost_notifications_are_made_up_for() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            let link = Belled::of("va");
            let namespace = NamespaceId::of(&Namespace::Current.path()).unwrap();
            {
                // While this thread holds the registry, no link is read.
                let mut registry = registry();
                let space = registry.spaces.get_mut(&namespace).unwrap();
                space.links.shrink_room();
                for round in 0..200 {
                    set_mtu("va", 1000 + round).unwrap();
                }
            }
            link.until("last MTU", |view| view.mtu == 1199);
        });
    }

    #[test]
    fn watches_of_one_link_share_a_word_and_leave_nothing_behind() {
        in_new_namespace(|| {
            create_veth(VethEnd::here("va"), VethEnd::here("vb")).unwrap();
            let namespace = NamespaceId::of(&Namespace::Current.path()).unwrap();
            let has = || registry().spaces.get(&namespace).map(|space| space.watched.len());
            let (one, other, third) = (Belled::of("va"), Belled::of("va"), Belled::of("vb"));
            assert!(Arc::ptr_eq(&one.watch.watched, &other.watch.watched));
            assert_eq!(has(), Some(2));
            drop(one);
            assert_eq!(has(), Some(2));
            set_up("va", true).unwrap();
            other.watch.doubt();
            drop((other, third));
            assert_eq!(has(), None);
            assert!(LinkWatch::open(999_999).unwrap_err().is_no_interface());
            assert_eq!(has(), None);
        });
    }
}
