--- Spans of time.
local native = require "ringroad.native"

local timer = {}
timer.__index = timer

--- A timer of this many seconds, which runs from now.
function timer:new(seconds)
  local made = setmetatable({ seconds = seconds or 0 }, timer)
  made:reset()
  return made
end
function timer:reset(seconds)
  self.seconds = seconds or self.seconds
  self.end_ns = native.now_ns() + self.seconds * 1e9
end
function timer:running() return native.now_ns() < self.end_ns end
function timer:expired() return not self:running() end
function timer:timeLeft() return math.max(0, (self.end_ns - native.now_ns()) / 1e9) end
--- Sleeps until the time is up, or the run ends.
function timer:wait() native.sleep(math.max(0, self.end_ns - native.now_ns())) end
timer.busyWait = timer.wait

return timer
