--- Distributions of times, ns: 3 significant digits, up to 1000 s. Values are gathered here and handed over in batches.
local ffi = require "ffi"
local native = require "ringroad.native"

local histogram = {}
histogram.__index = histogram
histogram.__class = "histogram"
histogram.__pack = function(self)
  self:flush()
  return { handle = self.handle }
end

local function around(handle)
  local address, capacity = handle:pending()
  return setmetatable({
    handle = handle, values = ffi.cast("double *", address), capacity = capacity, count = 0,
  }, histogram)
end
histogram.unpack = function(plain) return around(plain.handle) end

function histogram:create() return around(native.histogram()) end
histogram.new = histogram.create
setmetatable(histogram, { __call = histogram.create })

--- Adds a value; nil is a missing value.
function histogram:update(value)
  if value == nil then return end
  self.values[self.count] = value
  self.count = self.count + 1
  if self.count == self.capacity then self:flush() end
end

function histogram:flush()
  self.handle:record(self.count)
  self.count = 0
end

local function figure(name)
  return function(self, ...)
    self:flush()
    return self.handle[name](self.handle, ...)
  end
end

--- Number of values, their sum, their mean.
histogram.totals = figure("totals")
histogram.average = figure("average")
histogram.avg = histogram.average
histogram.standardDeviation = figure("standardDeviation")
histogram.min = figure("min")
histogram.max = figure("max")
--- The value that `percent` (0 to 100) of the values do not exceed.
histogram.percentile = figure("percentile")
--- Adds the values of another.
function histogram:merge(other)
  self:flush()
  other:flush()
  self.handle:merge(other.handle)
end
function histogram:median() return self:percentile(50) end
function histogram:quartiles() return self:percentile(25), self:percentile(50), self:percentile(75) end

function histogram:print(prefix)
  local count, _, mean = self:totals()
  local start = prefix and ("[" .. prefix .. "] ") or ""
  if count == 0 then return print(start .. "no values") end
  print(("%s%.0f values, mean %.1f ns, standard deviation %.1f ns, min %.0f, p25 %.0f, p50 %.0f, p75 %.0f, p99 %.0f, "
    .. "p99.9 %.0f, max %.0f ns"):format(start, count, mean, self:standardDeviation(), self:min(), self:percentile(25),
    self:percentile(50), self:percentile(75), self:percentile(99), self:percentile(99.9), self:max()))
  local outside = self.handle:outside()
  if outside > 0 then print(("%s%.0f values below 0, or none, are not in it"):format(start, outside)) end
end

--- Writes "value,count" lines.
function histogram:save(path)
  self:flush()
  local file, problem = io.open(path, "w")
  if not file then error(("histogram: %s cannot be written: %s"):format(tostring(path), problem), 2) end
  file:write(self.handle:lines())
  file:close()
end

return histogram
