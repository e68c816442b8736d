use std::sync::atomic::Ordering;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use ringroad::{Embedded, Interest};
use ringroad_traffic::signature::{FormSet, SignatureForm, SignatureReading, read_signature};

use super::*;

/// Longest wait, reached only by a failure.
const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// The output of a script.
#[derive(Clone, Default)]
struct Printed(Arc<Mutex<Vec<u8>>>);

impl Write for Printed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A datapath for one script, and the script's output.
struct Bench {
    datapath: Embedded,
    printed: Printed,
    options: ScriptOptions,
}

impl Bench {
    fn new() -> Self {
        let datapath = Embedded::new();
        let printed = Printed::default();
        let ports = datapath.clone();
        let options = ScriptOptions {
            open: Arc::new(move |name, queues| {
                ports.open_with(name, &ringroad::OpenOptions { queues: Some(queues), ..Default::default() })
            }),
            output: Arc::new(Mutex::new(printed.clone())),
            drain: Duration::ZERO,
            ..ScriptOptions::default()
        };
        Self { datapath, printed, options }
    }

    fn try_run(&self, source: &str, arguments: &[&str]) -> Result<Option<ScriptReport>, ScriptError> {
        let script = ScriptSource { name: "test.lua".into(), source: prepared(source), file: None };
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        run_script(script, &arguments, self.options.clone())
    }

    fn run(&self, source: &str, arguments: &[&str]) -> ScriptReport {
        self.try_run(source, arguments).unwrap_or_else(|error| panic!("{error}")).unwrap()
    }

    fn printed(&self) -> String {
        String::from_utf8(self.printed.0.lock().unwrap().clone()).unwrap()
    }
}

/// Adds the modules under their usual names to the first line of `source`, so that line numbers stay.
fn prepared(source: &str) -> String {
    let modules = r#"local mg, memory, device, stats, hist, log, ffi = require "moongen", require "memory", require "device", require "stats", require "histogram", require "log", require "ffi"; "#;
    format!("{modules}{source}")
}

/// All frames that wait at `port`.
fn frames(port: &mut Port) -> Vec<Vec<u8>> {
    port.rx().sync().unwrap();
    let mut frames = Vec::new();
    loop {
        let mut frame = Vec::new();
        if port.rx().receive(&mut frame).is_none() {
            return frames;
        }
        frames.push(frame);
    }
}

/// Sends frames from one end of a pipe and returns those that arrive at the other. `fill` and `modify` make the frames
/// from `buf` and the number `i`.
fn sent(fill: &str, modify: &str, after: &str, size: usize, count: usize) -> Vec<Vec<u8>> {
    let bench = Bench::new();
    let mut far = bench.datapath.open("x}1").unwrap();
    let source = format!(
        r#"
        function master()
          local dev = device.config{{ port = "x{{1" }}
          mg.startTask("load", dev:getTxQueue(0))
          mg.waitForTasks()
        end
        function load(queue)
          local mem = memory.createMemPool(function(buf) {fill} end)
          local bufs = mem:bufArray({count})
          bufs:alloc({size})
          for i, buf in ipairs(bufs) do {modify} end
          {after}
          assert(queue:send(bufs) == {count})
        end"#
    );
    // Frames are checked after they have been taken from the pipe, while this thread runs the script's last step.
    bench.run(&source, &[]);
    frames(&mut far)
}

#[test]
fn a_batch_of_udp_frames_follows_the_script() {
    let received = sent(
        r#"buf:getUdpPacket():fill{
             ethSrc = "02:00:00:00:00:aa", ethDst = "02:00:00:00:00:bb", ip4Src = "10.0.0.1", ip4Dst = "10.1.0.1",
             ip4TTL = 7, ip4TOS = 0x2e, udpSrc = 1234, udpDst = 319, pktLength = 75 }"#,
        r#"local pkt = buf:getUdpPacket()
           pkt.ip4.src:set(parseIPAddress("10.0.0.1") + i)
           pkt.udp:setSrcPort(1000 + i)
           pkt.payload.uint8[0] = i
           pkt.payload.uint16[1] = hton16(i * 256)"#,
        "bufs:offloadUdpChecksums()",
        75,
        200,
    );
    assert_eq!(received.len(), 200);
    for (frame, number) in received.iter().zip(1u32..) {
        assert_eq!(frame.len(), 75);
        let packet = SlicedPacket::from_ethernet(frame).unwrap();
        let Some(NetSlice::Ipv4(ip)) = &packet.net else { panic!("{packet:?}") };
        let header = ip.header();
        assert_eq!(header.source(), (0x0a00_0001 + number).to_be_bytes());
        assert_eq!(header.destination(), [10, 1, 0, 1]);
        assert_eq!((header.ttl(), header.total_len(), frame[15]), (7, 61, 0x2e));
        assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
        let Some(TransportSlice::Udp(udp)) = &packet.transport else { panic!("{packet:?}") };
        assert_eq!(
            (udp.source_port(), udp.destination_port(), udp.length()),
            (1000 + number as u16, 319, 41)
        );
        let right = udp.to_header().calc_checksum_ipv4(&header.to_header(), udp.payload()).unwrap();
        assert_eq!(udp.checksum(), right);
        assert_eq!(udp.payload()[0], number as u8);
        assert_eq!(udp.payload()[2..4], (number as u16).wrapping_mul(256).to_be_bytes());
        assert_eq!(frame[..12], [2, 0, 0, 0, 0, 0xbb, 2, 0, 0, 0, 0, 0xaa]);
    }
}

