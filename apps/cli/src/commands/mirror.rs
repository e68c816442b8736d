//! `ringroad mirror`.

use clap::{Args, ValueEnum};
use ringroad_control::message::{Mirror, MirrorDirection};
use ringroad_control::{Reply, Request};

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::output::table::Columns;
use crate::verb::{MainVerb, ask};

/// Send a port copies of another port's frames, or of all frames of a switch
///
/// Without arguments it lists the mirrors. The mirror port gets no other frames, and frames that it sends are dropped.
/// Neither port need exist yet. Open the port with ringroad capture, ringroad recv or any other program, or attach a
/// device to it. `ringroad config save` writes mirrors into the daemon's configuration.
#[derive(Debug, Args)]
pub(crate) struct MirrorArgs {
    /// Port whose frames are copied, such as vale0:a, or a switch, such as vale0
    #[arg(value_name = "PORT|SWITCH", requires = "to")]
    from: Option<String>,
    /// Port of the same switch that gets the copies
    #[arg(long, value_name = "PORT", requires = "from")]
    to: Option<String>,
    /// Direction of the copied frames, as seen from the switch
    #[arg(long, value_name = "WHICH", default_value = "both", requires = "from")]
    direction: MirrorDirectionArg,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MirrorDirectionArg {
    /// Frames that the port receives
    Received,
    /// Frames that the switch delivers to the port
    Delivered,
    /// Frames of both directions
    Both,
}

impl MirrorDirectionArg {
    const ALL: [(Self, MirrorDirection, &str); 3] = [
        (Self::Received, MirrorDirection::Received, "received"),
        (Self::Delivered, MirrorDirection::Delivered, "delivered"),
        (Self::Both, MirrorDirection::Both, "both"),
    ];
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
        let direction = MirrorDirectionArg::ALL
            .iter()
            .find(|(typed, ..)| *typed == self.direction)
            .map(|&(_, given, _)| given);
        let mirror = Mirror {
            from,
            to,
            direction: direction.unwrap_or_default(),
            sample: self.sample,
            records: self.records,
        };
        ask(global, output, &Request::SetMirror(mirror), "set", None)
    }
}

fn list(global: &Global, output: &Output) -> Result<(), Failure> {
    let mirrors = match global.connect()?.request(&Request::Mirrors)?.0 {
        Reply::Mirrors(mirrors) => mirrors,
        reply => return Err(Failure::reply(&reply)),
    };
    output.result(&mirrors, |mirrors| {
        let mut columns = Columns::new(&["from", "to", "direction", ">one of", "gets"]);
        for Mirror { from, to, direction, sample, records } in mirrors {
            let words = MirrorDirectionArg::ALL
                .iter()
                .find(|(_, given, _)| given == direction)
                .map_or("", |named| named.2);
            let gets = if *records { "records" } else { "frames" };
            columns.row([from.clone(), to.clone(), words.to_owned(), sample.to_string(), gets.to_owned()]);
        }
        columns.lines_or("no mirrors")
    })
}
