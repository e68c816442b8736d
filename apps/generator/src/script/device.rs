//! Ports and their queues in scripts.
//!
//! A queue of a port is one ring pair. `dev:getTxQueue(0)` and `dev:getRxQueue(0)` are its two sides, which two tasks
//! can use at the same time: a lock around the pair is taken per batch and never held in a wait. Two tasks that send to
//! one queue take turns, a batch each.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mlua::{AnyUserData, MetaMethod, Table, UserData, UserDataFields, UserDataMethods, UserDataRef, Value};
use ringroad::{Interest, Port, PortError, PortInfo, Queue};
use ringroad_traffic::line_rate::FCS_BYTES;
use ringroad_wire::mac::Mac;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::buffers::BufferArray;
use super::context::context;
use super::meter::{MeterRef, QueueMeter};
use super::report::{DeviceReport, QueueReport};
use super::run::Run;
use super::sender::Sender;
use super::{load, receiver};
use crate::shared::{FrameCount, FrameCounter};

/// Interval between checks of a draining port: the port wakes its program when a slot is returned, not when the last
/// is.
const DRAIN_CHECK: Duration = Duration::from_micros(200);

pub(super) struct ScriptDevice {
    /// Name under which the script opened the port.
    pub(super) name: String,
    info: PortInfo,
    mac: Mac,
    tx_queues: u16,
    rx_queues: u16,
    queues: Vec<Arc<DeviceQueue>>,
}

/// One ring pair, and its counters.
pub(super) struct DeviceQueue {
    /// The port's name and the queue's number, for messages: `vale0:a#0`.
    pub(super) label: String,
    ring: Mutex<Queue>,
    /// Descriptor that becomes readable when an awaited event occurs.
    readable: OwnedFd,
    /// Longest frame that the port sends, bytes without FCS.
    pub(super) max_frame_bytes: usize,
    sender: Mutex<Sender>,
    pub(super) meter: Mutex<Option<QueueMeter>>,
    pub(super) sent: FrameCounter,
    pub(super) received: FrameCounter,
    /// Received frames that fit no buffer of the script's array.
    pub(super) too_long: AtomicU64,
}

