use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{TryRecvError, channel};

use ringroad_netdev::link_by_name;
use ringroad_port::batch::Batch;
use ringroad_port::drop_cause::DropCause;

use super::*;
use crate::af_packet::{self, PacketConfig};
use crate::test_network::{Host, RawSocket, in_own_namespace, ip, test_frame, until, wait_running};
use crate::test_queue::{deliver, forward, receive, receive_now};

const IPV4: u16 = 0x0800;
const LOCAL: u16 = 0x88b5;

/// Creates an interface with address 10.9.0.1 and its peer, which is up. Returns the request for the interface.
fn config() -> DivertConfig {
    ip("link add rrp0 type veth peer name rrp1");
    ip("link set rrp1 up");
    ip("addr add 10.9.0.1/24 dev rrp0");
    ip("link set rrp0 up");
    wait_running("rrp0");
    wait_running("rrp1");
    let ifindex = link_by_name("rrp0").unwrap().index;
    DivertConfig { interface: "rrp0".to_owned(), ifindex, mtu: 1500, queues: 1, offloads: false }
}

#[test]
fn frames_from_the_host_are_received_whole_and_do_not_leave() {
    in_own_namespace(|| {
        let config = config();
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev rrp0");
        let far = RawSocket::open("rrp1", IPV4);
        let mut rings = open(&config, Vec::new()).unwrap();
        let socket = UdpSocket::bind("10.9.0.1:7").unwrap();
        socket.send_to(b"to the ring", "10.9.0.2:9").unwrap();
        let frame = receive(&mut *rings.queues[0], 1).remove(0);
        let sliced = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
        let (Some(etherparse::NetSlice::Ipv4(ipv4)), Some(etherparse::TransportSlice::Udp(udp))) =
            (sliced.net, sliced.transport)
        else {
            panic!("no UDP over IPv4");
        };
        assert_eq!(udp.payload(), b"to the ring");
        let checksum = udp.to_header().calc_checksum_ipv4(&ipv4.header().to_header(), udp.payload()).unwrap();
        assert_eq!(udp.checksum(), checksum);
        assert_eq!(rings.queues[0].diagnosis().unwrap().missed_frames(), 0);

        drop(rings);
        until(|| !ip("link show").contains("rrh-"));
        socket.send_to(b"to the wire", "10.9.0.2:9").unwrap();
        // The first frame that arrives there is the one sent afterwards.
        assert!(far.receive().ends_with(b"to the wire"));
    });
}

#[test]
fn the_host_receives_delivered_frames_and_packet_sockets_can_ignore_them() {
    in_own_namespace(|| {
        let config = config();
        let mut rings = open(&DivertConfig { queues: 2, ..config.clone() }, Vec::new()).unwrap();
        assert_eq!(rings.queues.len(), 2);
        let mut hears = PacketConfig::new("rrp0", config.ifindex, 1500);
        let mut all = af_packet::open(&hears).unwrap().queues.remove(0);
        hears.ignore_marked = Some(HOST_MARK);
        let mut wire = af_packet::open(&hears).unwrap().queues.remove(0);

        let host = UdpSocket::bind("10.9.0.1:7").unwrap();
        host.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let own = link_by_name("rrp0").unwrap().mac.unwrap();
        for (number, queue) in rings.queues.iter_mut().enumerate() {
            let payload = [number as u8; 40];
            let mut frame = Vec::new();
            etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], own)
                .ipv4([10, 9, 0, 2], [10, 9, 0, 1], 64)
                .udp(9, 7)
                .write(&mut frame, &payload)
                .unwrap();
            assert_eq!(deliver(&mut **queue, std::slice::from_ref(&frame), 30).frames, 1);
            let mut buffer = [0; 100];
            let (len, from) = host.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..len], from.to_string().as_str()), (&payload[..], "10.9.0.2:9"));
            assert_eq!(receive(&mut *all, 1), [frame]);
        }
        let frame = test_frame(2, 1, 60);
        RawSocket::open("rrp1", LOCAL).send(&frame);
        assert_eq!(receive(&mut *wire, 1), [frame]);
    });
}

