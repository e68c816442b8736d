--- The headers: one structure each, with a setter and a getter for every field.
--
-- A header is described by its C members and a list of fields: the name in setName, getName and, behind the header's
-- own name, in fill{}; the member; its kind; and the default that fill{} puts there. The accessors are made
-- as source, so that the compiler sees a constant member in each.
local ffi = require "ffi"
local bit = require "bit"

local headers = {}

-- Code that reads and writes a member of each kind. %s is the member.
local KINDS = {
  u8 = { get = "return self.%s", set = "self.%s = band(value, 255)", most = 255 },
  u16 = { get = "return hton16(self.%s)", set = "self.%s = hton16(value)", most = 65535 },
  u32 = { get = "return hton(self.%s)", set = "self.%s = bswap(value)", most = 4294967295 },
  mac = { get = "return self.%s:get()", set = "self.%s:set(value)", address = true, parse = "parseMacAddress" },
  ip4 = { get = "return self.%s:get()", set = "self.%s:set(value)", address = true, parse = "parseIP4Address" },
  ip6 = { get = "return self.%s:get()", set = "self.%s:set(value)", address = true, parse = "parseIP6Address" },
}

-- A field of `width` bits, `shift` above the lowest of a member of `kind`.
local function bits(kind, shift, width)
  local mask = 2 ^ width - 1
  local read = KINDS[kind].get:gsub("^return ", "")
  return {
    get = ("return band(rshift(%s, %d), %d)"):format(read, shift, mask),
    set = ("local rest = band(%s, bnot(lshift(%d, %d)))\n  value = bor(rest, lshift(band(value, %d), %d))\n  %s")
      :format(read, mask, shift, mask, shift, KINDS[kind].set),
    most = mask,
  }
end

local ENVIRONMENT = {
  band = bit.band, bor = bit.bor, bnot = bit.bnot, lshift = bit.lshift, rshift = bit.rshift, bswap = bit.bswap,
  hton16 = hton16, hton = hton,
  parseMacAddress = parseMacAddress, parseIP4Address = parseIP4Address, parseIP6Address = parseIP6Address,
}

local function compile(parameters, body, name)
  local source = "local band, bor, bnot, lshift, rshift, bswap, hton16, hton = band, bor, bnot, lshift, rshift, bswap, "
    .. "hton16, hton\nreturn function(" .. parameters .. ")\n  " .. body .. "\nend"
  local chunk = assert(loadstring(source, "=" .. name))
  return setfenv(chunk, ENVIRONMENT)()
end

-- name, C members, fields {name, member, kind, default}, further methods.
local function define(name, members, fields, methods)
  ffi.cdef(("typedef struct __attribute__((packed)) { %s } ringroad_header_%s;"):format(members, name))
  local header = { name = name, bytes = ffi.sizeof("ringroad_header_" .. name), fields = fields, methods = methods or {} }
  for _, field in ipairs(fields) do
    local label, member = field[1], field[2]
    local kind = type(field[3]) == "table" and field[3] or KINDS[field[3]]
    field.name, field.most, field.default, field.address = label, kind.most, field[4], kind.address
    local full = name .. ":set" .. label
    header.methods["set" .. label] = compile("self, value", (kind.set:gsub("%%s", member)), full)
    header.methods["get" .. label] = compile("self", (kind.get:gsub("%%s", member)), name .. ":get" .. label)
    if kind.address then
      header.methods["set" .. label .. "String"] =
        compile("self, text", ("self.%s:set(%s(text))"):format(member, kind.parse), full .. "String")
      header.methods["get" .. label .. "String"] =
        compile("self", ("return self.%s:getString()"):format(member), name .. ":get" .. label .. "String")
      field.parse = _G[kind.parse]
    end
  end
  headers[name] = header
  return header.methods
end

local function finish(name) ffi.metatype("ringroad_header_" .. name, { __index = headers[name].methods }) end

define("eth", "ringroad_mac dst; ringroad_mac src; uint16_t type;", {
  { "Dst", "dst", "mac", 0x020000000002 },
  { "Src", "src", "mac", 0x020000000001 },
  { "Type", "type", "u16" },
})

define("vlan", "uint16_t tci; uint16_t type;", {
  { "ID", "tci", bits("u16", 0, 12), 1 },
  { "DEI", "tci", bits("u16", 12, 1), 0 },
  { "Priority", "tci", bits("u16", 13, 3), 0 },
  { "Type", "type", "u16" },
})

define("arp", [[uint16_t hrd; uint16_t pro; uint8_t hln; uint8_t pln; uint16_t op;
  ringroad_mac sha; ringroad_ip4 spa; ringroad_mac tha; ringroad_ip4 tpa;]], {
  { "HardwareAddressType", "hrd", "u16", 1 },
  { "ProtoAddressType", "pro", "u16", 0x0800 },
  { "HardwareAddressLength", "hln", "u8", 6 },
  { "ProtoAddressLength", "pln", "u8", 4 },
  { "Operation", "op", "u16", 1 },
  { "HardwareSrc", "sha", "mac", 0x020000000001 },
  { "ProtoSrc", "spa", "ip4", 0xc6120001 },
  { "HardwareDst", "tha", "mac", 0 },
  { "ProtoDst", "tpa", "ip4", 0xc6130001 },
})

