--- Ports as devices.
local native = require "ringroad.native"

local device = {}

local function queues(name, value)
  if value == nil then return 1 end
  if type(value) ~= "number" or value < 1 or value > 64 or value % 1 ~= 0 then
    error(("device.config: %s is %s: give a whole number from 1 to 64"):format(name, tostring(value)), 3)
  end
  return value
end

local KNOWN = { port = true, txQueues = true, rxQueues = true }

--- Opens a port: device.config{ port = "vale0:a", txQueues = 2, rxQueues = 1 }, or device.config("vale0:a", rx, tx).
function device.config(args, rx, tx)
  if type(args) ~= "table" then args = { port = args, rxQueues = rx, txQueues = tx } end
  if type(args.port) ~= "string" then
    error(("device.config: port is %s: give the name of a port, like \"vale0:a\" or \"eth0\"")
      :format(tostring(args.port)), 2)
  end
  for key in pairs(args) do
    if not KNOWN[key] then
      error(("device.config: there is no %s here; there are port, rxQueues, txQueues"):format(tostring(key)), 2)
    end
  end
  return native.open_device(args.port, queues("txQueues", args.txQueues), queues("rxQueues", args.rxQueues))
end

--- Reports that all ports are open. They need no negotiation, so it does not wait.
function device.waitForLinks() native.ready() end

return device