#[test]
fn checksums_and_lengths_are_right_in_every_stack() {
    for (getter, size) in [
        ("getUdpPacket()", 60),
        ("getUdp6Packet()", 81),
        ("getUdpPacket(false)", 1514),
        ("getTcpPacket()", 61),
        ("getTcp6Packet()", 90),
        ("getIcmpPacket()", 64),
        ("getIcmp6Packet()", 99),
        ("getVlanUdpPacket()", 64),
        ("getVlanTcp6Packet()", 100),
        ("getQinQUdpPacket()", 68),
    ] {
        let fill = format!("buf:{getter}:fill{{ pktLength = {size} }}");
        let modify = format!("local pkt = buf:{getter}; pkt:setLength({size}); pkt.payload.uint8[1] = i");
        let received = sent(&fill, &modify, "bufs:offloadUdpChecksums()", size, 3);
        assert_eq!(received.len(), 3, "{getter}");
        for frame in received {
            assert_eq!(frame.len(), size, "{getter}");
            evaluate(&frame, getter);
        }
    }
}

/// Checks lengths and checksums of a frame by etherparse.
fn evaluate(frame: &[u8], what: &str) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap_or_else(|error| panic!("{what}: {error}"));
    let transport = packet.transport.as_ref().unwrap_or_else(|| panic!("{what}: {packet:?}"));
    match packet.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum(), "{what}");
            match transport {
                TransportSlice::Udp(udp) => {
                    let right = udp.to_header().calc_checksum_ipv4(&header, udp.payload()).unwrap();
                    assert_eq!(udp.checksum(), right, "{what}");
                }
                TransportSlice::Tcp(tcp) => {
                    let right = tcp.to_header().calc_checksum_ipv4(&header, tcp.payload()).unwrap();
                    assert_eq!(tcp.checksum(), right, "{what}");
                }
                TransportSlice::Icmpv4(icmp) => {
                    assert_eq!(icmp.checksum(), icmp.icmp_type().calc_checksum(icmp.payload()), "{what}");
                }
                other => panic!("{what}: {other:?}"),
            }
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header().to_header();
            match transport {
                TransportSlice::Udp(udp) => {
                    let right = udp.to_header().calc_checksum_ipv6(&header, udp.payload()).unwrap();
                    assert_eq!(udp.checksum(), right, "{what}");
                }
                TransportSlice::Tcp(tcp) => {
                    let right = tcp.to_header().calc_checksum_ipv6(&header, tcp.payload()).unwrap();
                    assert_eq!(tcp.checksum(), right, "{what}");
                }
                TransportSlice::Icmpv6(icmp) => {
                    assert!(icmp.is_checksum_valid(header.source, header.destination), "{what}");
                }
                other => panic!("{what}: {other:?}"),
            }
        }
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn signatures_precede_checksums_and_are_numbered_per_stream() {
    for (size, form) in [(60, SignatureForm::Compact), (200, SignatureForm::Full)] {
        let received = sent(
            &format!("buf:getUdpPacket():fill{{ pktLength = {size} }}"),
            "",
            "bufs:offloadUdpChecksums(); bufs:sign(5); assert(queue:sendN(bufs, 10) == 10); bufs:sign(5); bufs:offloadUdpChecksums()",
            size,
            50,
        );
        assert_eq!(received.len(), 60);
        for (frame, number) in received.iter().zip(0u64..) {
            evaluate(frame, "signed");
            let SignatureReading::Intact(signature) = read_signature(frame, FormSet::ALL) else {
                panic!("frame {number}")
            };
            assert_eq!((signature.form, signature.stream, signature.sequence_low), (form, 5, number));
            assert_ne!(signature.timestamp_low, 0);
        }
    }
}

