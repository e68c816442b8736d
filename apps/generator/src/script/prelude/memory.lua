--- Pools and arrays of buffers. The memory is the task's own and lives as long as the task.
local ffi = require "ffi"
local native = require "ringroad.native"
require "ringroad.packet"

local memory = {}
local DEFAULT_BUFFERS, DEFAULT_BYTES = 128, 2048

local array = {}
local pointer, cast = ffi.typeof("ringroad_buf *"), ffi.cast

function array:__index(key)
  if type(key) == "number" then
    if key >= 1 and key <= self.size then return cast(pointer, self.base + (key - 1) * self.stride) end
    return nil
  end
  return array[key]
end
function array:__len() return self.size end

local function following(self, index)
  if index >= self.size then return nil end
  return index + 1, cast(pointer, self.base + index * self.stride)
end
function array:__ipairs() return following, self, 0 end
array.__pack = function() error("buffer arrays stay in the task that made them; give the task its pool's parameters", 0) end
array.__class = "memory.bufArray"

local function whole(name, value, least, most, level)
  if type(value) ~= "number" or value < least or value > most or value % 1 ~= 0 then
    error(("%s is %s: give a whole number from %d to %d"):format(name, tostring(value), least, most), level + 1)
  end
  return value
end

local function new_array(count, bytes, init)
  local handle, address, stride = native.buffers(count, bytes)
  local bufs = setmetatable({
    size = count, maxSize = count, base = cast("uint8_t *", address), stride = stride, bytes = bytes, handle = handle,
  }, array)
  if init then
    for i = 1, count do init(bufs[i]) end
  end
  return bufs
end

--- Gives every buffer the length `bytes`, without FCS, and the array all its buffers. Contents stay.
function array:alloc(bytes)
  self.size = self.maxSize
  self:setSizes(bytes)
end
--- The same for the first `count` buffers.
function array:allocN(bytes, count)
  self:resize(count)
  self:setSizes(bytes)
end
function array:setSizes(bytes)
  whole("size", bytes, 14, self.bytes, 2)
  local base, stride = self.base, self.stride
  for i = 0, self.size - 1 do cast(pointer, base + i * stride).pkt_len = bytes end
end
function array:resize(count) self.size = whole("size of the array", count, 0, self.maxSize, 2) end
function array:freeAll() end
function array:free() end
function array:freeAfter() end

--- Checksums that the next send computes, after it has signed.
function array:offloadIPChecksums() self.handle:offload("ip") end
function array:offloadUdpChecksums() self.handle:offload("udp") end
function array:offloadTcpChecksums() self.handle:offload("tcp") end
function array:offloadIcmpChecksums() self.handle:offload("icmp") end

--- The next send writes the signature of `stream` into the last bytes of each frame, with number and time.
function array:sign(stream) self.handle:sign(whole("stream", stream, 0, 65535, 2)) end

local pool = {}
pool.__index = pool

--- An array of `count` buffers, filled by the pool's function.
function pool:bufArray(count)
  return new_array(whole("number of buffers", count or DEFAULT_BUFFERS, 1, 65536, 2), self.bytes, self.init)
end

--- A pool: createMemPool(function(buf) ... end), or a table with func and bufSize. The function fills every buffer once.
function memory.createMemPool(...)
  local args = { ... }
  if type(args[1]) == "table" then args = args[1] end
  local init, bytes = args.func, args.bufSize or DEFAULT_BYTES
  for _, arg in ipairs(args) do
    if type(arg) == "function" then init = arg end
  end
  if init ~= nil and type(init) ~= "function" then error("func is not a function: give one that fills a buffer", 2) end
  return setmetatable({ init = init, bytes = whole("bufSize", bytes, 64, 65536, 2) }, pool)
end

--- An array of its own, to receive into.
function memory.bufArray(count, bytes)
  count = whole("number of buffers", count or DEFAULT_BUFFERS, 1, 65536, 2)
  return new_array(count, whole("buffer size", bytes or DEFAULT_BYTES, 64, 65536, 2))
end
memory.createBufArray = memory.bufArray
function memory.freeMemPools() end

return memory
