//! Advice for command lines in the words of other programs: systemctl, ip, bridge, brctl, ovs-vsctl, tcpdump, netmap's.
//!
//! The parser suggests what is spelled alike, such as `top` for `stop`. Here is what means the same.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};
use ringroad::catalogue::{COMMON_OPTIONS, SWITCH_PORT_OPTIONS, kinds};

use crate::command_line::Arguments;

/// Words in place of a verb, the command line that is meant, and what it does.
type Habit = (&'static [&'static str], &'static str, &'static str);

/// Verbs of other programs.
const VERBS: [Habit; 19] = [
    (&["start", "enable"], "ringroad up", "starts the daemon"),
    (&["stop", "kill", "quit", "shutdown"], "ringroad down", "stops the daemon, with all switches and ports"),
    (&["restart"], "ringroad upgrade", "replaces the running daemon and keeps its ports"),
    (&["show", "info", "list-br"], "ringroad status", "shows the daemon, its switches and ports"),
    (&["ls", "ps", "ports", "list-ports", "list-ifaces"], "ringroad list", "lists the ports"),
    (&["stats", "counters", "get"], "ringroad list --json", "shows all counters of each port"),
    (
        &["add", "create", "new", "add-port", "addif"],
        "ringroad attach vale0:eth0",
        "puts eth0 on the switch vale0",
    ),
    (&["add-br", "addbr"], "ringroad attach vale0:eth0", "makes the switch vale0 with its first port"),
    (&["del", "delete", "rm", "remove", "del-port", "delif"], "ringroad detach vale0:eth0", "removes a port"),
    (&["del-br", "delbr"], "ringroad detach vale0:eth0", "removes a port; a switch goes with its last port"),
    (&["set", "vlan"], "ringroad port vale0:a@vlan=10", "changes the options of a port"),
    (&["fdb", "mac", "showmacs", "fdb/show"], "ringroad macs vale0", "shows the addresses of a switch"),
    (&["dump-flows", "flow"], "ringroad flows dump vale0", "shows the flows of a switch"),
    (&["add-flow"], "ringroad flows add vale0 actions=NORMAL", "adds a flow to a switch"),
    (&["del-flows"], "ringroad flows del vale0", "deletes flows of a switch"),
    (&["tcpdump", "dump", "sniff"], "ringroad run -- tcpdump -i vale0:look", "runs tcpdump at a port"),
    (&["pkt-gen", "send", "generate"], "ringroad gen vale0:a", "sends frames"),
    (&["receive", "listen"], "ringroad recv vale0:a", "receives frames"),
    (&["bridge", "forward"], "ringroad fwd vale0:a vale1:b", "forwards frames between two ports"),
];

/// Options of other programs in place of a verb: vale-ctl's.
const OPTIONS_WITHOUT_A_VERB: [Habit; 3] = [
    (&["-a"], "ringroad attach vale0:eth0", "puts eth0 on the switch vale0"),
    (&["-d"], "ringroad detach vale0:eth0", "removes a port"),
    (&["-l"], "ringroad list", "lists the ports"),
];

/// Options of tcpdump and pkt-gen: the verbs that can be meant, the option, and the words here.
const OPTIONS: [(&[&str], &str, &str); 6] = [
    (&["capture", "gen", "recv", "replay"], "-i", "the port is given alone, without -i"),
    (&["capture", "recv"], "-c", "'--count' ends the command after a number of frames"),
    (
        &["capture", "recv"],
        "-r",
        "'ringroad replay' sends the frames of a file, and 'tcpdump -r' prints them",
    ),
    (&["gen"], "-n", "'--count' is the number of frames"),
    (&["gen"], "-l", "'--size' is the size of the frames"),
    (&["gen"], "-R", "'--rate' is the rate, as in --rate 1Mpps"),
];

/// Adds advice to the parser's `error` about the command line `arguments`, if its words are another program's.
pub(crate) fn advise(error: &mut Error, arguments: impl Iterator<Item = OsString>) {
    let words: Vec<String> = arguments.skip(1).filter_map(|word| word.into_string().ok()).collect();
    let command = Arguments::command();
    let verb = words.iter().position(|word| command.find_subcommand(word).is_some());
    let advice = match (error.kind(), error.get(ContextKind::InvalidSubcommand), verb) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word)), None) => means(&VERBS, word),
        (ErrorKind::UnknownArgument, ..) => match (error.get(ContextKind::InvalidArg), verb) {
            (Some(ContextValue::String(word)), None) => means(&OPTIONS_WITHOUT_A_VERB, word),
            (Some(ContextValue::String(word)), Some(at)) => {
                argument(word, words.get(at..).unwrap_or_default())
            }
            _ => None,
        },
        _ => None,
    };
    let Some(advice) = advice else { return };
    for suggestion in [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg] {
        error.remove(suggestion);
    }
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(advice)]));
}

