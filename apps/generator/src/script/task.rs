//! Tasks: functions of the script, each in its own thread and Lua state.

use std::sync::Arc;

use mlua::{Function, Lua, MultiValue, Value};

use super::context::{MASTER, context};
use super::error::ScriptError;
use super::run::Run;
use super::state::{TaskRef, make_state};
use super::transfer::Transfer;
use crate::affinity;

/// Starts the global function `name` with `values` as a task.
pub(super) fn start_task(
    lua: &Lua,
    cpu: Option<usize>,
    name: &Value,
    values: MultiValue,
) -> mlua::Result<TaskRef> {
    let context = context(lua)?;
    if !context.is_master() {
        return Err(mlua::Error::runtime("startTask: only master can start tasks"));
    }
    let Value::String(name) = name else {
        return Err(mlua::Error::runtime(format!(
            "startTask: give the name of a global function as a string, not a {}",
            name.type_name()
        )));
    };
    let name = name.to_string_lossy();
    if !lua.globals().raw_get::<Value>(name.as_str())?.is_function() {
        return Err(mlua::Error::runtime(format!(
            "startTask: the script has no global function {name:?}: write it without \"local\", before master runs"
        )));
    }
    let mut arguments = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        arguments.push(Transfer::from_lua(value, &format!("startTask: argument {} of {name:?}", index + 1))?);
    }
    let run = Arc::clone(&context.run);
    drop(context);
    run.announce()?;
    let number = run.add_task();
    let cpu = cpu.or_else(|| run.options.cpus.get(number).copied());
    let ended = EndMark { run: Arc::clone(&run), number, task: name.clone() };
    let thread = std::thread::Builder::new().name(name.clone()).spawn(move || {
        let run = &ended.run;
        match run_task(run, &ended.task, number, cpu, arguments) {
            Ok(returned) => run.end_task(number, Some(returned)),
            Err(error) => run.fail(error),
        }
    });
    let thread =
        thread.map_err(|error| mlua::Error::runtime(format!("startTask: starting a thread: {error}")))?;
    run.add_thread(thread);
    Ok(TaskRef { run, number })
}

/// Marks a task as ended when dropped, even by a panic.
struct EndMark {
    run: Arc<Run>,
    number: usize,
    task: String,
}

impl Drop for EndMark {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.run.fail(ScriptError::in_task(
                &self.task,
                "a fault in this program, not in the script; please report it with the lines above",
            ));
        }
        self.run.end_task(self.number, None);
    }
}

fn run_task(
    run: &Arc<Run>,
    task: &str,
    number: usize,
    cpu: Option<usize>,
    arguments: Vec<Transfer>,
) -> Result<Vec<Transfer>, ScriptError> {
    if let Some(cpu) = cpu {
        affinity::pin(cpu).map_err(|error| ScriptError::in_task(task, format!("{task}: {error}")))?;
    }
    let work = || {
        // Seed 0 belongs to master.
        let lua = make_state(run, task, number as u32 + 1)?;
        let arguments: MultiValue =
            arguments.into_iter().map(|value| value.into_lua(&lua)).collect::<mlua::Result<_>>()?;
        let function: Function = lua.globals().raw_get(task)?;
        let returned: MultiValue = function.call(arguments)?;
        let mut values = Vec::new();
        for (index, value) in returned.into_iter().enumerate() {
            values.push(Transfer::from_lua(value, &format!("value {} that {task:?} returns", index + 1))?);
        }
        Ok(values)
    };
    work().map_err(|error| ScriptError::of_lua(task, &error))
}

/// Reads the arguments by the script's `configure`, and runs its `master`. If the user requested help, prints it instead
/// and returns `false`.
pub(super) fn run_master(run: &Arc<Run>) -> Result<bool, ScriptError> {
    let of_lua = |error: mlua::Error| ScriptError::of_lua(MASTER, &error);
    let lua = make_state(run, MASTER, 0).map_err(of_lua)?;
    let globals = lua.globals();
    let master = match globals.raw_get::<Value>(MASTER).map_err(of_lua)? {
        Value::Function(master) => master,
        _ => {
            return Err(ScriptError::in_task(
                MASTER,
                format!("{}: there is no function master(): a script begins there", run.script.name),
            ));
        }
    };
    let parsed: (String, Value) =
        lua.load(CONFIGURE).set_name("=ringroad/configure").eval().map_err(of_lua)?;
    let arguments = match parsed {
        (kind, Value::String(text)) if kind == "usage" => {
            return Err(ScriptError::Usage(text.to_string_lossy()));
        }
        (kind, Value::String(text)) if kind == "help" => {
            run.write_line(&text.as_bytes()).map_err(of_lua)?;
            return Ok(false);
        }
        (kind, args) if kind == "args" => MultiValue::from_iter([args]),
        _ => run
            .arguments
            .iter()
            .map(|argument| lua.create_string(argument).map(Value::String))
            .collect::<mlua::Result<_>>()
            .map_err(of_lua)?,
    };
    master.call::<()>(arguments).map_err(of_lua)?;
    Ok(true)
}

/// Calls `configure`, if the script has it. Returns the outcome and the value.
const CONFIGURE: &str = r#"
local configure = rawget(_G, "configure")
if type(configure) ~= "function" then return "plain" end
local parser = require "argparse"()
local args
local well, left = xpcall(function()
  args = configure(parser)
  if args == nil then args = parser:parse() end
end, function(problem)
  if type(problem) == "table" and problem.ringroad_leave then return problem end
  return { problem = problem, traceback = debug.traceback(tostring(problem), 2) }
end)
if well then return "args", args end
if left.ringroad_leave then return left.ringroad_leave, left.text end
error(left.traceback, 0)
"#;