#[test]
fn a_script_receives_frames_and_returns_them_changed() {
    let bench = Bench::new();
    let mut far = bench.datapath.open("x}1").unwrap();
    for number in 0..300u16 {
        let mut frame = vec![0; 60 + usize::from(number)];
        frame[5] = 1;
        frame[11] = 2;
        frame[20..22].copy_from_slice(&number.to_be_bytes());
        assert!(far.tx().send(&frame).unwrap());
    }
    far.tx().sync().unwrap();
    let report = bench.run(
        r#"
        function master()
          local dev = device.config{ port = "x{1" }
          local rx, tx = dev:getRxQueue(0), dev:getTxQueue(0)
          local bufs, total = memory.bufArray(64), 0
          while total < 300 do
            local count = rx:tryRecv(bufs, 1000000)
            for i = 1, count do
              local eth = bufs[i]:getEthernetPacket().eth
              local source = eth:getSrc()
              eth:setSrc(eth:getDst())
              eth:setDst(source)
            end
            assert(tx:sendN(bufs, count) == count)
            total = total + count
          end
          assert(rx:tryRecv(bufs, 0) == 0)
        end"#,
        &[],
    );
    let back = frames(&mut far);
    assert_eq!(back.len(), 300);
    for (frame, number) in back.iter().zip(0u16..) {
        assert_eq!(frame.len(), 60 + usize::from(number));
        assert_eq!((frame[5], frame[11]), (2, 1));
        assert_eq!(frame[20..22], number.to_be_bytes());
    }
    let queue = &report.devices[0].queues[0];
    let bytes: u64 = (60..360).sum();
    // The test, at the pipe's other end, took none of the sent frames while the script ran.
    assert_eq!((queue.received_frames, queue.received_bytes), (300, bytes));
    assert_eq!((queue.sent_frames, queue.sent_bytes, queue.unsent_frames), (300, bytes, 300));
}

#[test]
fn a_meter_counts_signed_frames() {
    let bench = Bench::new();
    let report = bench.run(
        r#"
        function master()
          local tx = device.config{ port = "x{1" }:getTxQueue(0)
          local rx = device.config{ port = "x}1" }:getRxQueue(0)
          local meter = rx:meter{ 3 }
          local bufs = memory.createMemPool(function(buf) buf:getUdpPacket():fill{} end):bufArray(100)
          local back = memory.bufArray(300)
          bufs:alloc(60)
          bufs:sign(3)
          tx:send(bufs)
          tx:sendN(bufs, 40)
          assert(rx:recv(back) == 140)
          local seen = meter:interval()
          assert(seen.total.frames == 140 and seen.total.duplicates == 40, seen.total.frames)
          bufs:sign(3)
          tx:send(bufs)
          back = memory.bufArray(99)
          assert(rx:recv(back) == 99)
          local stream = meter:report().streams[1]
          print(stream.received, stream.distinct, stream.lost, stream.delay.latency_ns.count)
          meter:print()
        end"#,
        &[],
    );
    assert!(
        bench.printed().starts_with("239\t199\t0\t199\n[x}1#0] 239 frames, 0 foreign"),
        "{}",
        bench.printed()
    );
    let stream = &report.devices[1].queues[0].meter.as_ref().unwrap().streams[0];
    // The last frame stayed in the ring.
    assert_eq!((stream.sent, stream.distinct, stream.lost, stream.duplicates), (Some(200), 199, 1, 40));
}

#[test]
fn a_frame_longer_than_the_buffers_is_counted() {
    let bench = Bench::new();
    let mut far = bench.datapath.open("x}1").unwrap();
    for len in [60, 500, 61] {
        assert!(far.tx().send(&vec![0; len]).unwrap());
    }
    far.tx().sync().unwrap();
    let report = bench.run(
        r#"
        function master()
          local bufs = memory.bufArray(8, 128)
          local rx = device.config{ port = "x{1" }:getRxQueue(0)
          assert(rx:recv(bufs) == 2)
          assert(bufs[1]:getSize() == 60 and bufs[2]:getSize() == 61)
        end"#,
        &[],
    );
    let queue = &report.devices[0].queues[0];
    assert_eq!((queue.received_frames, queue.too_long_frames), (2, 1));
}