#[test]
fn an_interface_down_or_gone_loses_frames_by_cause() {
    in_own_namespace(|| {
        let mut rings = open(&config(), Vec::new()).unwrap();
        let queue = &mut *rings.queues[0];
        let frame = [test_frame(1, 1, 60)];
        assert_eq!((deliver(queue, &frame, 60).frames, queue.diagnosis().unwrap().fault()), (1, None));
        for (command, words) in [("link set rrp0 down", "rrp0 is down"), ("link del rrp0", "rrp0 is gone")] {
            ip(command);
            until(|| queue.diagnosis().unwrap().fault().is_some_and(|fault| fault.contains(words)));
            assert_eq!(deliver(queue, &frame, 60).dropped.of(DropCause::LinkDown), 1);
            assert_eq!(receive_now(queue), Vec::<Vec<u8>>::new());
        }
    });
}

#[test]
fn the_host_side_belongs_to_one_program_at_a_time() {
    in_own_namespace(|| {
        let config = config();
        let mut rings = open(&config, Vec::new()).unwrap();
        let error = open(&config, Vec::new()).unwrap_err();
        assert!(matches!(&error, DivertError::Busy(name) if name == "rrp0^"), "{error}");
        ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev rrp0");
        let socket = UdpSocket::bind("10.9.0.1:7").unwrap();
        socket.send_to(b"to the first program", "10.9.0.2:9").unwrap();
        assert!(receive(&mut *rings.queues[0], 1)[0].ends_with(b"to the first program"));
        drop(rings);
        until(|| !ip("link show").contains("rrh-"));
        open(&config, Vec::new()).unwrap();
        let error = open(&DivertConfig { ifindex: 999_999, ..config.clone() }, Vec::new()).unwrap_err();
        assert!(error.to_string().contains("no interface with index 999999"), "{error}");
        until(|| !ip("link show").contains("rrh-"));
    });
}

/// The host's own stack reaches the wire only through a forwarder between the interface and its host rings, which plays
/// a switch. Here offloads are on at both ends.
#[test]
fn a_host_behind_a_forwarding_program_still_reaches_the_network() {
    const TOTAL_BYTES: usize = 4 << 20;
    in_own_namespace(|| {
        let config = config();
        let peer = Host::new();
        peer.take("rrp1", "10.9.0.2/24");
        let mut rings = open(&config, Vec::new()).unwrap();
        // The host receives no frames from the wire, only those delivered through the host ring.
        let steal = TcxProgram::drop_unless_marked(HOST_MARK).unwrap();
        let _stolen = BpfLink::attach_tcx(&steal, config.ifindex, TcxSide::Ingress).unwrap();
        let ignoring = PacketConfig {
            ignore_marked: Some(HOST_MARK),
            ..PacketConfig::new("rrp0", config.ifindex, 1500)
        };
        let mut wire = af_packet::open(&ignoring).unwrap().queues.remove(0);

        let (finished, done) = channel::<()>();
        std::thread::scope(|scope| {
            let forwarder = scope.spawn(move || {
                let mut batch = Batch::new();
                let host = &mut *rings.queues[0];
                let mut moved = [0, 0];
                while done.try_recv() == Err(TryRecvError::Empty) {
                    let now = [forward(host, &mut *wire, &mut batch), forward(&mut *wire, host, &mut batch)];
                    if now == [0, 0] {
                        std::thread::yield_now();
                    }
                    moved = [moved[0] + now[0], moved[1] + now[1]];
                }
                moved
            });
            let sent: Vec<u8> = (0..TOTAL_BYTES).map(|at| (at ^ (at >> 8)) as u8).collect();
            let echo = peer.run(|| TcpListener::bind("10.9.0.2:7").unwrap());
            peer.start(move || {
                let mut stream = echo.accept().unwrap().0;
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes).unwrap();
                stream.write_all(&bytes).unwrap();
            });
            let mut stream = TcpStream::connect("10.9.0.2:7").unwrap();
            stream.write_all(&sent).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            assert!(back == sent, "the bytes differ");
            drop(finished);
            let [out, home] = forwarder.join().unwrap();
            let least = TOTAL_BYTES / 1448;
            assert!(out > least && home > least, "only {out} and {home} frames went this way");
        });
    });
}
