--- Counters that print a rate every second, and totals at the end. A frame counts with its FCS.
local native = require "ringroad.native"

local stats = {}

--- Overhead of each frame on an Ethernet line: preamble, delimiter and gap, bytes.
local L1_OVERHEAD, FCS = 20, 4
local INTERVAL_NS = 1e9

function stats.sum(data)
  local sum = 0
  for _, value in ipairs(data) do sum = sum + value end
  return sum
end
function stats.average(data) return stats.sum(data) / #data end
function stats.percentile(data, p)
  local sorted = {}
  for i, value in ipairs(data) do sorted[i] = value end
  table.sort(sorted)
  return sorted[math.max(1, math.ceil(#sorted * p / 100))]
end
function stats.median(data) return stats.percentile(data, 50) end
function stats.stdDev(data)
  local mean, sum = stats.average(data), 0
  for _, value in ipairs(data) do sum = sum + (value - mean) ^ 2 end
  return math.sqrt(sum / (#data - 1))
end

local function quoted(text)
  return '"' .. tostring(text):gsub('[%c"\\]', function(c) return ("\\u%04x"):format(c:byte()) end) .. '"'
end

local FORMATS = {
  plain = function(ctr, final, rate)
    if final then
      return ("[%s] %s: %.0f frames, %.0f bytes in %.3f s: %.4f Mpps, %.1f Mbit/s, %.1f Mbit/s with framing")
        :format(ctr.name, ctr.direction, ctr.frames, ctr.bytes, rate.seconds, rate.mpps, rate.mbit, rate.wireMbit)
    end
    return ("[%s] %s: %.4f Mpps, %.1f Mbit/s, %.1f Mbit/s with framing")
      :format(ctr.name, ctr.direction, rate.mpps, rate.mbit, rate.wireMbit)
  end,
  csv = function(ctr, _, rate)
    return ("%.3f,%s,%s,%.6f,%.3f,%.3f,%.0f,%.0f")
      :format(native.now_ns() / 1e9, ctr.name, ctr.direction, rate.mpps, rate.mbit, rate.wireMbit, ctr.frames, ctr.bytes)
  end,
  json = function(ctr, final, rate)
    return ('{"counter":%s,"direction":%s,"final":%s,"seconds":%.6f,"frames":%.0f,"bytes":%.0f,"mpps":%.6f,'
      .. '"mbit":%.3f,"wire_mbit":%.3f}'):format(quoted(ctr.name), quoted(ctr.direction:lower()), tostring(final),
      rate.seconds, ctr.frames, ctr.bytes, rate.mpps, rate.mbit, rate.wireMbit)
  end,
  ["nil"] = function() end,
}
FORMATS.CSV = FORMATS.csv

local CSV_HEADER = "Time,Device,Direction,PacketRate,Mbit,MbitWithFraming,TotalPackets,TotalBytes"

local counter = {}
counter.__index = counter
counter.__class = "stats.counter"
counter.__pack = function(self)
  local plain = {}
  for key, value in pairs(self) do plain[key] = value end
  return plain
end
stats.unpack = function(plain) return setmetatable(plain, counter) end

local function write(self, text)
  if not text then return end
  if not self.file then return native.write_line(text) end
  local file, problem = io.open(self.file, "a")
  if not file then error(("stats: %s cannot be written: %s"):format(self.file, problem), 3) end
  file:write(text, "\n")
  file:close()
end

local function new(direction, read, name, source, format, file)
  format = format or native.stats_format
  if not FORMATS[format] then
    error(("stats: there is no format %q; there are plain, csv, json, nil"):format(tostring(format)), 3)
  end
  if file ~= nil and type(file) ~= "string" then error("stats: file is not a name: give the path of a file", 3) end
  local now = native.now_ns()
  local self = setmetatable({
    direction = direction, read = read, name = tostring(name), source = source, format = format, file = file,
    frames = 0, bytes = 0, start_ns = now, last_ns = now, last_frames = 0, last_bytes = 0,
    first_frames = 0, first_bytes = 0, mpps = {}, mbit = {}, wireMbit = {},
  }, counter)
  if file then assert(io.open(file, "w")):close() end
  if FORMATS[format] == FORMATS.csv then write(self, CSV_HEADER) end
  if read then
    self.first_frames, self.first_bytes = source[read](source)
    self:look()
    self.last_frames, self.last_bytes = self.frames, self.bytes
  end
  return self
end

--- Reads the device, if there is one.
function counter:look()
  if not self.read then return end
  local frames, bytes = self.source[self.read](self.source)
  self.frames, self.bytes = frames - self.first_frames, bytes - self.first_bytes
end

local function rate_of(frames, bytes, ns)
  local seconds = ns / 1e9
  local per = seconds > 0 and 1e-6 / seconds or 0
  return {
    seconds = seconds, mpps = frames * per, mbit = bytes * 8 * per,
    wireMbit = (bytes + frames * L1_OVERHEAD) * 8 * per,
  }
end

--- The rate since the last interval, if a second has passed; a manual counter gets its counts by update(frames, bytes).
function counter:update(frames, bytes)
  if frames then self.frames = self.frames + frames end
  if bytes then self.bytes = self.bytes + bytes end
  local now = native.now_ns()
  if now - self.last_ns < INTERVAL_NS then return end
  self:look()
  local rate = rate_of(self.frames - self.last_frames, self.bytes - self.last_bytes, now - self.last_ns)
  self.last_ns, self.last_frames, self.last_bytes = now, self.frames, self.bytes
  for _, name in ipairs({ "mpps", "mbit", "wireMbit" }) do table.insert(self[name], rate[name]) end
  write(self, FORMATS[self.format](self, false, rate))
end
--- The same for `frames` frames of `size` bytes, without FCS.
function counter:updateWithSize(frames, size) self:update(frames, frames * (size + FCS)) end
--- Counts one buffer.
function counter:countPacket(buf) self.frames, self.bytes = self.frames + 1, self.bytes + buf.pkt_len + FCS end

--- Totals, and the mean rate since the counter was made.
function counter:finalize(sleep)
  if sleep then native.sleep(sleep * 1e6) end
  self:look()
  write(self, FORMATS[self.format](self, true, rate_of(self.frames, self.bytes, native.now_ns() - self.start_ns)))
end

--- Rates of the intervals so far, with avg, stdDev and median; frames; bytes.
function counter:getStats()
  self:look()
  for _, name in ipairs({ "mpps", "mbit", "wireMbit" }) do
    local data = self[name]
    data.avg, data.stdDev, data.median, data.sum =
      stats.average(data), stats.stdDev(data), stats.median(data), stats.sum(data)
  end
  return self.mpps, self.mbit, self.wireMbit, self.frames, self.bytes
end
--- Frames and bytes so far.
function counter:getThroughput()
  self:look()
  return self.frames, self.bytes
end

for direction, read in pairs({ TX = "getTxStats", RX = "getRxStats" }) do
  local label = direction == "TX" and "Tx" or "Rx"
  --- A counter of a device, or of the device of a queue: (device, format, file) or (name, device, format, file).
  stats["newDev" .. label .. "Counter"] = function(_, name, source, format, file)
    if type(name) == "userdata" then name, source, format, file = nil, name, source, format end
    if type(source) ~= "userdata" then error("stats: give a device or a queue to count", 2) end
    return new(direction, read, name or source.name, source.dev or source, format, file)
  end
  --- A counter that the script updates: update(frames, bytes with FCS) or updateWithSize(frames, size).
  stats["newManual" .. label .. "Counter"] = function(_, name, format, file)
    return new(direction, nil, name, nil, format, file)
  end
  stats["newPkt" .. label .. "Counter"] = stats["newManual" .. label .. "Counter"]
end

return stats
