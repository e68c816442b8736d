--- Byte order, addresses and small helpers: globals, as scripts for MoonGen expect them.
local ffi = require "ffi"
local bit = require "bit"
local bswap, rshift, band = bit.bswap, bit.rshift, bit.band

ffi.cdef [[
typedef union __attribute__((packed)) {
  uint8_t uint8[6];
  struct __attribute__((packed)) { uint16_t high; uint32_t low; };
} ringroad_mac;
typedef union __attribute__((packed)) { uint8_t uint8[4]; uint32_t uint32; } ringroad_ip4;
typedef union __attribute__((packed)) { uint8_t uint8[16]; uint32_t uint32[4]; uint64_t uint64[2]; } ringroad_ip6;
]]

--- A 16-bit number in the other byte order.
function hton16(number) return rshift(bswap(number), 16) end
ntoh16, bswap16 = hton16, hton16

--- A 32-bit number in the other byte order, 0 to 2^32 - 1.
function hton(number)
  local swapped = bswap(number)
  return swapped < 0 and swapped + 4294967296 or swapped
end
ntoh = hton
_G.bswap = hton

--- The number after `number`, and 0 after `count - 1`.
function incAndWrap(number, count)
  number = number + 1
  return number >= count and 0 or number
end

function printf(format, ...) print(format:format(...)) end
function errorf(format, ...) error(format:format(...), 2) end

function tonumberall(...)
  local numbers = { ... }
  for i = 1, select("#", ...) do numbers[i] = tonumber(numbers[i]) end
  return unpack(numbers, 1, select("#", ...))
end

local function bad(kind, text, example)
  error(("%q is not an %s: write it like %s"):format(tostring(text), kind, example), 3)
end

--- An Ethernet address in text as a number of 48 bits.
function parseMacAddress(text)
  local number, groups = 0, 0
  if type(text) == "string" then
    for group in (text .. ":"):gmatch("(.-)[:-]") do
      if not group:match("^%x%x$") then bad("Ethernet address", text, "02:00:00:00:00:01") end
      number, groups = number * 256 + tonumber(group, 16), groups + 1
    end
  end
  if groups ~= 6 then bad("Ethernet address", text, "02:00:00:00:00:01") end
  return number
end

--- An IPv4 address in text as a number of 32 bits.
function parseIP4Address(text)
  local groups = { tostring(text):match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$") }
  local number = 0
  for _, group in ipairs(groups) do
    local byte = tonumber(group)
    if byte > 255 or #group > 3 then bad("IPv4 address", text, "198.18.0.1") end
    number = number * 256 + byte
  end
  if #groups ~= 4 then bad("IPv4 address", text, "198.18.0.1") end
  return number
end

local function ip6_groups(text)
  local groups = {}
  if text == "" then return groups end
  for group in (text .. ":"):gmatch("(.-):") do
    if group:match("^%x%x?%x?%x?$") then
      groups[#groups + 1] = tonumber(group, 16)
    else
      return nil
    end
  end
  return groups
end

--- An IPv6 address in text as an address of its own (without a trailing IPv4 part).
function parseIP6Address(text)
  local head, tail = tostring(text):match("^(.-)::(.*)$")
  local front = ip6_groups(head or tostring(text))
  local back = ip6_groups(tail or "")
  local given = front and back and #front + #back
  if not given or (head and given > 7) or (not head and given ~= 8) then
    bad("IPv6 address", text, "2001:db8::1")
  end
  local address = ffi.new("ringroad_ip6")
  for i, group in ipairs(front) do
    address.uint8[2 * i - 2], address.uint8[2 * i - 1] = rshift(group, 8), band(group, 255)
  end
  for i, group in ipairs(back) do
    local at = 16 - 2 * (#back - i + 1)
    address.uint8[at], address.uint8[at + 1] = rshift(group, 8), band(group, 255)
  end
  return address
end

--- An address in text: IPv4 as a number, IPv6 as an address of its own; and whether it is IPv4.
function parseIPAddress(text)
  if tostring(text):find(":", 1, true) then return parseIP6Address(text), false end
  return parseIP4Address(text), true
end
parseIp4Address, parseIp6Address = parseIP4Address, parseIP6Address

local mac = {}
mac.__index = mac

--- Takes a number of 48 bits, or another address.
function mac:set(address)
  if type(address) == "cdata" then
    self.high, self.low = address.high, address.low
    return
  end
  local high = math.floor(address / 4294967296)
  self.high, self.low = hton16(high), bswap(address - high * 4294967296)
end
function mac:get() return hton16(self.high) * 4294967296 + hton(self.low) end
function mac:setString(text) self:set(parseMacAddress(text)) end
function mac:getString()
  local b = self.uint8
  return ("%02x:%02x:%02x:%02x:%02x:%02x"):format(b[0], b[1], b[2], b[3], b[4], b[5])
end
mac.__tostring = mac.getString
function mac.__eq(a, b)
  return ffi.istype("ringroad_mac", a) and ffi.istype("ringroad_mac", b) and a.low == b.low and a.high == b.high
end
ffi.metatype("ringroad_mac", mac)

local ip4 = {}
ip4.__index = ip4

--- Takes a number of 32 bits, or another address.
function ip4:set(address)
  if type(address) == "cdata" then self.uint32 = address.uint32 else self.uint32 = bswap(address) end
end
function ip4:get() return hton(self.uint32) end
function ip4:add(number) self:set(self:get() + number) end
function ip4:setString(text) self:set(parseIP4Address(text)) end
function ip4:getString()
  local b = self.uint8
  return ("%d.%d.%d.%d"):format(b[0], b[1], b[2], b[3])
end
ip4.__tostring = ip4.getString
function ip4.__add(a, b)
  if ffi.istype("ringroad_ip4", a) then return a:get() + b end
  return a + b:get()
end
function ip4.__sub(a, number) return a:get() - number end
function ip4.__eq(a, b)
  return ffi.istype("ringroad_ip4", a) and ffi.istype("ringroad_ip4", b) and a.uint32 == b.uint32
end
ffi.metatype("ringroad_ip4", ip4)

local ip6 = {}
ip6.__index = ip6

--- Takes another address.
function ip6:set(address)
  self.uint64[0], self.uint64[1] = address.uint64[0], address.uint64[1]
end
function ip6:get()
  local address = ffi.new("ringroad_ip6")
  address:set(self)
  return address
end
--- Adds to the low 64 bits.
function ip6:add(number) self.uint64[1] = bswap(bswap(self.uint64[1]) + number) end
function ip6:setString(text) self:set(parseIP6Address(text)) end
function ip6:getString()
  local groups = {}
  for i = 0, 7 do groups[i + 1] = ("%x"):format(self.uint8[2 * i] * 256 + self.uint8[2 * i + 1]) end
  return table.concat(groups, ":")
end
ip6.__tostring = ip6.getString
function ip6.__eq(a, b)
  return ffi.istype("ringroad_ip6", a) and ffi.istype("ringroad_ip6", b)
    and a.uint64[0] == b.uint64[0] and a.uint64[1] == b.uint64[1]
end
ffi.metatype("ringroad_ip6", ip6)
