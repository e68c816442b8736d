//! The examples of the manual pages.

/// Shell lines for each command that users type. `of("")` has those of `ringroad` itself.
pub(crate) fn of(command: &str) -> Option<&'static str> {
    Some(match command {
        "" => {
            "\
# Receive at one port of a switch, send at another, and look on. The first command starts the daemon.
ringroad recv vale0:b &
ringroad gen vale0:a --rate 1Mpps --duration 5
ringroad top"
        }
        "up" => {
            "\
ringroad up
ringroad up --config /etc/ringroad/ringroadd.toml"
        }
        "down" => "ringroad down",
        "status" => {
            "\
ringroad status
ringroad status --json | jq .workers"
        }
        "list" => "ringroad list --json",
        "kinds" => {
            "\
ringroad kinds
# All options of memif: ports
ringroad kinds memif"
        }
        "attach" => {
            "\
# An interface and its host stack on a switch: the host stays connected
ringroad attach vale0:eth0 --host
# A port for a virtual machine
ringroad attach vale0:vm1 --driver vhost-user:/run/vm1.sock
# A trunk to the network, and a port of VLAN 10 for a program
ringroad attach vale0:up@trunk=10,20-29,native=5 --driver eth0
ringroad attach vale0:app@vlan=10 --for-program"
        }
        "port" => {
            "\
# Into VLAN 20, apart from other isolated ports
ringroad port vale0:guest@vlan=20,isolated
ringroad port --unset vale0:guest"
        }
        "detach" => "ringroad detach vale0:eth0",
        "link" => "ringroad link blue green --address 10.77.0.1/24",
        "unlink" => "ringroad unlink blue green",
        "vm" => {
            "\
ringroad vm a --port vale0:a --address 10.0.0.1/24 --detach
ringroad vm exec a -- ping -c 3 10.0.0.2
ringroad vm stop a"
        }
        "container" => {
            "\
# A shell in a network namespace of its own
ringroad container blue --port vale0:blue --address 10.0.0.3/24
# A program
ringroad container web --port vale0:web --address 10.0.0.4/24 -- busybox httpd -f"
        }
        "testpmd" => "ringroad testpmd --port vale0:a --port vale0:b --forward macswap",
        "sze2" => {
            "\
ringroad attach vale0:card --driver sze2:/run/szedataII0
ringroad sze2 status /run/szedataII0"
        }
        "config" => {
            "\
# Keep what was attached in the daemon's configuration
ringroad config save
# Try a changed configuration, and put it in force
ringroad config apply new.toml --dry-run
ringroad config apply new.toml"
        }
        "metrics" => {
            "\
# For Prometheus, at http://127.0.0.1:9464/metrics
ringroad metrics --listen 127.0.0.1:9464"
        }
        "sflow" => {
            "\
ringroad sflow vale0 --collector 192.0.2.10
# Another port, more samples, and an address that stays the same
ringroad sflow vale0 --collector [2001:db8::10]:7343 --sampling 1-in-100 --agent 192.0.2.1"
        }
        "reload" => "ringroad reload",
        "upgrade" => {
            "\
# After `apt upgrade`, or `make install`:
ringroad upgrade"
        }
        "macs" => {
            "\
ringroad macs vale0
# An address that stays on its port
ringroad macs vale0 --set 02:00:00:00:00:01=uplink"
        }
        "switch" => {
            "\
# Flow tables under a controller
ringroad switch vale0 --openflow tcp:127.0.0.1:6653
# The same by TLS
ringroad switch vale0 --openflow ssl:10.0.0.1 --private-key key.pem --certificate cert.pem --ca-cert ca.pem
# Flow tables that tools alone change, such as ringroad flows and ovs-ofctl
ringroad switch vale0 --openflow
# Learned addresses again
ringroad switch vale0 --learn"
        }
        "flows" => {
            "\
ringroad flows add vale0 priority=10,in_port=1,actions=output:2 actions=NORMAL
ringroad flows dump vale0 in_port=1
ringroad flows diff vale0 flows.txt
ringroad flows replace vale0 flows.txt
ringroad flows del vale0"
        }
        "explain" => {
            "\
ringroad explain vale0 in_port=1,dl_src=02:00:00:00:00:01,tcp,nw_dst=10.0.0.1,nw_ttl=64,tp_dst=80
# The second frame of a capture, as if it came in by port a
ringroad explain vale0 --pcap frames.pcap --number 1 --in-port a"
        }
        "mirror" => {
            "\
# Frames to and from vale0:a; ringroad capture vale0:look shows them
ringroad mirror vale0:a --to vale0:look
# One of 1000 frames of the whole switch
ringroad mirror vale0 --to vale0:look --sample 1000
ringroad mirror vale0:a --to vale0:look --remove"
        }
        "trace" => {
            "\
ringroad trace vale0
# Where frames of one port are dropped
ringroad trace vale0 --from a --count 4096 --drops"
        }
        "gen" => {
            "\
# Loss, latency and jitter of a million flows between two ports
ringroad gen vale0:a --to vale0:b --rate 100kpps --size imix --flows 1M --duration 5
# Both ways over two interfaces, at half of their rate
ringroad gen eth0 --to eth1 --bidirectional --rate 50%@10G --size imix"
        }
        "trial" => "ringroad trial vale0:a vale0:b --rate 500kpps --size 64 --duration 10",
        "recv" => "ringroad recv eth0 --duration 5",
        "fwd" => "ringroad fwd vale0:c x{1 --mode macswap",
        "capture" => {
            "\
# Look on at an interface: the host keeps its traffic
ringroad capture packet:eth0 -w - | tcpdump -nr -
# DNS only, and of that the last 10 files of 100 MB
ringroad capture vale0:look -w dns.pcap --file-size 100MB --files 10 udp port 53"
        }
        "replay" => {
            "\
ringroad replay capture.pcap vale0:a --speed 2
ringroad replay capture.pcap vale0:a --loop 10 --rate 1Gbit --map-ip 10.0.0.0/8=198.18.0.0/8"
        }
        "run" => {
            "\
# Programs over libpcap and netmap, as they are
ringroad run -- tcpdump -i vale0:1 -n udp
ringroad run -- pkt-gen -i vale0:2 -f tx"
        }
        "script" => "ringroad script l2-load-latency.lua vale0:a vale0:b --rate 1Mpps --frames 1000000",
        "otg" => {
            "\
ringroad otg
# A socket that only this user may open, without a token
ringroad otg --listen unix:/run/lab/otg.sock"
        }
        "top" => "ringroad top --interval 2",
        "doctor" => "ringroad doctor",
        "demo" => "ringroad demo --capture capture.pcap",
        "bench" => {
            "\
ringroad bench
ringroad bench --path pipe --json"
        }
        _ => return None,
    })
}
