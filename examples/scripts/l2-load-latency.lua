--- Layer 2 load from one port to another, with loss and latency measured at the second.
--
--   ringroad script l2-load-latency.lua vale0:a vale0:b --rate 1Mpps --frames 1000000
local mg = require "moongen"
local memory = require "memory"
local device = require "device"
local stats = require "stats"

-- Of the signatures: a number of one's own for each queue that sends.
local STREAM = 1

function configure(parser)
  parser:description("Sends signed frames and measures what arrives.")
  parser:argument("txPort", "Port to send from.")
  parser:argument("rxPort", "Port to receive at.")
  parser:option("-r --rate", "Offered rate, like 1Mpps or 10%@10G."):default("100kpps")
  parser:option("-s --size", "Size of the frames with FCS, bytes."):default(64):convert(tonumber)
  parser:option("-f --frames", "End after so many frames."):convert(tonumber)
end

function master(args)
  local tx = device.config{ port = args.txPort }
  local rx = device.config{ port = args.rxPort }
  device.waitForLinks()
  local receiver = mg.startTask("receive", rx:getRxQueue(0), args.frames)
  mg.startTask("load", tx:getTxQueue(0), rx:getMac(), args)
  receiver:wait()
  mg.stop()
  mg.waitForTasks()
end

function load(queue, destination, args)
  local bytes = args.size - 4
  local mem = memory.createMemPool(function(buf)
    buf:getUdpPacket():fill{ ethSrc = queue, ethDst = destination, pktLength = bytes }
  end)
  local bufs = mem:bufArray()
  local counter = stats:newDevTxCounter(queue)
  local left = args.frames or math.huge
  queue:setRate(args.rate)
  while mg.running() and left > 0 do
    bufs:allocN(bytes, math.min(left, bufs.maxSize))
    bufs:offloadUdpChecksums()
    bufs:sign(STREAM)
    left = left - queue:send(bufs)
    counter:update()
  end
  counter:finalize()
end

-- Ends when all frames have come, or half a second after the run was told to.
function receive(queue, frames)
  local meter = queue:meter{ STREAM }
  local bufs = memory.bufArray(256)
  local counter = stats:newDevRxCounter(queue)
  local count = 0
  while mg.running(500) and count < (frames or math.huge) do
    count = count + queue:tryRecv(bufs, 10000)
    counter:update()
  end
  counter:finalize()
  meter:print()
end
