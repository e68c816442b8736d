//! Tests of control calls with a double of [`NetmapFile`] that records its requests. The structures lie in real memory
//! of the process.

mod current;
mod legacy;
mod options;

use std::cell::{Cell, RefCell};

use ringroad_control::netmap::{Bound, NetmapReply, NetmapRequest, Pool, Pools, PortSizes, Register};
use ringroad_ring::geometry::RegionGeometry;
use rustix::io::Errno;

use super::control;
use crate::abi::{
    CsbOption, NIOCCONFIG, NIOCCTRL, NIOCGINFO, NIOCGINFO_2012, NIOCREGIF, NIOCREGIF_2012, NIOCRXSYNC,
    NIOCTXSYNC,
};
use crate::descriptor::{LoopError, LoopPlan, NetmapFile};

/// Request to the double.
#[derive(Debug, Clone, PartialEq)]
enum Asked {
    Register(Register, Option<usize>, Option<CsbOption>),
    Daemon(NetmapRequest),
    ExpectMapping(String),
    EnableCsb(CsbOption),
    Loop(LoopPlan),
    StopLoop,
    TxSync,
    RxSync,
}

/// A double of a device.
struct RecordingDescriptor {
    asked: RefCell<Vec<Asked>>,
    rings: Cell<Option<(usize, usize)>>,
    registered: RefCell<Result<Bound, Errno>>,
    early: Cell<Option<Bound>>,
    reply: RefCell<Result<NetmapReply, Errno>>,
    enabled: Cell<Result<(), Errno>>,
    looped: Cell<Result<(), LoopError>>,
    synced: Cell<Result<(), Errno>>,
}

const BOUND_SIZES: PortSizes =
    PortSizes { tx_slots: 512, rx_slots: 256, tx_rings: 2, rx_rings: 3, host_tx_rings: 4, host_rx_rings: 5 };

const POOLS: Pools = Pools {
    memory_bytes: 0x10_0000,
    mem_id: 9,
    interfaces: Pool { offset: 0, objects: 2, object_bytes: 1024 },
    rings: Pool { offset: 4096, objects: 4, object_bytes: 20480 },
    buffers: Pool { offset: 65536, objects: 4098, object_bytes: 2048 },
};

fn bound() -> Bound {
    Bound {
        port: "vale0:a".into(),
        sizes: BOUND_SIZES,
        mem_id: 7,
        geometry: RegionGeometry::for_ports(2, 1, 64, 2048, 0).unwrap(),
        interface_offset: 192,
        extra_buffers: 11,
        mode: 4,
        flags: 0x500,
        rings: Vec::new(),
        event_pairs: 0,
        is_single_user: true,
        workers_real_time: 0,
        external_memory: None,
    }
}

impl RecordingDescriptor {
    fn new() -> Self {
        Self {
            asked: RefCell::default(),
            rings: Cell::new(None),
            registered: RefCell::new(Ok(bound())),
            early: Cell::new(None),
            reply: RefCell::new(Ok(NetmapReply::Done)),
            enabled: Cell::new(Ok(())),
            looped: Cell::new(Ok(())),
            synced: Cell::new(Ok(())),
        }
    }

    fn replying(reply: NetmapReply) -> Self {
        let device = Self::new();
        *device.reply.borrow_mut() = Ok(reply);
        device
    }

    fn record(&self, asked: Asked) {
        self.asked.borrow_mut().push(asked);
    }

    /// Requests since the last call.
    fn asked(&self) -> Vec<Asked> {
        self.asked.take()
    }

