--- Sends every frame back to where it came from, with the Ethernet addresses exchanged.
--
--   ringroad script reflector.lua vale0:b
local mg = require "moongen"
local memory = require "memory"
local device = require "device"
local stats = require "stats"

function configure(parser)
  parser:description("Reflects frames.")
  parser:argument("ports", "Ports to reflect at."):args("+")
  parser:option("-f --frames", "End after so many frames at each port."):convert(tonumber)
end

function master(args)
  for _, port in ipairs(args.ports) do
    local dev = device.config{ port = port }
    mg.startTask("reflect", dev:getRxQueue(0), dev:getTxQueue(0), args.frames)
  end
  mg.waitForTasks()
end

function reflect(rx, tx, frames)
  local bufs = memory.bufArray(256)
  local counter = stats:newDevRxCounter(rx)
  local left = frames or math.huge
  while mg.running() and left > 0 do
    local count = rx:recv(bufs)
    for i = 1, count do
      local eth = bufs[i]:getEthernetPacket().eth
      local destination = eth:getDst()
      eth:setDst(eth:getSrc())
      eth:setSrc(destination)
    end
    tx:sendN(bufs, count)
    left = left - count
    counter:update()
  end
  counter:finalize()
end