define("ip4", [[uint8_t verihl; uint8_t tos; uint16_t len; uint16_t id; uint16_t frag; uint8_t ttl; uint8_t protocol;
  uint16_t cs; ringroad_ip4 src; ringroad_ip4 dst;]], {
  { "Version", "verihl", bits("u8", 4, 4), 4 },
  { "HeaderLength", "verihl", bits("u8", 0, 4), 5 },
  { "TOS", "tos", "u8", 0 },
  { "Length", "len", "u16" },
  { "ID", "id", "u16", 0 },
  { "Flags", "frag", bits("u16", 13, 3), 0 },
  { "Fragment", "frag", bits("u16", 0, 13), 0 },
  { "TTL", "ttl", "u8", 64 },
  { "Protocol", "protocol", "u8" },
  { "Checksum", "cs", "u16", 0 },
  { "Src", "src", "ip4", 0xc6120001 },
  { "Dst", "dst", "ip4", 0xc6130001 },
})

define("ip6", "uint32_t vtf; uint16_t len; uint8_t nextHeader; uint8_t ttl; ringroad_ip6 src; ringroad_ip6 dst;", {
  { "Version", "vtf", bits("u32", 28, 4), 6 },
  { "TrafficClass", "vtf", bits("u32", 20, 8), 0 },
  { "FlowLabel", "vtf", bits("u32", 0, 20), 0 },
  { "Length", "len", "u16" },
  { "NextHeader", "nextHeader", "u8" },
  { "TTL", "ttl", "u8", 64 },
  { "Src", "src", "ip6", parseIP6Address("2001:2::1") },
  { "Dst", "dst", "ip6", parseIP6Address("2001:2:0:1::1") },
})

define("udp", "uint16_t src; uint16_t dst; uint16_t len; uint16_t cs;", {
  { "Src", "src", "u16", 49152 },
  { "Dst", "dst", "u16", 9 },
  { "Length", "len", "u16" },
  { "Checksum", "cs", "u16", 0 },
})

define("tcp", [[uint16_t src; uint16_t dst; uint32_t seq; uint32_t ack; uint8_t offset; uint8_t flags; uint16_t window;
  uint16_t cs; uint16_t urg;]], {
  { "Src", "src", "u16", 49152 },
  { "Dst", "dst", "u16", 9 },
  { "SeqNumber", "seq", "u32", 0 },
  { "AckNumber", "ack", "u32", 0 },
  { "DataOffset", "offset", bits("u8", 4, 4), 5 },
  { "Flags", "flags", "u8", 0 },
  { "Window", "window", "u16", 29200 },
  { "Checksum", "cs", "u16", 0 },
  { "UrgentPointer", "urg", "u16", 0 },
})
-- The flags one by one (RFC 9293, section 3.1): fill{tcpSyn = 1}, tcp:setSyn(), tcp:unsetSyn(), tcp:getSyn().
for shift, flag in ipairs({ "Syn", "Rst", "Psh", "Ack", "Urg" }) do headers.tcp.fields[#headers.tcp.fields + 1] = { flag, shift } end
headers.tcp.fields[#headers.tcp.fields + 1] = { "Fin", 0 }
for _, field in ipairs(headers.tcp.fields) do
  local label, shift = field[1], field[2]
  if type(shift) == "number" then
    local mask, methods = 2 ^ shift, headers.tcp.methods
    field.name, field.most, field.flag = label, 1, true
    methods["set" .. label] = compile("self", ("self.flags = bor(self.flags, %d)"):format(mask), "tcp:set" .. label)
    methods["unset" .. label] =
      compile("self", ("self.flags = band(self.flags, %d)"):format(255 - mask), "tcp:unset" .. label)
    methods["get" .. label] = compile("self", ("return band(self.flags, %d) ~= 0"):format(mask), "tcp:get" .. label)
  end
end

for _, name in ipairs({ "udp", "tcp" }) do
  local methods = headers[name].methods
  methods.setSrcPort, methods.getSrcPort = methods.setSrc, methods.getSrc
  methods.setDstPort, methods.getDstPort = methods.setDst, methods.getDst
end

-- Measurements send echo messages (RFC 792); identifier and sequence are the message's first four bytes.
define("icmp", "uint8_t type; uint8_t code; uint16_t cs; uint16_t id; uint16_t seq;", {
  { "Type", "type", "u8", 8 },
  { "Code", "code", "u8", 0 },
  { "Checksum", "cs", "u16", 0 },
  { "ID", "id", "u16", 1 },
  { "Sequence", "seq", "u16", 0 },
})

-- RFC 7348, section 5: the identifier is the upper 24 bits of the second word.
define("vxlan", "uint32_t flags; uint32_t vni;", {
  { "Flags", "flags", "u32", 0x08000000 },
  { "VNI", "vni", bits("u32", 8, 24), 1 },
})

for name in pairs(headers) do finish(name) end
return headers