#[test]
fn a_load_with_a_rate_is_accounted_for() {
    let bench = Bench::new();
    let mut far = bench.datapath.open("x}1").unwrap();
    let report = bench.run(
        r#"
        function master()
          local queue = device.config{ port = "x{1" }:getTxQueue(0)
          local bufs = memory.createMemPool(function(buf) buf:getUdpPacket():fill{} end):bufArray(100)
          bufs:alloc(60)
          queue:setRateMpps(0.1)
          queue:send(bufs)
          queue:setRate(100, "poisson")
          queue:send(bufs)
          queue:setRate("200kpps", "bursts:10")
          queue:send(bufs)
          queue:setRate("200kpps", "ramp:100kpps:1ms")
          queue:send(bufs)
          queue:setRate(nil)
          queue:send(bufs)
          print(queue:getOffered().sent)
        end"#,
        &[],
    );
    assert_eq!(frames(&mut far).len(), 500);
    let queue = &report.devices[0].queues[0];
    assert_eq!((queue.sent_frames, queue.offered.sent_frames), (500, 400));
    assert_eq!(queue.departure.unwrap().frames, 400);
    assert_eq!(bench.printed(), "400\n");
}

#[test]
fn tasks_get_arguments_and_return_results() {
    let bench = Bench::new();
    bench.run(
        r#"
        function master()
          local a = device.config{ port = "vale0:a", txQueues = 2, rxQueues = 1 }
          local histogram = hist:create()
          histogram:update(100)
          local ctr = stats:newManualTxCounter("mine", "nil")
          ctr:update(3, 192)
          local task = mg.startTask("worker", 1.5, "text", true, nil, { deep = { 7, 8 } }, a, a:getTxQueue(1), histogram, ctr)
          local number, list, same = task:wait()
          assert(not task:isRunning())
          print(number, list[1], list.name, same:totals())
        end
        function worker(number, text, flag, nothing, tree, dev, queue, histogram, ctr)
          assert(number == 1.5 and text == "text" and flag == true and nothing == nil)
          assert(tree.deep[2] == 8 and dev.name == "vale0:a" and queue.qid == 1 and queue.dev.name == "vale0:a")
          assert(tostring(dev) == "[Device: vale0:a]")
          histogram:update(200)
          ctr:updateWithSize(1, 60)
          local frames, bytes = ctr:getThroughput()
          assert(frames == 4 and bytes == 256)
          return 42, { 9, name = "list" }, histogram
        end"#,
        &[],
    );
    assert_eq!(bench.printed(), "42\t9\tlist\t2\t300\t150\n");
}

#[test]
fn two_tasks_use_the_two_sides_of_one_queue_at_once() {
    let bench = Bench::new();
    let report = bench.run(
        r#"
        local COUNT = 20000
        function master()
          local near, far = device.config{ port = "x{1" }, device.config{ port = "x}1" }
          for _, dev in ipairs{ near, far } do
            mg.startTask("send", dev:getTxQueue(0))
            mg.startTask("receive", dev:getRxQueue(0))
          end
          mg.waitForTasks()
        end
        function send(queue)
          local bufs = memory.createMemPool(function(buf) buf:getUdpPacket():fill{} end):bufArray(100)
          for _ = 1, COUNT / 100 do
            bufs:alloc(60)
            assert(queue:send(bufs) == 100)
          end
        end
        function receive(queue)
          local bufs, total = memory.bufArray(50), 0
          while total < COUNT do total = total + queue:recv(bufs) end
        end"#,
        &[],
    );
    for device in &report.devices {
        let queue = &device.queues[0];
        assert_eq!((queue.sent_frames, queue.received_frames), (20_000, 20_000), "{}", device.name);
    }
}

