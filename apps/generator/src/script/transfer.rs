//! Values on their way from one task's Lua state to another's.

use std::sync::{Arc, Mutex};

use mlua::{AnyUserData, Lua, Table, Value};

use super::device::{DeviceRef, ScriptDevice, ScriptQueue};
use super::histogram::{HistogramRef, Values};

/// Greatest depth of nested tables; a deeper table contains itself.
const MAX_DEPTH: usize = 32;
/// Name of the prelude's table of functions that make objects from plain values, by class.
const CLASSES: &str = "ringroad.classes";

/// A value without a Lua state.
#[derive(Debug, Clone)]
pub(super) enum Transfer {
    Nil,
    Boolean(bool),
    Integer(i64),
    Number(f64),
    Text(Vec<u8>),
    Table(Vec<(Transfer, Transfer)>),
    /// Class and packed form of an object of the prelude.
    Object(String, Box<Transfer>),
    Device(Arc<ScriptDevice>),
    Queue(ScriptQueue),
    Histogram(Arc<Mutex<Values>>),
}

impl Transfer {
    /// Copies `value` out of its state. Errors call the value `what`.
    pub(super) fn from_lua(value: Value, what: &str) -> mlua::Result<Self> {
        Self::at_depth(value, what, 0)
    }

    fn at_depth(value: Value, what: &str, depth: usize) -> mlua::Result<Self> {
        let refuse = |why: &str| Err(mlua::Error::runtime(format!("{what} {why}")));
        Ok(match value {
            Value::Nil => Self::Nil,
            Value::Boolean(value) => Self::Boolean(value),
            Value::Integer(value) => Self::Integer(value),
            Value::Number(value) => Self::Number(value),
            Value::String(text) => Self::Text(text.as_bytes().to_vec()),
            Value::Table(_) if depth == MAX_DEPTH => {
                return refuse("is a table that contains itself, or more than 32 levels of tables");
            }
            Value::Table(table) => Self::of_table(&table, what, depth)?,
            Value::UserData(data) => match Self::of_userdata(&data) {
                Some(transfer) => transfer,
                None => return refuse("belongs to its task"),
            },
            other => {
                return refuse(&format!(
                    "is a {}, which stays in its task; give numbers, strings, booleans, tables of these, devices, \
                     queues, counters or histograms",
                    other.type_name()
                ));
            }
        })
    }

    fn of_table(table: &Table, what: &str, depth: usize) -> mlua::Result<Self> {
        if let Some(class) = table.metatable() {
            let name: Option<String> = class.raw_get("__class")?;
            let pack: Option<mlua::Function> = class.raw_get("__pack")?;
            if let (Some(name), Some(pack)) = (name, pack) {
                let plain = Self::at_depth(pack.call::<Value>(table)?, what, depth + 1)?;
                return Ok(Self::Object(name, Box::new(plain)));
            }
        }
        let mut entries = Vec::new();
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            let inner = match &key {
                Value::String(name) => format!("{what}.{}", name.to_string_lossy()),
                key => format!("{what}[{}]", key.to_string()?),
            };
            entries.push((Self::at_depth(key, what, depth + 1)?, Self::at_depth(value, &inner, depth + 1)?));
        }
        Ok(Self::Table(entries))
    }

    fn of_userdata(data: &AnyUserData) -> Option<Self> {
        if let Ok(device) = data.borrow::<DeviceRef>() {
            return Some(Self::Device(Arc::clone(&device.0)));
        }
        if let Ok(queue) = data.borrow::<ScriptQueue>() {
            return Some(Self::Queue(queue.clone()));
        }
        data.borrow::<HistogramRef>().ok().map(|histogram| Self::Histogram(Arc::clone(histogram.values())))
    }

    /// Puts the value into `lua`.
    pub(super) fn into_lua(self, lua: &Lua) -> mlua::Result<Value> {
        Ok(match self {
            Self::Nil => Value::Nil,
            Self::Boolean(value) => Value::Boolean(value),
            Self::Integer(value) => Value::Integer(value),
            Self::Number(value) => Value::Number(value),
            Self::Text(text) => Value::String(lua.create_string(text)?),
            Self::Table(entries) => {
                let table = lua.create_table_with_capacity(0, entries.len())?;
                for (key, value) in entries {
                    table.raw_set(key.into_lua(lua)?, value.into_lua(lua)?)?;
                }
                Value::Table(table)
            }
            Self::Object(class, plain) => {
                let classes: Table = lua.named_registry_value(CLASSES)?;
                let unpack: mlua::Function = classes.get(class)?;
                unpack.call(plain.into_lua(lua)?)?
            }
            Self::Device(device) => Value::UserData(lua.create_userdata(DeviceRef(device))?),
            Self::Queue(queue) => Value::UserData(lua.create_userdata(queue)?),
            Self::Histogram(histogram) => Value::UserData(lua.create_userdata(HistogramRef::of(histogram)?)?),
        })
    }
}

/// Registers the functions that unpack objects of the prelude's classes.
pub(super) fn register_classes(lua: &Lua, classes: Table) -> mlua::Result<()> {
    lua.set_named_registry_value(CLASSES, classes)
}
