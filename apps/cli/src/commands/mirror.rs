//! `ringroad mirror`.

use clap::Args;
use ringroad_control::message::{Mirror, MirrorDirection};
use ringroad_control::{Reply, Request};

use crate::failure::Failure;
use crate::options::{Choice, Global, one_of, switch_name, switch_port};
use crate::output::Output;
use crate::output::table::table;
use crate::verb::{MainVerb, ask, request};

/// Send a port copies of another port's frames, or of all frames of a switch
///
/// Without arguments it lists the mirrors. The mirror port gets no other frames, and frames that it sends are dropped.
/// Neither port need exist yet. Open the port with ringroad capture, ringroad recv or any other program, or attach a
/// device to it. `ringroad config save` writes mirrors into the daemon's configuration.
#[derive(Debug, Args)]
pub(crate) struct MirrorArgs {
    /// Port whose frames are copied, such as vale0:a, or a switch, such as vale0
    #[arg(value_name = "PORT|SWITCH", value_parser = port_or_switch, requires = "to")]
    from: Option<String>,
    /// Port of the same switch that gets the copies
    #[arg(long, value_name = "PORT", value_parser = switch_port, requires = "from")]
    to: Option<String>,
    /// Direction of the copied frames, as seen from the switch
    #[arg(long, value_name = "WHICH", default_value = "both", value_parser = one_of(&DIRECTIONS), requires = "from")]
    direction: MirrorDirection,
    /// Copy one of N frames of each port
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), requires = "from")]
    sample: u32,
    /// Send records of frames instead of the frames: number, ports, length, first 128 bytes
    #[arg(long, requires = "from")]
    records: bool,
    /// End this mirror
    #[arg(long, requires = "from")]
    remove: bool,
}

const DIRECTIONS: [Choice<MirrorDirection>; 3] = [
    ("received", "Frames that the port receives", MirrorDirection::Received),
    ("delivered", "Frames that the switch delivers to the port", MirrorDirection::Delivered),
    ("both", "Frames of both directions", MirrorDirection::Both),
];

/// Parses the name of a port of a switch, or of a switch.
fn port_or_switch(text: &str) -> Result<String, String> {
    switch_name(text).or_else(|_| switch_port(text))
}

impl MainVerb for MirrorArgs {
    const EXAMPLES: &str = "\
# Frames to and from vale0:a; ringroad capture vale0:look shows them
ringroad mirror vale0:a --to vale0:look
# One of 1000 frames of the whole switch
ringroad mirror vale0 --to vale0:look --sample 1000
ringroad mirror vale0:a --to vale0:look --remove";

    fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
        let (Some(from), Some(to)) = (self.from.clone(), self.to.clone()) else {
            return list(global, output);
        };
        if self.remove {
            return ask(global, output, &Request::RemoveMirror { from, to }, "removed", None);
        }
        let MirrorArgs { direction, sample, records, .. } = *self;
        let mirror = Mirror { from, to, direction, sample, records };
        ask(global, output, &Request::SetMirror(mirror), "set", None)
    }
}

fn list(global: &Global, output: &Output) -> Result<(), Failure> {
    let mirrors = request!(global.connect()?, &Request::Mirrors, Reply::Mirrors(mirrors) => mirrors)?;
    output.result(&mirrors, |mirrors| {
        table(
            mirrors,
            &[
                ("from", |mirror| mirror.from.clone()),
                ("to", |mirror| mirror.to.clone()),
                ("direction", |mirror| {
                    let words = DIRECTIONS.iter().find(|(.., direction)| *direction == mirror.direction);
                    words.map_or("", |(words, ..)| words).to_owned()
                }),
                (">one of", |mirror| mirror.sample.to_string()),
                ("gets", |mirror| if mirror.records { "records" } else { "frames" }.to_owned()),
            ],
            "no mirrors",
        )
    })
}