    /// The only request to the daemon since the last call.
    fn asked_daemon(&self) -> NetmapRequest {
        match self.asked().as_slice() {
            [Asked::Daemon(request)] => request.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// The only binding since the last call.
    fn asked_register(&self) -> Register {
        match self.asked().as_slice() {
            [Asked::Register(request, ..)] => request.clone(),
            other => panic!("{other:?}"),
        }
    }
}

impl NetmapFile for RecordingDescriptor {
    fn register(
        &self,
        request: Register,
        external_memory: Option<usize>,
        csb: Option<CsbOption>,
    ) -> Result<Bound, Errno> {
        self.record(Asked::Register(request, external_memory, csb));
        self.registered.borrow().clone()
    }

    fn expect_early_mapping(&self, name: String) {
        self.record(Asked::ExpectMapping(name));
    }

    fn take_early_binding(&self, name: &str) -> Option<Bound> {
        self.early.take().filter(|bound| bound.port == name)
    }

    fn ask(&self, request: NetmapRequest) -> Result<NetmapReply, Errno> {
        self.record(Asked::Daemon(request));
        self.reply.borrow().clone()
    }

    fn bound_rings(&self) -> Option<(usize, usize)> {
        self.rings.get()
    }

    fn enable_csb(&self, csb: CsbOption) -> Result<(), Errno> {
        self.record(Asked::EnableCsb(csb));
        self.enabled.get()
    }

    fn run_sync_loop(&self, plan: LoopPlan) -> Result<(), LoopError> {
        self.record(Asked::Loop(plan));
        self.looped.get()
    }

    fn stop_sync_loop(&self) -> Result<(), Errno> {
        self.record(Asked::StopLoop);
        Ok(())
    }

    fn tx_sync(&self) -> Result<(), Errno> {
        self.record(Asked::TxSync);
        self.synced.get()
    }

    fn rx_sync(&self) -> Result<(), Errno> {
        self.record(Asked::RxSync);
        self.synced.get()
    }
}

/// Address of a structure of the "program".
fn address<T>(structure: &mut T) -> usize {
    core::ptr::from_mut(structure).expose_provenance()
}

#[test]
fn syncs_take_any_argument() {
    let device = RecordingDescriptor::new();
    for argument in [0, 1, usize::MAX] {
        assert_eq!(control(&device, u64::from(NIOCTXSYNC), argument), Ok(()));
        assert_eq!(control(&device, u64::from(NIOCRXSYNC), argument), Ok(()));
    }
    let round = || [Asked::TxSync, Asked::RxSync];
    assert_eq!(device.asked(), [round(), round(), round()].concat());
    device.synced.set(Err(Errno::NXIO));
    assert_eq!(control(&device, u64::from(NIOCTXSYNC), 0), Err(Errno::NXIO));
    assert_eq!(control(&device, u64::from(NIOCRXSYNC), 0), Err(Errno::NXIO));
}

#[test]
fn null_and_invalid_arguments_have_different_errors() {
    let device = RecordingDescriptor::new();
    let requests = [NIOCCTRL, NIOCREGIF, NIOCGINFO, NIOCREGIF_2012, NIOCGINFO_2012, NIOCCONFIG];
    for request in requests.map(u64::from) {
        // Compilers sign-extend a request that they treat as an int.
        for request in [request, request | 0xFFFF_FFFF_0000_0000] {
            assert_eq!(control(&device, request, 0), Err(Errno::INVAL), "{request:#x}");
            assert_eq!(control(&device, request, 1), Err(Errno::FAULT), "{request:#x}");
        }
    }
    assert_eq!(device.asked(), []);
}

#[test]
fn there_are_no_switch_modules_to_configure() {
    let mut request = crate::abi::ConfigRequest::default();
    let outcome = control(&RecordingDescriptor::new(), u64::from(NIOCCONFIG), address(&mut request));
    assert_eq!(outcome, Err(Errno::INVAL));
}

#[test]
fn other_requests_are_not_supported() {
    let device = RecordingDescriptor::new();
    for request in [0, 0x5401, 0x6993, u64::from(NIOCCTRL) + 1] {
        for argument in [0, 1] {
            assert_eq!(control(&device, request, argument), Err(Errno::OPNOTSUPP), "{request:#x}");
        }
    }
}