#[test]
fn the_end_of_the_run_ends_loops_sends_and_waits() {
    for source in [
        "function work(queue) tell(queue); while mg.running() do end end",
        "function work(queue) tell(queue); while mg.running() do mg.sleepMillis(3600000) end end",
        "function work(queue) tell(queue); while mg.running() do queue.dev:getRxQueue(0):recv(memory.bufArray()) end end",
        // The ring fills up, because nothing takes the frames.
        "function work(queue) while mg.running() do tell(queue) end end",
        "function work(queue) tell(queue); queue:setRateMpps(0.000001); while mg.running() do tell(queue) end end",
        "function work(queue) tell(queue); while mg.running(1) do queue.dev:getRxQueue(0):tryRecv(memory.bufArray(1), 1) end end",
    ] {
        let bench = Bench::new();
        let mut far = bench.datapath.open("x}1").unwrap();
        let stop = Arc::clone(&bench.options.stop);
        let watcher = std::thread::spawn(move || {
            assert!(far.wait(Interest::Rx, PATIENCE).unwrap(), "nothing was sent");
            stop.store(true, Ordering::Relaxed);
            far
        });
        bench.run(
            &format!(
                r#"
                function master()
                  mg.startTask("work", device.config{{ port = "x{{1" }}:getTxQueue(0))
                  mg.waitForTasks()
                end
                function tell(queue)
                  bufs = bufs or memory.createMemPool():bufArray(2)
                  bufs:alloc(60)
                  queue:send(bufs)
                end
                {source}"#
            ),
            &[],
        );
        watcher.join().unwrap();
    }
}

#[test]
fn a_run_ends_after_its_time_or_when_a_task_stops_it() {
    let looping = "function master() mg.startTask('work') mg.waitForTasks() end";
    let bench = Bench::new();
    bench.run(&format!("{looping} function work() mg.setRuntime(0.01) while mg.running() do end end"), &[]);
    let mut bench = Bench::new();
    bench.options.duration = Some(Duration::from_millis(10));
    bench.run(&format!("{looping} function work() while mg.running() do end end"), &[]);
    let bench = Bench::new();
    bench.run(
        "function master() mg.startTask('work') mg.startTask('stopper') mg.waitForTasks() end
         function work() while mg.running() do end end function stopper() mg.stop() end",
        &[],
    );
}