impl DeviceQueue {
    /// Locks the rings for one batch. A thread that panics leaves the rings consistent at each step.
    pub(super) fn ring(&self) -> MutexGuard<'_, Queue> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn sender(&self) -> MutexGuard<'_, Sender> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until an event of `interest` or another event occurs, or `limit` has passed. The other side of the queue
    /// may take the signal for this side, so the limit must be short.
    pub(super) fn wait(&self, interest: Interest, limit: Duration) -> Result<(), PortError> {
        if self.ring().arm(interest)? {
            return Ok(());
        }
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        let waited = poll(&mut [PollFd::new(&self.readable, PollFlags::IN)], Some(&limit));
        self.ring().disarm()?;
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl ScriptDevice {
    fn new(name: &str, port: Port, run: &Run, tx_queues: u16, rx_queues: u16) -> mlua::Result<Self> {
        let info = port.info().clone();
        let mut queues = Vec::new();
        for (number, queue) in port.into_queues().into_iter().enumerate() {
            let readable = queue.as_fd().try_clone_to_owned().map_err(mlua::Error::external)?;
            queues.push(Arc::new(DeviceQueue {
                label: format!("{name}#{number}"),
                ring: Mutex::new(queue),
                readable,
                max_frame_bytes: info.max_frame_bytes,
                sender: Mutex::new(Sender::new(run.clock.reader())),
                meter: Mutex::default(),
                sent: FrameCounter::default(),
                received: FrameCounter::default(),
                too_long: AtomicU64::new(0),
            }));
        }
        let mac = address_of(&info);
        Ok(Self { name: name.to_owned(), info, mac, tx_queues, rx_queues, queues })
    }

    pub(super) fn open(run: &Run, name: &str, tx_queues: u16, rx_queues: u16) -> mlua::Result<Arc<Self>> {
        // The lock is held while the port opens, so that of two tasks that open one port the second gets the first
        // one's device.
        let mut devices = run.devices();
        if let Some(device) = devices.iter().find(|device| device.name == name) {
            if device.tx_queues < tx_queues || device.rx_queues < rx_queues {
                return Err(mlua::Error::runtime(format!(
                    "device.config: {name} is open already with {} tx and {} rx queues: request all queues at \
                     once",
                    device.tx_queues, device.rx_queues
                )));
            }
            return Ok(Arc::clone(device));
        }
        let wanted = tx_queues.max(rx_queues);
        let port = (run.options.open)(name, wanted)
            .map_err(|error| mlua::Error::runtime(format!("device.config: {name}: {error}")))?;
        let device = Self::new(name, port, run, tx_queues, rx_queues)?;
        if device.queues.len() < usize::from(wanted) {
            return Err(mlua::Error::runtime(format!(
                "device.config: {name} has {} queues, and {wanted} are requested: request fewer, or name the port with \
                 more, like {name}@queues={wanted}",
                device.queues.len()
            )));
        }
        let device = Arc::new(device);
        devices.push(Arc::clone(&device));
        Ok(device)
    }

    pub(super) fn info(&self) -> &PortInfo {
        &self.info
    }

    /// Hands over the frames still in the rings, until there is no more progress.
    pub(super) fn drain(&self, run: &Run) -> Result<(), PortError> {
        let mut clock = run.clock.reader();
        for queue in &self.queues {
            let (mut pending, mut progress_ns) = (u32::MAX, clock.now_ns());
            loop {
                let left = {
                    let mut ring = queue.ring();
                    ring.tx().sync()?;
                    ring.tx().pending()
                };
                let now_ns = clock.now_ns();
                if left < pending {
                    (pending, progress_ns) = (left, now_ns);
                }
                if left == 0 || u128::from(now_ns - progress_ns) >= run.options.drain.as_nanos() {
                    break;
                }
                std::thread::sleep(DRAIN_CHECK);
            }
        }
        Ok(())
    }

    /// Streams that the device's queues numbered, with the number of frames of each.
    pub(super) fn streams(&self) -> Vec<(u16, u64)> {
        self.queues.iter().flat_map(|queue| queue.sender().sequences().to_vec()).collect()
    }

    /// Counts of the device. `sent` has the number of frames that this run sent of each stream.
    pub(super) fn report(&self, sent: &HashMap<u16, u64>) -> DeviceReport {
        let queues = self.queues.iter().enumerate().map(|(number, queue)| {
            let (sent_here, received) = (queue.sent.get(), queue.received.get());
            let unsent_frames = u64::from(queue.ring().tx().pending());
            let sender = queue.sender();
            let meter = queue.meter().as_ref().map(|metered| {
                let mut report = metered.meter.report();
                for stream in &mut report.streams {
                    let sent = stream.wire_streams().first().and_then(|stream| sent.get(stream));
                    sent.into_iter().for_each(|&sent| stream.complete(sent));
                }
                report.summary()
            });
            QueueReport {
                queue: number,
                sent_frames: sent_here.frames,
                sent_bytes: sent_here.bytes,
                unsent_frames,
                received_frames: received.frames,
                received_bytes: received.bytes,
                too_long_frames: queue.too_long.load(Ordering::Relaxed),
                offered: sender.offered(),
                departure: sender.departure_error(),
                meter,
            }
        });
        DeviceReport { name: self.name.clone(), driver: self.info.driver.clone(), queues: queues.collect() }
    }

    /// Frames and bytes with FCS over all queues.
    fn total(&self, of: impl Fn(&DeviceQueue) -> &FrameCounter) -> (u64, u64) {
        let FrameCount { frames, bytes } = self.queues.iter().map(|queue| of(queue).get()).sum();
        (frames, bytes + frames * u64::from(FCS_BYTES))
    }

    fn queue(self: &Arc<Self>, side: QueueDirection, number: i64) -> mlua::Result<ScriptQueue> {
        let count = match side {
            QueueDirection::Tx => self.tx_queues,
            QueueDirection::Rx => self.rx_queues,
        };
        let index = usize::try_from(number).ok().filter(|index| *index < usize::from(count));
        match index.and_then(|index| self.queues.get(index)) {
            Some(queue) => Ok(ScriptQueue {
                device: Arc::clone(self),
                queue: Arc::clone(queue),
                side,
                number: number as u16,
            }),
            None => Err(mlua::Error::runtime(format!(
                "{} has no {} queue {number}: it has {count}, numbered from 0; request more in device.config",
                self.name,
                side.word()
            ))),
        }
    }
}

/// The address of the port's interface, if the interface is visible from this namespace. Otherwise an address derived
/// from the port's name, which is the same in each run.
fn address_of(info: &PortInfo) -> Mac {
    let interface = info.name.trim_start_matches("xdp:").trim_start_matches("packet:");
    let plain = |name: &str| !name.is_empty() && !name.contains(['/', ':', '{', '}', '^', '@', '.']);
    let path = format!("/sys/class/net/{interface}/address");
    if let Some(mac) = plain(interface)
        .then(|| std::fs::read_to_string(path).ok())
        .flatten()
        .and_then(|text| text.trim().parse().ok())
    {
        return mac;
    }
    // Hash of the name: FNV-1a, 64 bits.
    let hash = info.name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let [a, b, c, d, e, ..] = hash.to_be_bytes();
    Mac::from_octets([2, a, b, c, d, e])
}

/// A device in a Lua state.
pub(super) struct DeviceRef(pub(super) Arc<ScriptDevice>);

impl UserData for DeviceRef {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("name", |_, this| Ok(this.0.name.clone()));
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("getTxQueue", |_, this, number: i64| this.0.queue(QueueDirection::Tx, number));
        methods.add_method("getRxQueue", |_, this, number: i64| this.0.queue(QueueDirection::Rx, number));
        methods.add_method("getTxStats", |_, this, ()| Ok(this.0.total(|queue| &queue.sent)));
        methods.add_method("getRxStats", |_, this, ()| Ok(this.0.total(|queue| &queue.received)));
        methods.add_method("getMacString", |_, this, ()| Ok(this.0.mac.to_string()));
        methods.add_method("getMac", |_, this, ()| Ok(this.0.mac.number() as f64));
        methods.add_method("getName", |_, this, ()| Ok(this.0.name.clone()));
        methods.add_method("getDriverName", |_, this, ()| Ok(this.0.info.driver.clone()));
        methods.add_meta_method(MetaMethod::ToString, |_, this, ()| Ok(format!("[Device: {}]", this.0.name)));
    }
}

/// A ring of the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueDirection {
    Tx,
    Rx,
}

