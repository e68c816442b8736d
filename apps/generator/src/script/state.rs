//! The Lua state of a task: the prelude, the Rust functions that it calls, and the script.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mlua::{
    FromLuaMulti, Function, IntoLuaMulti, Lua, LuaString, MultiValue, Table, UserData, UserDataMethods, Value,
};

use super::ScriptSource;
use super::context::{Context, context};
use super::device::{DeviceRef, ScriptDevice};
use super::histogram::HistogramRef;
use super::memory::{flag_address, flag_reader, new_state};
use super::run::{LONGEST_WAIT, Run};
use super::task::start_task;
use super::transfer::{Transfer, register_classes};

/// Lua modules of the prelude by their name in `require`, in loading order.
const PRELUDE: [(&str, &str); 13] = [
    ("ringroad.output", include_str!("prelude/output.lua")),
    ("ringroad.numbers", include_str!("prelude/numbers.lua")),
    ("ringroad.headers", include_str!("prelude/headers.lua")),
    ("ringroad.packet", include_str!("prelude/packet.lua")),
    ("moongen", include_str!("prelude/moongen.lua")),
    ("memory", include_str!("prelude/memory.lua")),
    ("device", include_str!("prelude/device.lua")),
    ("stats", include_str!("prelude/stats.lua")),
    ("histogram", include_str!("prelude/histogram.lua")),
    ("log", include_str!("prelude/log.lua")),
    ("timer", include_str!("prelude/timer.lua")),
    ("argparse", include_str!("prelude/argparse.lua")),
    ("software-ratecontrol", include_str!("prelude/ratecontrol.lua")),
];

/// Alternative names of modules, as used in scripts for MoonGen and libmoon.
const ALIASES: [(&str, &str); 5] = [
    ("libmoon", "moongen"),
    ("dpdk", "moongen"),
    ("phobos", "moongen"),
    ("packet", "ringroad.packet"),
    ("hist", "histogram"),
];

/// Makes the state of `task` and loads the script into it.
pub(super) fn make_state(run: &Arc<Run>, task: &str, seed: u32) -> mlua::Result<Lua> {
    let lua = new_state();
    lua.set_app_data(Context::new(run, task));
    // The flag must live as long as the state: compiled code reads it by its address.
    lua.set_app_data(Arc::clone(&run.stop));
    let native = native(&lua, run)?;
    let loaded: Table = lua.globals().get::<Table>("package")?.get("loaded")?;
    loaded.set("ringroad.native", &native)?;
    for (name, source) in PRELUDE {
        let module: Value = lua.load(source).set_name(format!("=ringroad/{name}")).eval()?;
        loaded.set(name, if module.is_nil() { Value::Boolean(true) } else { module })?;
    }
    for (alias, name) in ALIASES {
        loaded.set(alias, loaded.get::<Value>(name)?)?;
    }
    register_classes(&lua, classes(&lua, &loaded)?)?;
    set_up_modules(&lua, &run.script)?;
    // The seed of a task's random numbers is the same in each run.
    lua.globals().get::<Table>("math")?.get::<Function>("randomseed")?.call::<()>(seed)?;
    lua.load(&run.script.source).set_name(format!("@{}", run.script.name)).exec()?;
    Ok(lua)
}

/// Functions that make objects of the prelude's classes from their packed form.
fn classes(lua: &Lua, loaded: &Table) -> mlua::Result<Table> {
    let classes = lua.create_table()?;
    for (class, module) in [("stats.counter", "stats"), ("histogram", "histogram")] {
        classes.set(class, loaded.get::<Table>(module)?.get::<Value>("unpack")?)?;
    }
    Ok(classes)
}

/// Makes `require` search the script's folder first, and skip the script's own file. A script can have the name of a
/// module that it needs.
fn set_up_modules(lua: &Lua, script: &ScriptSource) -> mlua::Result<()> {
    let Some(file) = &script.file else { return Ok(()) };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let package: Table = lua.globals().get("package")?;
    let path: String = package.get("path")?;
    package.set("path", format!("{}/?.lua;{path}", folder.display()))?;
    let own = file_number(file);
    let is_script = lua.create_function(move |_, other: String| {
        Ok(own.is_some() && file_number(Path::new(&other)) == own)
    })?;
    lua.load(SEARCHER).set_name("=ringroad/searcher").call(is_script)
}