#[test]
fn errors_name_file_and_line() {
    let in_master = |code: &str| format!("function master(...)\n{code}\nend\nfunction task() end");
    let device =
        "local dev = device.config{ port = \"x{1\" } local bufs = memory.createMemPool():bufArray(2)\n";
    for (source, told) in [
        ("function master(\n".to_owned(), "test.lua:2:"),
        ("x = = 1".to_owned(), "test.lua:1:"),
        ("local x = 1".to_owned(), "there is no function master()"),
        (in_master("error('on purpose')"), "test.lua:2: on purpose"),
        (in_master("local x = nil + 1"), "test.lua:2: attempt to perform arithmetic on a nil value"),
        (
            in_master("mg.startTask('nobody')"),
            "test.lua:2: startTask: the script has no global function \"nobody\"",
        ),
        (in_master("mg.startTask(task)"), "give the name of a global function as a string, not a function"),
        (in_master("mg.startTask('task', 1, print)"), "argument 2 of \"task\" is a function"),
        (in_master("mg.startTask('task', { a = { print } })"), "argument 1 of \"task\".a[1] is a function"),
        (in_master("local t = {} t.t = t mg.startTask('task', t)"), "a table that contains itself"),
        (
            in_master("mg.startTask('task', memory.bufArray())"),
            "buffer arrays stay in the task that made them",
        ),
        (in_master("device.config{ port = 0 }"), "port is 0: give the name of a port"),
        (in_master("device.config{ port = 'nonsense:' }"), "test.lua:2: device.config: nonsense:"),
        (in_master("device.config{ port = 'vale0:a', queues = 2 }"), "there is no queues here"),
        (
            in_master("device.config{ port = 'vale0:a', txQueues = 0 }"),
            "txQueues is 0: give a whole number from 1 to 64",
        ),
        (
            in_master("device.config{ port = 'vale0:a' }:getTxQueue(1)"),
            "vale0:a has no tx queue 1: it has 1, numbered from 0",
        ),
        (in_master(&format!("{device}dev:getRxQueue(0):send(bufs)")), "use dev:getTxQueue(0)"),
        (in_master(&format!("{device}dev:getTxQueue(0):recv(bufs)")), "use dev:getRxQueue(0)"),
        (in_master(&format!("{device}dev:getTxQueue(0):send({{}})")), "give an array of buffers"),
        (
            in_master(&format!("{device}dev:getTxQueue(0):send(bufs)")),
            "test.lua:3: x{1#0: the frame in buffer 1 has 0 bytes",
        ),
        (
            in_master(&format!(
                "{device}bufs[2].pkt_len = 5000 bufs[1].pkt_len = 60 dev:getTxQueue(0):send(bufs)"
            )),
            "buffer 2 has 5000 bytes",
        ),
        (
            in_master(&format!("{device}bufs:alloc(3000)")),
            "test.lua:3: size is 3000: give a whole number from 14 to 2048",
        ),
        (
            in_master(&format!("{device}bufs:alloc(60) bufs[1]:setSize(2049)")),
            "2049 bytes do not fit a buffer of 2048",
        ),
        (
            in_master(&format!("{device}bufs:alloc(14) bufs:sign(1) dev:getTxQueue(0):send(bufs)")),
            "has 0 bytes behind its headers",
        ),
        (
            in_master(&format!("{device}bufs:sign(70000)")),
            "stream is 70000: give a whole number from 0 to 65535",
        ),
        (in_master(&format!("{device}dev:getTxQueue(0):setRate(-1)")), "setRate: the rate is -1"),
        (in_master(&format!("{device}dev:getTxQueue(0):setRate('1Xpps')")), "unknown unit"),
        (in_master(&format!("{device}dev:getTxQueue(0):setRate('1Mpps', 'wild')")), "\"wild\""),
        (in_master(&format!("{device}dev:getTxQueue(0):setRate(nil, 'poisson')")), "give a rate"),
        (
            in_master(
                "memory.createMemPool(function(buf) buf:getUdpPacket():fill{ ip4Scr = 1 } end):bufArray(1)",
            ),
            "there is no ip4Scr in this packet",
        ),
        (
            in_master(
                "memory.createMemPool(function(buf) buf:getUdpPacket():fill{ udpSrc = 70000 } end):bufArray(1)",
            ),
            "udpSrc is 70000: give a whole number from 0 to 65535",
        ),
        (
            in_master(
                "memory.createMemPool(function(buf) buf:getUdpPacket():fill{ pktLength = 41 } end):bufArray(1)",
            ),
            "pktLength is 41: give 42",
        ),
        (in_master("memory.bufArray(0)"), "number of buffers is 0"),
        (in_master("for _ = 1, 100 do memory.bufArray(65536) end"), "Make buffer arrays once"),
        (in_master("parseMacAddress('02:00')"), "\"02:00\" is not an Ethernet address"),
        (in_master("parseIPAddress('1.2.3.256')"), "\"1.2.3.256\" is not an IPv4 address"),
        (in_master("parseIPAddress('1::2::3')"), "is not an IPv6 address"),
        (in_master("createStack('eth', 'ipx')"), "there is no header \"ipx\""),
        (in_master("createStack('eth', 'vlan', 'vlan')"), "\"vlan\" is given twice"),
        (in_master("stats:newManualTxCounter('x', 'xml')"), "there is no format \"xml\""),
        (in_master("mg.setRuntime(0)"), "setRuntime: 0: give seconds above 0"),
        (in_master("os.exit(1)"), "os.exit would leave ports open"),
        (in_master("require 'nothing'"), "module 'nothing' not found"),
        (
            "function configure(parser) parser:command('x') end function master() end".to_owned(),
            "there is no command here",
        ),
    ] {
        let bench = Bench::new();
        let error = bench.try_run(&source, &[]).unwrap_err();
        assert!(matches!(error, ScriptError::Failed { .. }), "{source}: {error:?}");
        assert!(error.to_string().contains(told), "{source}: {error}");
    }
}

#[test]
fn a_task_error_has_a_traceback_and_ends_the_others() {
    let bench = Bench::new();
    let error = bench.try_run(
        "function master()
           mg.startTask('patient')
           mg.startTask('faulty', 3)
           mg.waitForTasks()
         end
         function patient() while mg.running() do mg.sleepMillis(1000) end end
         local function inner(n) error('bad number ' .. n) end
         function faulty(n) inner(n) end",
        &[],
    );
    let Err(ScriptError::Failed { task, message, traceback }) = error else { panic!("{error:?}") };
    assert_eq!((task.as_str(), message.as_str()), ("faulty", "test.lua:7: bad number 3"));
    assert_eq!(traceback, "\ttest.lua:7: in upvalue 'inner'\n\ttest.lua:8: in function 'faulty'");
}

#[test]
fn two_queues_may_not_sign_one_stream() {
    let bench = Bench::new();
    let error = bench.try_run(
        "function master()
           local dev = device.config{ port = 'vale0:a', txQueues = 2 }
           local bufs = memory.createMemPool():bufArray(1)
           for queue = 0, 1 do bufs:alloc(60); bufs:sign(9); dev:getTxQueue(queue):send(bufs) end
         end",
        &[],
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("test.lua:4: sign: stream 9 is numbered by vale0:a#0 already"), "{error}");
}

