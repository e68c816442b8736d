//! Contract of a verb, and the request and result of verbs that only send a request.

use ringroad_control::{Reply, Request};
use serde::Serialize;

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;

/// A verb of `ringroad`. The module of the verb contains everything about it, except its row in the table of verbs. The
/// doc comment of the type is the help of the verb.
pub(crate) trait MainVerb {
    /// Shell lines for the verb's manual page; empty for verbs that users do not type.
    const EXAMPLES: &str;

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure>;
}

/// Sends a request to the daemon. Gives the content of the reply that matches the request; any other reply is a failure.
macro_rules! request {
    ($daemon:expr, $request:expr, $reply:pat => $content:expr) => {
        match $daemon.request($request) {
            Ok(($reply, _)) => Ok($content),
            Ok((reply, _)) => Err($crate::failure::Failure::reply(&reply)),
            Err(error) => Err($crate::failure::Failure::from(error)),
        }
    };
}
pub(crate) use request;

/// Result of a verb without data of its own.
#[derive(Debug, Serialize)]
pub(crate) struct Done<'a> {
    pub(crate) done: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<&'a str>,
}

/// Sends a request to the daemon, and reports success.
pub(crate) fn ask(
    global: &Global,
    output: &Output,
    request: &Request,
    done: &'static str,
    name: Option<&str>,
) -> Result<(), Failure> {
    request!(global.connect()?, request, Reply::Done => ())?;
    output.result(&Done { done, name }, |_| match name {
        Some(name) => format!("{name}: {done}"),
        None => done.to_owned(),
    })
}
