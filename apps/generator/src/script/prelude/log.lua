--- Messages, on standard error: log:info("%d frames", n), or log.info(...).
local native = require "ringroad.native"

local log = {}

local function level(name, mark)
  log[name] = function(first, ...)
    local format, arguments = first, { ... }
    if first == log then format = table.remove(arguments, 1) end
    native.log(mark, #arguments > 0 and tostring(format):format(unpack(arguments)) or tostring(format))
  end
end
level("debug", "debug")
level("info", "info")
level("warn", "warn")
level("error", "error")

--- A message that ends the task, and so the run.
function log.fatal(first, ...)
  local format, arguments = first, { ... }
  if first == log then format = table.remove(arguments, 1) end
  error(#arguments > 0 and tostring(format):format(unpack(arguments)) or tostring(format), 2)
end
function log.setLevel() end

return log