const CONFIGURED: &str = r#"
    function configure(parser)
      parser:description("Sends.")
      parser:argument("dev", "Ports."):args("+")
      parser:option("-r --rate", "Rate."):default("10"):convert(tonumber)
      parser:option("--mode", "How."):choices{ "a", "b" }
      parser:flag("-v --verbose", "More.")
    end
    function master(args) print(table.concat(args.dev, "|"), args.rate, args.mode, args.verbose) end"#;

#[test]
fn arguments_are_parsed_as_the_script_declares_them() {
    for (arguments, printed) in [
        (vec!["vale0:a"], "vale0:a\t10\tnil\tnil\n"),
        (vec!["a", "b", "-r", "2.5", "--mode=b", "-v"], "a|b\t2.5\tb\ttrue\n"),
        (vec!["-r7", "--verbose", "--", "-x"], "-x\t7\tnil\ttrue\n"),
    ] {
        let bench = Bench::new();
        bench.run(CONFIGURED, &arguments);
        assert_eq!(bench.printed(), printed);
    }
    let bench = Bench::new();
    bench.run("function master(...) print(select('#', ...), ...) end", &["1", "--x"]);
    assert_eq!(bench.printed(), "2\t1\t--x\n");
}

#[test]
fn wrong_arguments_print_the_usage_and_help_prints_the_help() {
    for (arguments, told) in [
        (vec![], "argument <dev> is missing"),
        (vec!["a", "--rate"], "option --rate needs a value"),
        (vec!["a", "--rate", "fast"], "--rate: \"fast\" is not a number"),
        (vec!["a", "--speed", "1"], "there is no option --speed"),
        (vec!["a", "--mode", "c"], "--mode: \"c\" is not one of a, b"),
        (vec!["a", "--verbose=1"], "--verbose takes no value"),
    ] {
        let error = Bench::new().try_run(CONFIGURED, &arguments).unwrap_err();
        let ScriptError::Usage(text) = &error else { panic!("{arguments:?}: {error:?}") };
        assert!(text.contains(told), "{arguments:?}: {text}");
        assert!(text.contains("Usage: ringroad script test.lua [-r <rate>]"), "{text}");
    }
    let bench = Bench::new();
    assert_eq!(bench.try_run(CONFIGURED, &["--help"]).unwrap(), None);
    assert!(bench.printed().contains("Rate. [default: 10]"), "{}", bench.printed());
}

#[test]
fn counters_and_histograms_print_their_counts() {
    let mut bench = Bench::new();
    bench.options.stats_format = StatsFormat::Json;
    bench.run(
        r#"
        function master()
          local dev = device.config{ port = "x{1" }
          local ctr = stats:newDevTxCounter(dev)
          local bufs = memory.createMemPool():bufArray(10)
          bufs:alloc(60)
          dev:getTxQueue(0):send(bufs)
          ctr:update()
          ctr:finalize()
          stats:newDevRxCounter("in", dev, "plain"):finalize()
          local h = hist:create()
          for i = 1, 5000 do h:update(i) end
          h:update(-1)
          h:update(nil)
          local count, sum, mean = h:totals()
          print(count, h:min(), h:max(), h:percentile(50), h:median() == h:percentile(50))
          h:print("latency")
        end"#,
        &[],
    );
    let printed = bench.printed();
    let lines: Vec<&str> = printed.lines().collect();
    let total: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!((&total["counter"], &total["direction"]), (&"x{1".into(), &"tx".into()));
    assert_eq!((&total["final"], &total["frames"], &total["bytes"]), (&true.into(), &10.into(), &640.into()));
    assert!(lines[1].starts_with("[in] RX: 0 frames, 0 bytes"), "{}", lines[1]);
    // The histogram has three significant digits, so 4999 and 5000 are one value.
    assert!(lines[2].starts_with("5000\t1\t500"), "{}", lines[2]);
    assert!(lines[3].starts_with("[latency] 5000 values, mean 2500"), "{}", lines[3]);
    assert_eq!(lines[4], "[latency] 1 values below 0, or none, are not in it");
}

#[test]
fn print_formats_values_as_lua_does() {
    let bench = Bench::new();
    bench.run(
        "function master() print(1ULL, nil, 1.5, parseIP6Address('::1')) io.write('a', 1, '\\n') end",
        &[],
    );
    assert_eq!(bench.printed(), "1ULL\tnil\t1.5\t0:0:0:0:0:0:0:1\na1\n");
}

