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
    match global.connect()?.request(request)?.0 {
        Reply::Done => output.result(&Done { done, name }, |_| match name {
            Some(name) => format!("{name}: {done}"),
            None => done.to_owned(),
        }),
        reply => Err(Failure::reply(&reply)),
    }
}
