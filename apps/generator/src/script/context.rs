//! Data of one task's Lua state, for the functions that it calls.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use mlua::{AppDataRef, Lua};

use super::buffers::Arena;
use super::run::Run;
use crate::clock::ClockReader;

/// The task of a Lua state.
pub(super) struct Context {
    pub(super) run: Arc<Run>,
    /// Name of the task: `master`, or the name of its function.
    pub(super) task: String,
    /// Buffers of the task's arrays.
    pub(super) arena: Rc<Arena>,
    clock: RefCell<ClockReader>,
}

impl Context {
    pub(super) fn new(run: &Arc<Run>, task: &str) -> Self {
        let clock = RefCell::new(run.clock.reader());
        Self { run: Arc::clone(run), task: task.to_owned(), arena: Rc::default(), clock }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock.borrow_mut().now_ns()
    }

    pub(super) fn is_master(&self) -> bool {
        self.task == MASTER
    }
}

/// Name of the first task and of its function.
pub(super) const MASTER: &str = "master";

/// The task of `lua`.
pub(super) fn context(lua: &Lua) -> mlua::Result<AppDataRef<'_, Context>> {
    lua.app_data_ref::<Context>().ok_or_else(|| mlua::Error::runtime("this Lua state belongs to no task"))
}