#[test]
fn a_closed_output_ends_the_run() {
    /// An output that takes nothing.
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut bench = Bench::new();
    bench.options.output = Arc::new(Mutex::new(Closed));
    let error = bench.try_run(
        "function master() mg.startTask('wait') print('x') end
         function wait() while mg.running() do mg.sleepMillis(3600000) end end",
        &[],
    );
    assert!(
        matches!(&error, Err(ScriptError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe),
        "{error:?}"
    );
}

#[test]
fn addresses_keep_their_values() {
    Bench::new().run(
        r#"
        function master()
          local buf = memory.bufArray(1)[1]
          local four, six, arp = buf:getUdpPacket(), buf:getUdp6Packet(), buf:getArpPacket()
          four.eth.src:setString("fe:dc:ba:98:76:54")
          assert(four.eth:getSrcString() == "fe:dc:ba:98:76:54" and four.eth:getSrc() == 0xfedcba987654)
          four.eth:setDst(four.eth:getSrc() + 1)
          assert(four.eth.dst:getString() == "fe:dc:ba:98:76:55" and four.eth.dst ~= four.eth.src)
          four.ip4:setSrc(0xffffffff)
          assert(four.ip4:getSrc() == 4294967295 and four.ip4.src:getString() == "255.255.255.255")
          four.ip4.dst:setString("10.0.0.255")
          four.ip4.dst:add(1)
          assert(four.ip4:getDstString() == "10.0.1.0" and four.ip4.dst + 1 == parseIPAddress("10.0.1.1"))
          six.ip6.src:setString("2001:db8::ffff:ffff:ffff:fffe")
          six.ip6.src:add(1)
          assert(six.ip6.src:getString() == "2001:db8:0:0:ffff:ffff:ffff:ffff")
          six.ip6:setFlowLabel(0xabcde)
          six.ip6:setTrafficClass(0x12)
          assert(six.ip6:getFlowLabel() == 0xabcde and six.ip6:getTrafficClass() == 0x12)
          arp:fill{ arpOperation = 2, arpProtoSrc = "192.0.2.1" }
          assert(arp.arp:getOperation() == 2 and arp.arp:getProtoSrcString() == "192.0.2.1" and arp.eth:getType() == 0x0806)
          local tcp = buf:getTcpPacket()
          tcp:fill{ tcpSyn = true, tcpAck = 1, tcpSeqNumber = 4000000000 }
          assert(tcp.tcp:getFlags() == 0x12 and tcp.tcp:getSyn() and not tcp.tcp:getFin())
          tcp.tcp:unsetSyn()
          assert(tcp.tcp:getFlags() == 0x10 and tcp.tcp:getSeqNumber() == 4000000000)
          local inner = createStack("eth", "ip4", "udp", "vxlan", { "eth", name = "inner" }, { "ip4", name = "innerIp" })
          local pkt = inner(buf)
          pkt:fill{ pktLength = 200, vxlanVNI = 0x123456, innerDst = "02:00:00:00:00:77" }
          assert(pkt.udp:getDstPort() == 4789 and pkt.vxlan:getVNI() == 0x123456 and pkt.innerIp:getLength() == 136)
          assert(pkt.inner:getDstString() == "02:00:00:00:00:77")
        end"#,
        &[],
    );
}

#[test]
fn a_script_with_a_modules_name_is_not_that_module() {
    let folder = std::env::temp_dir().join(format!("ringroad-script-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("numbers.lua"), "return { seven = 7 }").unwrap();
    let file = folder.join("arp.lua");
    let run = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let bench = Bench::new();
        run_script(ScriptSource::read(&file).unwrap(), &[], bench.options.clone())
            .map(|_| bench.printed())
            .map_err(|error| error.to_string())
    };
    let missing = run("local arp = require 'arp'\nfunction master() end").unwrap_err();
    let found = run("function master() print(require 'numbers'.seven) end");
    let broken = {
        std::fs::write(folder.join("numbers.lua"), "return )").unwrap();
        run("local numbers = require 'numbers'").unwrap_err()
    };
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(
        missing.contains("module 'arp' not found") && missing.contains("the script itself, '"),
        "{missing}"
    );
    assert_eq!(found.as_deref(), Ok("7\n"));
    assert!(broken.contains("error loading module 'numbers' from file"), "{broken}");
}