/// Number of a file, whatever its name: device and inode.
fn file_number(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Replaces the search for a module in `package.path` by one that does not find the script.
const SEARCHER: &str = r#"
local is_script = ...
package.loaders[2] = function(name)
  local tried = {}
  for template in package.path:gmatch("[^;]+") do
    local file, missing = package.searchpath(name, template)
    if not file then
      tried[#tried + 1] = missing
    elseif is_script(file) then
      tried[#tried + 1] = ("\n\tthe script itself, '%s'"):format(file)
    else
      local module, problem = loadfile(file)
      if module then return module end
      error(("error loading module '%s' from file '%s':\n\t%s"):format(name, file, problem), 0)
    end
  end
  return table.concat(tried)
end
"#;

/// The Rust functions that the prelude calls.
fn native(lua: &Lua, run: &Arc<Run>) -> mlua::Result<Table> {
    let native = lua.create_table()?;
    native.set("stop_flag", flag_address(&run.stop))?;
    native.set("read_flag", flag_reader())?;
    native.set("arguments", run.arguments.as_slice())?;
    native.set("script_name", run.script.name.as_str())?;
    native.set("stats_format", run.options.stats_format.word())?;
    let functions = Functions { lua, native: &native };
    functions.add("now_ns", |lua, ()| Ok(context(lua)?.now_ns() as f64))?;
    functions.add("stop", |lua, ()| {
        context(lua)?.run.end();
        Ok(())
    })?;
    functions.add("running_within", |lua, extra_ms: f64| {
        let context = context(lua)?;
        Ok(context.run.is_within((extra_ms * 1e6) as u64, context.now_ns()))
    })?;
    functions.add("set_runtime", |lua, seconds: f64| {
        if !(seconds > 0.0 && seconds.is_finite()) {
            return Err(mlua::Error::runtime(format!("setRuntime: {seconds}: give seconds above 0")));
        }
        let context = context(lua)?;
        context.run.set_time_limit(context.now_ns().saturating_add((seconds * 1e9) as u64));
        Ok(())
    })?;
    functions.add("sleep", |lua, ns: f64| {
        sleep(&*context(lua)?, ns);
        Ok(())
    })?;
    functions.add("start_task", |lua, (cpu, name, values): (Option<usize>, Value, MultiValue)| {
        start_task(lua, cpu, &name, values)
    })?;
    functions.add("wait_for_tasks", |lua, ()| {
        let context = context(lua)?;
        if !context.is_master() {
            return Err(mlua::Error::runtime(
                "waitForTasks: only master can wait for the tasks: it would wait for itself",
            ));
        }
        context.run.wait_for_tasks();
        Ok(())
    })?;
    functions.add("open_device", |lua, (name, tx, rx): (String, u16, u16)| {
        ScriptDevice::open(&context(lua)?.run, &name, tx, rx).map(DeviceRef)
    })?;
    functions.add("ready", |lua, ()| context(lua)?.run.announce())?;
    functions.add("buffers", |lua, (count, capacity): (usize, usize)| {
        let array = Rc::clone(&context(lua)?.arena).array(count, capacity)?;
        let (address, stride) = {
            let block = array.block.borrow();
            (block.address(), block.stride())
        };
        Ok((array, address, stride))
    })?;
    functions.add("histogram", |_, ()| HistogramRef::new())?;
    functions.add("write_line", |lua, text: LuaString| context(lua)?.run.write_line(&text.as_bytes()))?;
    functions.add("write", |lua, text: LuaString| context(lua)?.run.write(&text.as_bytes()))?;
    functions.add("log", |lua, (level, text): (String, LuaString)| {
        let context = context(lua)?;
        (context.run.options.log)(&level, &context.task, &text.to_string_lossy());
        Ok(())
    })?;
    Ok(native)
}

/// The table of functions that the prelude calls, while it is filled.
struct Functions<'lua> {
    lua: &'lua Lua,
    native: &'lua Table,
}

impl Functions<'_> {
    fn add<A: FromLuaMulti, R: IntoLuaMulti>(
        &self,
        name: &str,
        function: impl Fn(&Lua, A) -> mlua::Result<R> + 'static,
    ) -> mlua::Result<()> {
        self.native.set(name, self.lua.create_function(function)?)
    }
}

/// Sleeps in short pieces, so that the end of the run is noticed soon.
fn sleep(context: &Context, ns: f64) {
    let end_ns = context.now_ns().saturating_add(ns.max(0.0) as u64);
    while !context.run.is_over() {
        let left_ns = end_ns.saturating_sub(context.now_ns());
        if left_ns == 0 {
            return;
        }
        std::thread::sleep(Duration::from_nanos(left_ns).min(LONGEST_WAIT));
    }
}

/// A task as master has it.
pub(super) struct TaskRef {
    pub(super) run: Arc<Run>,
    pub(super) number: usize,
}

impl UserData for TaskRef {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("isRunning", |_, this, ()| Ok(this.run.is_task_running(this.number)));
        methods.add_method("wait", |lua, this, ()| {
            let returned = this.run.wait_for_task(this.number);
            returned
                .into_iter()
                .map(|value| Transfer::into_lua(value, lua))
                .collect::<mlua::Result<MultiValue>>()
        });
    }
}
