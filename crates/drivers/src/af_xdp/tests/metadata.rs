//! Tests of what the kernel knows of a frame beside its bytes: VLAN tags of received frames.

use ringroad_bpf::link::{BpfLink, TcxSide, XdpAttachMode};
use ringroad_bpf::map::XskMap;
use ringroad_bpf::program::{RedirectPath, TcxProgram, XdpProgram};

use super::*;

/// A veth pair `near` and `far`, and a raw socket. The kernel takes the VLAN tags out of the frames that the socket
/// sends, and passes them on through `far`, with the tags beside them, as long as the link lives.
fn tagging_peer(mtu: u32) -> (u32, RawSocket, BpfLink) {
    let (near, _) = veth(1, mtu);
    ip(&format!("link add other mtu {mtu} type veth peer name remote mtu {mtu}"));
    ip("link set other up");
    ip("link set remote up");
    let program = TcxProgram::redirect(index_of("far"), RedirectPath::Egress, None).unwrap();
    let link = BpfLink::attach_tcx(&program, index_of("other"), TcxSide::Ingress).unwrap();
    (near, RawSocket::open("remote", TEST_TYPE), link)
}

fn tagged(frame: &[u8], tag: [u8; 4]) -> Vec<u8> {
    [&frame[..12], &tag, &frame[12..]].concat()
}

const TAG: [u8; 4] = [0x81, 0, 0x60, 7];

fn puts_vlan_tags_back(mtu: u32, lengths: &'static [usize]) {
    in_own_namespace(move || {
        let (near, remote, _link) = tagging_peer(mtu);
        let without = XdpConfig { mtu, ..config(near, AfXdpMode::Native) };
        let mut device = open(&without).unwrap();
        remote.send(&tagged(&frame(1, 100), TAG));
        assert_eq!(receive(&mut device.queues[0], 1), [frame(1, 100)], "the tag lies beside the frame");
        drop(device);
        let mut device = open(&XdpConfig { has_vlan_tags: true, ..without }).unwrap();
        assert!(device.mode.ends_with("; with vlan-tag"), "{}", device.mode);
        for round in 0..20 {
            let mut sent = Vec::new();
            for &len in lengths {
                let plain = frame(round, len);
                let inner = tagged(&plain, [0x81, 0, 0, 9]);
                sent.extend([tagged(&plain, TAG), tagged(&plain, [0x88, 0xA8, 0x1F, 0xFE]), plain]);
                sent.push(tagged(&inner, TAG));
            }
            for frame in &sent {
                remote.send(frame);
            }
            assert!(receive(&mut device.queues[0], sent.len()) == sent, "round {round}");
        }
        assert_eq!(device.queues[0].diagnosis().unwrap().missed_frames(), 0);
    });
}

#[test]
fn a_vlan_tag_beside_a_frame_is_put_back_into_it() {
    puts_vlan_tags_back(1500, &[60, 1000, 1509, 1510]);
}

#[test]
fn a_vlan_tag_is_put_back_into_a_frame_of_several_buffers() {
    puts_vlan_tags_back(9000, &[60, 1784, 1785, 1788, 1789, 1792, 5000, 9010]);
}

#[test]
fn a_mode_that_loses_vlan_tags_says_so_with_the_remedy() {
    in_own_namespace(|| {
        let (near, _far) = veth(1, 1500);
        let device = open(&XdpConfig { has_vlan_tags: true, ..config(near, AfXdpMode::Generic) }).unwrap();
        assert!(device.notes[0].contains("`tx-vlan-hw-insert off`"), "{:?}", device.notes);
        assert!(!device.mode.contains("vlan-tag"), "{}", device.mode);
    });
}

#[test]
fn a_frame_for_the_host_stack_keeps_its_vlan_tag_where_it_lies() {
    in_own_namespace(|| {
        let (near, remote, _link) = tagging_peer(9000);
        let map = XskMap::create(1).unwrap();
        let program = XdpProgram::to_sockets(&map, true, Some(near)).unwrap();
        assert!(program.puts_tags_back() && program.multi_buffer());
        let _attached = BpfLink::attach_xdp(&program, near, XdpAttachMode::Native).unwrap();
        // With the tag in the frame, too, it would be of another type.
        let host = RawSocket::open("near", TEST_TYPE);
        remote.send(&tagged(&frame(1, 100), TAG));
        assert_eq!(host.receive(), frame(1, 100));
    });
}