impl QueueDirection {
    fn word(self) -> &'static str {
        match self {
            Self::Tx => "tx",
            Self::Rx => "rx",
        }
    }
}

/// One side of a queue in a Lua state.
#[derive(Clone)]
pub(super) struct ScriptQueue {
    device: Arc<ScriptDevice>,
    pub(super) queue: Arc<DeviceQueue>,
    side: QueueDirection,
    number: u16,
}

impl std::fmt::Debug for ScriptQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.side.word(), self.queue.label)
    }
}

impl std::fmt::Debug for ScriptDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl ScriptQueue {
    /// Refuses functions that need the other side.
    fn expect(&self, side: QueueDirection, what: &str) -> mlua::Result<()> {
        if self.side == side {
            return Ok(());
        }
        let get = if side == QueueDirection::Tx { "getTxQueue" } else { "getRxQueue" };
        Err(mlua::Error::runtime(format!(
            "{what}: this is the {} side of {}: use dev:{get}({})",
            self.side.word(),
            self.queue.label,
            self.number
        )))
    }
}

/// The array behind a script's `bufs`, and the number of its buffers in use.
pub(super) fn buffer_array(bufs: &Table, what: &str) -> mlua::Result<(UserDataRef<BufferArray>, usize)> {
    let handle: Value = bufs.raw_get("handle")?;
    let array = handle.as_userdata().and_then(|handle: &AnyUserData| handle.borrow::<BufferArray>().ok());
    let array = array.ok_or_else(|| {
        mlua::Error::runtime(format!("{what}: give an array of buffers, from mem:bufArray()"))
    })?;
    let size: usize = bufs.raw_get("size")?;
    let count = array.block.borrow().count();
    Ok((array, size.min(count)))
}

