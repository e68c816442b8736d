--- A load in phases: up, hold, bursts. Each phase is told, with the load that was really offered.
--
--   ringroad script ramp-phases.lua vale0:a --peak 500kpps --seconds 5
local mg = require "moongen"
local memory = require "memory"
local device = require "device"
local timer = require "timer"
local log = require "log"

local BYTES = 60

function configure(parser)
  parser:description("Ramps a load up, holds it, and sends it in bursts.")
  parser:argument("port", "Port to send from.")
  parser:option("-p --peak", "Rate at the top, frames/s with unit."):default("100kpps")
  parser:option("-b --base", "Rate at the start."):default("1kpps")
  parser:option("-s --seconds", "Length of each phase."):default(10):convert(tonumber)
  parser:option("--burst", "Frames of a burst."):default(64):convert(tonumber)
end

function master(args)
  local dev = device.config{ port = args.port }
  device.waitForLinks()
  mg.startTask("phases", dev:getTxQueue(0), args)
  mg.waitForTasks()
end

function phases(queue, args)
  local mem = memory.createMemPool(function(buf)
    buf:getUdpPacket():fill{ ethSrc = queue, pktLength = BYTES }
  end)
  -- Few frames at a time, so that a phase ends near its time even at a low rate.
  local bufs = mem:bufArray(16)
  for _, phase in ipairs{
    { name = "up", shape = ("ramp:%s:%gs"):format(args.base, args.seconds) },
    { name = "hold", shape = "constant" },
    { name = "bursts", shape = ("bursts:%d"):format(args.burst) },
  } do
    local before = queue:getOffered()
    queue:setRate(args.peak, phase.shape)
    local time = timer:new(args.seconds)
    while mg.running() and time:running() do
      bufs:alloc(BYTES)
      bufs:offloadIPChecksums()
      queue:send(bufs)
    end
    local after = queue:getOffered()
    log:info("%s: %d frames sent, %d skipped", phase.name, after.sent - before.sent, after.skipped - before.skipped)
  end
end
