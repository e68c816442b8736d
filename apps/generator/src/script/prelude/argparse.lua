--- The parser with which a script's configure(parser) describes its arguments.
local native = require "ringroad.native"

-- Thrown to leave: not an error of the script but of its user, or a request for help.
local function leave(kind, text) error({ ringroad_leave = kind, text = text }, 0) end

local element = {}
element.__index = element

function element:args(count)
  local least, most
  if type(count) == "number" then
    least, most = count, count
  elseif count == "?" then
    least, most = 0, 1
  elseif count == "*" then
    least, most = 0, math.huge
  elseif count == "+" then
    least, most = 1, math.huge
  else
    local low, high = tostring(count):match("^(%d+)%-?(%d*)$")
    if not low then error(("args: %q: give a number, \"?\", \"*\", \"+\" or \"1-3\""):format(tostring(count)), 2) end
    least, most = tonumber(low), high ~= "" and tonumber(high) or tonumber(low)
  end
  self.least, self.most = least, most
  return self
end
function element:default(value) self.default_value = value; return self end
function element:convert(by) self.converter = by; return self end
function element:choices(list) self.allowed = list; return self end
function element:target(name) self.dest = name; return self end
function element:description(text) self.help = text; return self end
function element:argname(text) self.shown = text; return self end
--- "*" allows an option several times; its value is then a list.
function element:count(count) self.repeated = count == "*" or count == "+"; return self end

local parser = {}
parser.__index = function(_, key)
  local method = rawget(parser, key)
  if method == nil and type(key) == "string" then
    error(("parser: there is no %s here; there are argument, option, flag, description, epilog, name, parse"):format(key), 2)
  end
  return method
end

