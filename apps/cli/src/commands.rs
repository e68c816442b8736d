//! One module per verb, and their dispatch.

pub(crate) mod attach;
#[cfg(feature = "bench")]
pub(crate) mod bench;
pub(crate) mod capture;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod container;
pub(crate) mod demo;
pub(crate) mod detach;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod explain;
pub(crate) mod flows;
pub(crate) mod fwd;
pub(crate) mod r#gen;
mod guests;
pub(crate) mod kinds;
pub(crate) mod link;
pub(crate) mod list;
pub(crate) mod macs;
pub(crate) mod man;
pub(crate) mod metrics;
pub(crate) mod mirror;
mod namespaces;
#[cfg(feature = "otg")]
pub(crate) mod otg;
pub(crate) mod port;
pub(crate) mod recv;
pub(crate) mod reload;
pub(crate) mod replay;
pub(crate) mod run;
#[cfg(feature = "script")]
pub(crate) mod script;
pub(crate) mod sflow;
pub(crate) mod status;
pub(crate) mod switch;
pub(crate) mod sze2;
pub(crate) mod testpmd;
#[cfg(feature = "top")]
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod trial;
pub(crate) mod unlink;
pub(crate) mod up;
pub(crate) mod upgrade;
pub(crate) mod vm;

use ringroad_control::{Reply, Request};
use serde::Serialize;

use crate::arguments::{Arguments, Command, Global};
use crate::failure::Failure;
use crate::output::Output;

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, output: &Output) -> Result<(), Failure> {
    let global = &arguments.global;
    match &arguments.command {
        Command::Upgrade(verb) => verb.run(global, output),
        Command::Up(verb) => verb.run(global, output),
        Command::Down(verb) => verb.run(global, output),
        Command::Status(verb) => verb.run(global, output),
        Command::List(verb) => verb.run(global, output),
        Command::Kinds(verb) => verb.run(output),
        Command::Attach(verb) => verb.run(global, output),
        Command::Detach(verb) => verb.run(global, output),
        Command::Link(verb) => verb.run(global, output),
        Command::Unlink(verb) => verb.run(global, output),
        Command::Config(verb) => verb.run(global, output),
        Command::Reload(verb) => verb.run(global, output),
        Command::Macs(verb) => verb.run(global, output),
        Command::Mirror(verb) => verb.run(global, output),
        Command::Port(verb) => verb.run(global, output),
        Command::Switch(verb) => verb.run(global, output),
        Command::Flows(verb) => verb.run(global, output),
        Command::Explain(verb) => verb.run(global, output),
        Command::Trace(verb) => verb.run(global, output),
        Command::Gen(verb) => verb.run(global, output),
        Command::Trial(verb) => verb.run(global, output),
        #[cfg(feature = "otg")]
        Command::Otg(verb) => verb.run(global, output),
        Command::Container(verb) => verb.run(global, output),
        Command::Sze2(verb) => verb.run(output),
        Command::Testpmd(verb) => verb.run(global, output),
        Command::Vm(verb) => verb.run(global, output),
        Command::Recv(verb) => verb.run(global, output),
        Command::Fwd(verb) => verb.run(global, output),
        Command::Capture(verb) => verb.run(global, output),
        Command::Replay(verb) => verb.run(global, output),
        Command::Run(verb) => verb.run(global),
        #[cfg(feature = "script")]
        Command::Script(verb) => verb.run(global, output),
        #[cfg(feature = "top")]
        Command::Top(verb) => verb.run(global, output),
        Command::Doctor(verb) => verb.run(global, output),
        Command::Demo(verb) => verb.run(global, output),
        #[cfg(feature = "bench")]
        Command::Bench(verb) => verb.run(output),
        #[cfg(feature = "bench")]
        Command::BenchWorker(verb) => verb.run(),
        Command::Completions(verb) => verb.run(),
        Command::Man(verb) => verb.run(),
        Command::Metrics(verb) => verb.run(global, output),
        Command::Sflow(verb) => verb.run(global, output),
    }
}

/// The result of a verb that only does something.
#[derive(Debug, Serialize)]
struct Done<'a> {
    done: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
}

/// Sends a request to the daemon, and reports that it is done.
fn ask(
    global: &Global,
    output: &Output,
    request: &Request,
    done: &'static str,
    name: Option<&str>,
) -> Result<(), Failure> {
    match global.connect()?.request(request)?.0 {
        Reply::Done => output.result(&Done { done, name }, |_| match name {
            Some(name) => format!("{name}: {done}"),
            None => done.to_owned(),
        }),
        reply => Err(Failure::reply(&reply)),
    }
}
