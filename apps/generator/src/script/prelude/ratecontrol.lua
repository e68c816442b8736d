--- MoonGen's software rate control, over the pacing that every queue has here.
local limiter = {}
limiter.__index = limiter

--- A limiter of `queue`: mode "cbr" or "poisson", `delay` ns between frames.
function limiter:new(queue, mode, delay)
  local shapes = { cbr = "constant", poisson = "poisson" }
  if not shapes[mode] then error(("rate control: there is no mode %q; there are cbr, poisson"):format(tostring(mode)), 2) end
  queue:setRateMpps(1e3 / delay, shapes[mode])
  return setmetatable({ queue = queue }, limiter)
end
function limiter:send(bufs) return self.queue:send(bufs) end
function limiter:sendN(bufs, count) return self.queue:sendN(bufs, count) end
function limiter:stop() end

return limiter
