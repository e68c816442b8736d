--- A million UDP flows and more: addresses and ports that change from frame to frame.
--
--   ringroad script udp-flows.lua vale0:a --flows 1000000 --frames 10000000
local mg = require "moongen"
local memory = require "memory"
local device = require "device"
local stats = require "stats"

local SOURCE, PORTS, FIRST_PORT = "10.0.0.1", 1000, 1024

function configure(parser)
  parser:description("Sends UDP frames of many flows.")
  parser:argument("port", "Port to send from.")
  parser:option("-n --flows", "Flows: a source address for each thousand, a source port for each of these.")
    :default(1000000):convert(tonumber)
  parser:option("-f --frames", "End after so many frames."):convert(tonumber)
  parser:option("-s --size", "Size of the frames with FCS, bytes."):default(64):convert(tonumber)
  parser:option("-r --rate", "Offered rate, like 1Mpps."):default("max")
end

function master(args)
  local dev = device.config{ port = args.port }
  device.waitForLinks()
  mg.startTask("load", dev:getTxQueue(0), args)
  mg.waitForTasks()
end

function load(queue, args)
  local bytes, flows = args.size - 4, args.flows
  local mem = memory.createMemPool(function(buf)
    buf:getUdpPacket():fill{ ethSrc = queue, ip4Src = SOURCE, pktLength = bytes }
  end)
  local bufs = mem:bufArray(256)
  local base = parseIPAddress(SOURCE)
  local counter = stats:newDevTxCounter(queue)
  local left, flow = args.frames or math.huge, 0
  queue:setRate(args.rate)
  while mg.running() and left > 0 do
    bufs:allocN(bytes, math.min(left, bufs.maxSize))
    for _, buf in ipairs(bufs) do
      local pkt = buf:getUdpPacket()
      local port = flow % PORTS
      pkt.ip4.src:set(base + (flow - port) / PORTS)
      pkt.udp:setSrcPort(FIRST_PORT + port)
      flow = incAndWrap(flow, flows)
    end
    bufs:offloadUdpChecksums()
    left = left - queue:send(bufs)
    counter:update()
  end
  counter:finalize()
end
