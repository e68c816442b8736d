--- Tasks, time and the end of the run.
local ffi = require "ffi"
local native = require "ringroad.native"

local mg = {}
local stop_flag = ffi.cast("const void *", native.stop_flag)
local read_flag = ffi.cast("uint8_t (*)(const void *)", native.read_flag)

--- Whether to go on: not after Ctrl-C, SIGTERM, mg.stop(), the end of the runtime, or an error in another task. With
--- `extra`, for this many milliseconds more.
function mg.running(extra)
  if read_flag(stop_flag) == 0 then return true end
  return extra ~= nil and extra > 0 and native.running_within(extra)
end

--- Ends the run: running() is false in all tasks.
function mg.stop() native.stop() end
--- Ends the run this many seconds from now.
function mg.setRuntime(seconds) native.set_runtime(seconds) end

--- Runs the global function `name` of this script in a thread and a Lua state of its own.
function mg.startTask(name, ...) return native.start_task(nil, name, ...) end
mg.startSharedTask = mg.startTask
mg.launchLua = mg.startTask
--- The same on processor `cpu`.
function mg.startTaskOnCore(cpu, name, ...) return native.start_task(cpu, name, ...) end
--- Waits until all tasks have returned.
function mg.waitForTasks() native.wait_for_tasks() end
mg.waitForSlaves = mg.waitForTasks

--- Sleeps, or less if the run ends meanwhile.
function mg.sleepMillis(milliseconds) native.sleep(milliseconds * 1e6) end
function mg.sleepMicros(microseconds) native.sleep(microseconds * 1e3) end
mg.sleepMillisIdle, mg.sleepMicrosIdle = mg.sleepMillis, mg.sleepMicros

--- Seconds of CLOCK_MONOTONIC.
function mg.getTime() return native.now_ns() / 1e9 end
--- Nanoseconds of CLOCK_MONOTONIC, the clock of signatures and arrivals.
function mg.getNanos() return native.now_ns() end

return mg