fn means(habits: &[Habit], word: &str) -> Option<String> {
    let (_, command, does) = habits.iter().find(|(words, ..)| words.contains(&word))?;
    Some(format!("'{command}' {does}"))
}

/// Advice about the argument `word` that the verb, the first of `words`, does not have.
fn argument(word: &str, words: &[String]) -> Option<String> {
    let (verb, others) = words.split_first()?;
    if let Some((.., advice)) =
        OPTIONS.iter().find(|(verbs, option, _)| verbs.contains(&verb.as_str()) && *option == word)
    {
        return Some((*advice).to_owned());
    }
    if let Some(key) = word.strip_prefix("--") {
        return option_of_a_name(key);
    }
    let port = others.iter().find(|other| !other.starts_with('-') && *other != word)?;
    match (verb.as_str(), port.contains(':')) {
        ("attach", false) => {
            Some(format!("'ringroad attach {port}:{word}' puts {word} on the switch {port}"))
        }
        ("attach", true) => {
            Some(format!("'ringroad attach {port} --driver {word}' names the device of a port"))
        }
        _ => None,
    }
}

/// Advice about the option `key` of port names that is given as an option of a command.
fn option_of_a_name(key: &str) -> Option<String> {
    let mut of_all = COMMON_OPTIONS.iter().chain(&SWITCH_PORT_OPTIONS);
    let form = if of_all.any(|option| option.key == key) {
        "vale0:a"
    } else {
        kinds().find(|kind| kind.has_option(key))?.form
    };
    Some(format!("'{key}' is written with the name of a port, as in {form}@{key}=..."))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn advised(line: &str) -> String {
        let words = || line.split(' ');
        let mut error = Arguments::try_parse_from(words()).expect_err(line);
        advise(&mut error, words().map(OsString::from));
        error.to_string()
    }

    #[test]
    fn every_advised_command_is_one_of_the_program_and_no_habit_is() {
        for (words, command, _) in VERBS.iter().chain(&OPTIONS_WITHOUT_A_VERB) {
            if let Err(error) = Arguments::try_parse_from(command.split(' ')) {
                panic!("{command}: {error}");
            }
            for word in *words {
                let printed = advised(&format!("ringroad {word} vale0 eth0"));
                assert!(printed.contains(&format!("tip: '{command}' ")), "{word}: {printed}");
                assert!(!printed.contains("similar"), "{word}: {printed}");
            }
        }
        for (verbs, option, advice) in OPTIONS {
            for verb in verbs {
                let printed = advised(&format!("ringroad {verb} {option} vale0:a"));
                assert!(printed.contains(&format!("tip: {advice}")), "{printed}");
            }
        }
    }

    #[test]
    fn options_of_names_and_devices_are_shown_where_they_belong() {
        for (line, tip) in [
            (
                "ringroad attach vale0:a --vlan 10",
                "tip: 'vlan' is written with the name of a port, as in vale0:a@vlan=...",
            ),
            ("ringroad recv vale0:a --vlan=10", "as in vale0:a@vlan=..."),
            ("ringroad recv vale0:a --share=vale0:b", "as in vale0:a@share=..."),
            ("ringroad attach vale0:eth0 --mode=native", "as in eth0@mode=..."),
            ("ringroad attach vale0:a eth0", "tip: 'ringroad attach vale0:a --driver eth0' names"),
            ("ringroad attach vale0 eth0", "tip: 'ringroad attach vale0:eth0' puts eth0 on the switch vale0"),
        ] {
            let printed = advised(line);
            assert!(printed.contains(tip), "{line}: {printed}");
        }
        let unknown = advised("ringroad list --wrong");
        assert!(!unknown.contains("tip:"), "{unknown}");
    }

    #[test]
    fn a_verb_that_is_only_mistyped_keeps_the_parsers_suggestion() {
        let printed = advised("ringroad atach vale0:a");
        assert!(printed.contains("attach"), "{printed}");
    }
}
