--- Frames as structures: a stack of headers over the bytes of a buffer, and what fills them.
local ffi = require "ffi"
local headers = require "ringroad.headers"

ffi.cdef [[
typedef union __attribute__((packed)) {
  uint8_t uint8[0]; uint16_t uint16[0]; uint32_t uint32[0]; uint64_t uint64[0];
} ringroad_payload;
typedef struct {
  uint32_t pkt_len;
  const uint32_t capacity;
  uint64_t arrival_ns;
  uint8_t unused[48];
  uint8_t data[0];
} ringroad_buf;
]]

local ETHER_TYPES = { ip4 = 0x0800, ip6 = 0x86dd, arp = 0x0806, vlan = 0x8100 }
local PROTOCOLS = { udp = 17, tcp = 6, icmp = 1 }
local SHORTEST = 60

local function member_of(entry)
  if type(entry) == "table" then return entry[1], entry.name or entry[1] end
  return entry, entry
end

-- A field's value if neither the script nor the header's own default sets it: it follows from the stack.
local function follows(stack, index, field, offset, length)
  local header, next = stack[index], stack[index + 1]
  local following = next and next.header.name
  local name = header.header.name
  if field == "Type" and (name == "eth" or name == "vlan") then
    -- Of two tags the outer one is the service provider's (IEEE 802.1Q, clause 9.5).
    if name == "eth" and following == "vlan" and stack[index + 2] and stack[index + 2].header.name == "vlan" then
      return 0x88a8
    end
    return ETHER_TYPES[following] or 0x88b5
  elseif field == "Protocol" or field == "NextHeader" then
    if following == "icmp" and name == "ip6" then return 58 end
    return PROTOCOLS[following] or (following and 0 or 253)
  elseif field == "Length" then
    return length - offset - (name == "ip6" and header.header.bytes or 0)
  end
end

local function check(key, field, value)
  if field.address then
    if type(value) == "string" then return field.parse(value) end
    if type(value) == "userdata" then return parseMacAddress(value:getMacString()) end
    return value
  end
  if field.flag and type(value) == "boolean" then value = value and 1 or 0 end
  if type(value) ~= "number" or value < 0 or value > field.most or value % 1 ~= 0 then
    error(("fill: %s is %s: give a whole number from 0 to %d"):format(key, tostring(value), field.most), 4)
  end
  return value
end

local function fill_header(stack, index, structure, args, known, offset, length)
  local entry = stack[index]
  for _, field in ipairs(entry.header.fields) do
    local key = entry.prefix .. field.name
    local value = args[key]
    known[key] = true
    if value ~= nil then value = check(key, field, value) else value = field.default end
    if value == nil and not field.flag then value = follows(stack, index, field.name, offset, length) end
    -- A tunnel is known by its port (RFC 7348, section 5).
    if args[key] == nil and key == entry.prefix .. "Dst" and stack[index + 1]
      and stack[index + 1].header.name == "vxlan" then
      value = 4789
    end
    if field.flag then
      if value == 1 then structure["set" .. field.name](structure) end
    elseif value ~= nil then
      structure["set" .. field.name](structure, value)
    end
  end
end