impl UserData for ScriptQueue {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("dev", |_, this| Ok(DeviceRef(Arc::clone(&this.device))));
        fields.add_field_method_get("name", |_, this| Ok(this.queue.label.clone()));
        fields.add_field_method_get("id", |_, this| Ok(this.device.name.clone()));
        fields.add_field_method_get("qid", |_, this| Ok(this.number));
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("send", |lua, this, bufs: Table| {
            this.expect(QueueDirection::Tx, "send")?;
            let (array, size) = buffer_array(&bufs, "send")?;
            this.queue.sender().send(&this.queue, &array, size, &context(lua)?.run)
        });
        methods.add_method("sendN", |lua, this, (bufs, count): (Table, usize)| {
            this.expect(QueueDirection::Tx, "sendN")?;
            let (array, _) = buffer_array(&bufs, "sendN")?;
            let count = count.min(array.block.borrow().count());
            this.queue.sender().send(&this.queue, &array, count, &context(lua)?.run)
        });
        methods.add_method("setRate", |_, this, (rate, shape): (Value, Value)| {
            this.expect(QueueDirection::Tx, "setRate")?;
            this.queue.sender().set_load(load::of_mbit(&rate, &shape)?)
        });
        methods.add_method("setRateMpps", |_, this, (rate, shape): (Value, Value)| {
            this.expect(QueueDirection::Tx, "setRateMpps")?;
            this.queue.sender().set_load(load::of_mpps(&rate, &shape)?)
        });
        methods.add_method("getOffered", |lua, this, ()| {
            let offered = this.queue.sender().offered();
            let table = lua.create_table()?;
            table.set("intended", offered.intended_frames)?;
            table.set("sent", offered.sent_frames)?;
            table.set("skipped", offered.skipped_frames)?;
            Ok(table)
        });
        methods.add_method("recv", |lua, this, bufs: Table| {
            this.expect(QueueDirection::Rx, "recv")?;
            let (array, _) = buffer_array(&bufs, "recv")?;
            receiver::receive(&this.queue, &array, None, &*context(lua)?)
        });
        methods.add_method("tryRecv", |lua, this, (bufs, wait_us): (Table, Option<f64>)| {
            this.expect(QueueDirection::Rx, "tryRecv")?;
            let (array, _) = buffer_array(&bufs, "tryRecv")?;
            let limit_ns = wait_us.map_or(u64::MAX, |us| (us.max(0.0) * 1e3) as u64);
            receiver::receive(&this.queue, &array, Some(limit_ns), &*context(lua)?)
        });
        methods.add_method("meter", |lua, this, streams: Option<Vec<u16>>| {
            this.expect(QueueDirection::Rx, "meter")?;
            MeterRef::attach(&this.queue, streams, context(lua)?.now_ns())
        });
        methods.add_method("getMacString", |_, this, ()| Ok(this.device.mac.to_string()));
        methods.add_method("getTxStats", |_, this, ()| Ok(this.device.total(|queue| &queue.sent)));
        methods.add_method("getRxStats", |_, this, ()| Ok(this.device.total(|queue| &queue.received)));
        methods.add_meta_method(MetaMethod::ToString, |_, this, ()| {
            Ok(format!("[{} queue: {}]", this.side.word(), this.queue.label))
        });
    }
}