local function make(kind, name, description, default, converter, count)
  local extra = {}
  if type(name) == "table" then
    extra = name
    name, description = extra.name or extra[1], extra.description or extra[2]
    default, converter, count = extra.default, extra.convert, extra.args
  end
  if type(name) ~= "string" or name == "" then error(kind .. ": give a name", 3) end
  local made = setmetatable({ kind = kind, names = {}, help = description or "", least = 1, most = 1 }, element)
  for each in name:gmatch("%S+") do made.names[#made.names + 1] = each end
  made.dest = extra.target or made.names[1]
  for _, each in ipairs(made.names) do
    if each:sub(1, 2) == "--" then made.dest = extra.target or each; break end
  end
  made.dest = made.dest:gsub("^%-+", ""):gsub("%-", "_")
  made.shown = made.dest
  made.default_value, made.converter, made.allowed = default, converter, extra.choices
  if kind == "flag" then made.least, made.most = 0, 0 end
  if count then made:args(count) end
  return made
end

local function new(script)
  return setmetatable({
    rawname = script, positional = {}, options = {}, by_name = {}, text = false, after = false,
  }, parser)
end

function parser:description(text) self.text = text; return self end
function parser:epilog(text) self.after = text; return self end
function parser:name(text) self.rawname = text; return self end

function parser:argument(...)
  local made = make("argument", ...)
  table.insert(self.positional, made)
  return made
end
local function named(self, made)
  for _, name in ipairs(made.names) do
    if name:sub(1, 1) ~= "-" then error(("%s: %q: options begin with -"):format(made.kind, name), 3) end
    self.by_name[name] = made
  end
  table.insert(self.options, made)
  return made
end
function parser:option(...) return named(self, make("option", ...)) end
function parser:flag(...) return named(self, make("flag", ...)) end

local function usage_of(self)
  local parts = { "Usage: ringroad script " .. self.rawname }
  for _, option in ipairs(self.options) do
    parts[#parts + 1] = option.kind == "flag" and ("[%s]"):format(option.names[1])
      or ("[%s <%s>]"):format(option.names[1], option.shown)
  end
  for _, argument in ipairs(self.positional) do
    local shown = "<" .. argument.shown .. ">" .. (argument.most > 1 and " ..." or "")
    local needed = argument.least > 0 and argument.default_value == nil
    parts[#parts + 1] = needed and shown or "[" .. shown .. "]"
  end
  return table.concat(parts, " ")
end

local function help_of(self)
  local lines = { usage_of(self) }
  local function section(title, list)
    if #list == 0 then return end
    lines[#lines + 1] = "\n" .. title
    for _, each in ipairs(list) do
      local name = table.concat(each.names, ", ")
      if each.kind == "option" then name = name .. " <" .. each.shown .. ">" end
      local default = each.default_value ~= nil and (" [default: %s]"):format(tostring(each.default_value)) or ""
      lines[#lines + 1] = ("  %-24s %s%s"):format(name, each.help, default)
    end
  end
  if self.text then lines[#lines + 1] = "\n" .. self.text end
  section("Arguments:", self.positional)
  section("Options:", self.options)
  if self.after then lines[#lines + 1] = "\n" .. self.after end
  return table.concat(lines, "\n")
end
function parser:get_usage() return usage_of(self) end
function parser:get_help() return help_of(self) end
function parser:error(message) leave("usage", message .. "\n" .. usage_of(self)) end

local function converted(self, made, text)
  local label = made.kind == "argument" and "<" .. made.shown .. ">" or made.names[#made.names]
  if made.allowed then
    local found = false
    for _, choice in ipairs(made.allowed) do found = found or choice == text end
    if not found then
      self:error(("%s: %q is not one of %s"):format(label, text, table.concat(made.allowed, ", ")))
    end
  end
  if made.converter == nil then return text end
  if type(made.converter) == "table" then
    local value = made.converter[text]
    if value == nil then self:error(("%s: %q is not understood"):format(label, text)) end
    return value
  end
  local well, value, problem = pcall(made.converter, text)
  if not well then self:error(("%s: %q: %s"):format(label, text, tostring(value):gsub("^[^:]*:%d+: ", ""))) end
  if value == nil then
    local what = made.converter == tonumber and "is not a number" or problem and tostring(problem) or "is not understood"
    self:error(("%s: %q %s"):format(label, text, what))
  end
  return value
end

local function store(self, result, made, texts)
  local value
  if made.kind == "flag" then
    value = true
  elseif made.most > 1 then
    value = {}
    for i, text in ipairs(texts) do value[i] = converted(self, made, text) end
  elseif texts[1] ~= nil then
    value = converted(self, made, texts[1])
  end
  if made.repeated then
    result[made.dest] = result[made.dest] or {}
    table.insert(result[made.dest], value)
  else
    result[made.dest] = value
  end
end

local function put_default(self, result, made)
  if result[made.dest] ~= nil or made.default_value == nil then return end
  local value = made.default_value
  if type(value) == "string" then value = converted(self, made, value) end
  if made.most > 1 and type(value) ~= "table" then value = { value } end
  result[made.dest] = value
end

-- Distributes the words to the arguments: each its minimum, the rest to the first that takes more.
local function share_out(self, result, words)
  local needed = 0
  for _, made in ipairs(self.positional) do needed = needed + (made.default_value == nil and made.least or 0) end
  local spare, at = #words - needed, 1
  for _, made in ipairs(self.positional) do
    local least = made.default_value == nil and made.least or 0
    local take = math.min(made.most, least + math.max(0, spare))
    local texts = {}
    for _ = 1, take do
      if words[at] == nil then break end
      texts[#texts + 1] = words[at]
      at = at + 1
    end
    if #texts < least then self:error(("argument <%s> is missing"):format(made.shown)) end
    spare = spare - math.max(0, #texts - least)
    if #texts > 0 then store(self, result, made, texts) end
  end
  if words[at] ~= nil then self:error(("%q is one argument too many"):format(words[at])) end
end

--- The arguments as a table by name; wrong ones end the script with the usage.
function parser:parse(argv)
  argv = argv or native.arguments
  local result, words, i, only_words = {}, {}, 1, false
  while i <= #argv do
    local word = argv[i]
    i = i + 1
    if only_words or word:sub(1, 1) ~= "-" or word == "-" or (tonumber(word) and not self.by_name[word]) then
      words[#words + 1] = word
    elseif word == "--" then
      only_words = true
    elseif (word == "-h" or word == "--help") and not self.by_name[word] then
      leave("help", help_of(self))
    else
      local name, attached = word, nil
      if word:sub(1, 2) == "--" then
        local before, after = word:match("^(%-%-[^=]+)=(.*)$")
        if before then name, attached = before, after end
      elseif #word > 2 and not self.by_name[word] then
        name, attached = word:sub(1, 2), word:sub(3)
      end
      local made = self.by_name[name]
      if not made then self:error(("there is no option %s"):format(name)) end
      local texts = { attached }
      if attached and made.kind == "flag" then self:error(("%s takes no value"):format(name)) end
      while #texts < made.most and argv[i] ~= nil and not self.by_name[argv[i]] do
        texts[#texts + 1] = argv[i]
        i = i + 1
      end
      if #texts < made.least then self:error(("option %s needs a value"):format(name)) end
      store(self, result, made, texts)
    end
  end
  share_out(self, result, words)
  for _, list in ipairs({ self.positional, self.options }) do
    for _, made in ipairs(list) do put_default(self, result, made) end
  end
  return result
end

return setmetatable({ new = new }, { __call = function() return new(native.script_name) end })