local function fill(stack, packet, args)
  args = args or {}
  local length = args.pktLength or SHORTEST
  if type(length) ~= "number" or length < stack.bytes or length > 65535 then
    error(("fill: pktLength is %s: give %d (the headers) to 65535 bytes, without FCS")
      :format(tostring(length), stack.bytes), 3)
  end
  local known, offset = { pktLength = true }, 0
  for index, entry in ipairs(stack) do
    fill_header(stack, index, packet[entry.member], args, known, offset, length)
    offset = offset + entry.header.bytes
  end
  for key in pairs(args) do
    if not known[key] then
      local names = {}
      for name in pairs(known) do names[#names + 1] = name end
      table.sort(names)
      error(("fill: there is no %s in this packet; there are %s"):format(tostring(key), table.concat(names, ", ")), 3)
    end
  end
end

-- Source of a function that sets the length fields of a packet of `length` bytes, for use on each frame.
local function length_setter(stack)
  local lines, offset = {}, 0
  for _, entry in ipairs(stack) do
    local name = entry.header.name
    if name == "ip4" or name == "udp" then
      lines[#lines + 1] = ("self.%s.len = hton16(length - %d)"):format(entry.member, offset)
    elseif name == "ip6" then
      lines[#lines + 1] = ("self.%s.len = hton16(length - %d)"):format(entry.member, offset + 40)
    end
    offset = offset + entry.header.bytes
  end
  return assert(loadstring("local hton16 = hton16\nreturn function(self, length)\n" .. table.concat(lines, "\n")
    .. "\nend", "=setLength"))()
end

local made = {}

--- A function that shows a buffer as the stack of headers: createStack("eth", "ip4", "udp"). A header that is there
--- twice is named: {"eth", name = "inner"}.
function createStack(...)
  local stack, lines, members = { bytes = 0 }, {}, {}
  for _, entry in ipairs({ ... }) do
    if entry ~= "noPayload" then
      local name, member = member_of(entry)
      name = name == "ethernet" and "eth" or name
      member = member == "ethernet" and "eth" or member
      local header = headers[name]
      if not header then
        local names = {}
        for known in pairs(headers) do names[#names + 1] = known end
        table.sort(names)
        error(("createStack: there is no header %q; there are %s"):format(tostring(name), table.concat(names, ", ")), 2)
      end
      if not tostring(member):match("^[%a_][%w_]*$") or members[member] then
        error(("createStack: %q is given twice, or without a name: give each header a name, like {%q, name = \"inner\"}")
          :format(tostring(member), name), 2)
      end
      members[member] = true
      stack[#stack + 1] = { header = header, member = member, prefix = member }
      stack.bytes = stack.bytes + header.bytes
      lines[#lines + 1] = ("ringroad_header_%s %s;"):format(name, member)
    end
  end
  local key = table.concat(lines, " ")
  if not made[key] then
    local ctype = "struct ringroad_packet_" .. (#made + 1)
    made[#made + 1] = ctype
    ffi.cdef(("%s { %s ringroad_payload payload; } __attribute__((packed));"):format(ctype, key))
    local methods = {
      fill = function(packet, args) fill(stack, packet, args) end,
      setLength = length_setter(stack),
    }
    ffi.metatype(ctype, { __index = methods })
    made[key] = ffi.typeof(ctype .. " *")
  end
  local pointer, cast = made[key], ffi.cast
  return function(buf) return cast(pointer, buf.data) end
end
packetCreate = createStack

local buf = {}
buf.__index = buf

buf.getEthernetPacket = createStack("eth")
buf.getEthPacket = buf.getEthernetPacket
buf.getArpPacket = createStack("eth", "arp")
for label, tags in pairs({ [""] = {}, Vlan = { "vlan" }, QinQ = { { "vlan", name = "outer" }, "vlan" } }) do
  local function stacked(...)
    local list = { "eth" }
    for _, tag in ipairs(tags) do list[#list + 1] = tag end
    for _, header in ipairs({ ... }) do list[#list + 1] = header end
    return createStack(unpack(list))
  end
  if label ~= "" then buf["get" .. label .. "EthernetPacket"] = stacked() end
  for _, inner in ipairs({ { "IP" }, { "Udp", "udp" }, { "Tcp", "tcp" }, { "Icmp", "icmp" } }) do
    local four, six = stacked("ip4", inner[2]), stacked("ip6", inner[2])
    buf["get" .. label .. inner[1] .. "4Packet"] = four
    buf["get" .. label .. inner[1] .. "6Packet"] = six
    --- IPv4 by default: getUdpPacket(false) is IPv6.
    buf["get" .. label .. inner[1] .. "Packet"] = function(self, ipv4)
      if ipv4 == nil or ipv4 then return four(self) end
      return six(self)
    end
  end
end
buf.getVxlanPacket = createStack("eth", "ip4", "udp", "vxlan")
buf.getVxlanEthernetPacket = createStack("eth", "ip4", "udp", "vxlan", { "eth", name = "innerEth" })

function buf:getData() return ffi.cast("void *", self.data) end
function buf:getBytes() return ffi.cast("uint8_t *", self.data) end
function buf:getSize() return self.pkt_len end
--- Sets the frame's length, without FCS.
function buf:setSize(bytes)
  if bytes > self.capacity then
    error(("setSize: %d bytes do not fit a buffer of %d; create the pool with a larger bufSize")
      :format(bytes, self.capacity), 2)
  end
  self.pkt_len = bytes
end
--- Arrival time of the frame's batch, ns of CLOCK_MONOTONIC.
function buf:getArrival() return tonumber(self.arrival_ns) end
function buf:free() end
function buf:dump(bytes)
  local line = {}
  for i = 0, math.min(bytes or self.pkt_len, self.pkt_len) - 1 do
    line[#line + 1] = ("%02x"):format(self.data[i])
    if i % 16 == 15 then
      print(table.concat(line, " "))
      line = {}
    end
  end
  if #line > 0 then print(table.concat(line, " ")) end
end
ffi.metatype("ringroad_buf", buf)

return { createStack = createStack }
