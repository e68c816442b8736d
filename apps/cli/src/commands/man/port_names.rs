//! `ringroad-ports(7)`: names of ports, from the catalogue of kinds of port.

use clap_mangen::roff::{Roff, bold, roman};
use ringroad::catalogue::{COMMON_OPTIONS, OpenedBy, PortOption, SWITCH_PORT_OPTIONS, kinds};

const EXAMPLES: &str = "\
ringroad recv vale0:b@slots=4096,queues=2
ringroad attach vale0:up@trunk=10,20-29,native=5 --driver eth0
ringroad attach vale0:guest@vlan=10,isolated,storm=1000 --driver vhost-user:/run/g.sock
ringroad attach vale0:m --driver memif:/run/m.sock@id=3
ringroad recv eth0@mode=native,busy-poll=50,netns=blue
ringroad replay capture.pcap null:";

/// Makes the page.
pub(super) fn page() -> String {
    let mut page = Roff::new();
    page.control("TH", ["ringroad-ports", "7"]);
    section(&mut page, "NAME", r"ringroad-ports - names of ports, and their options");
    section(
        &mut page,
        "DESCRIPTION",
        "Commands, programs, the daemon's configuration and embedded switches share one grammar of names. \
         A name stands for a port of rings, or for a device. Names of switches, ports and pipes have at most \
         15 bytes each. Options follow an @, several separated by commas: vale0:a@slots=256,queues=2. The key of a \
         flag alone means 1. Names of capture files take no options.",
    );
    page.control("SH", ["PORTS OF RINGS"]);
    term(
        &mut page,
        "vale0:a",
        "port a of the learning switch vale0; both are created with the first program",
    );
    term(&mut page, "x{1, x}1", "the two ends of pipe 1 of x; frames pass between the two programs directly");
    page.control("SH", ["OPTIONS OF EVERY PORT"]);
    options(&mut page, &COMMON_OPTIONS);
    page.control("SH", ["OPTIONS OF PORTS OF SWITCHES"]);
    options(&mut page, &SWITCH_PORT_OPTIONS);
    page.control("SH", ["DEVICES"]);
    for kind in kinds() {
        page.control("SS", [kind.form]);
        let opener = match kind.access {
            OpenedBy::Daemon => "The daemon opens it.",
            OpenedBy::Program => {
                "Programs open it in themselves, or an administrator attaches it to a switch."
            }
        };
        page.text([roman(format!("{}. {opener}", kind.about))]);
        options(&mut page, kind.options);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("ringroad-attach"), roman("(1), "), bold("ringroad-kinds"), roman("(1), ")]);
    page.text([bold("ringroadd"), roman("(8)")]);
    format!("{}{}", page.to_roff(), super::examples_section(EXAMPLES))
}

fn section(page: &mut Roff, title: &str, text: &str) {
    page.control("SH", [title]);
    page.text([roman(text)]);
}

fn term(page: &mut Roff, term: &str, text: &str) {
    page.control("TP", []);
    page.text([bold(term)]);
    page.text([roman(text)]);
}

fn options(page: &mut Roff, options: &[&PortOption]) {
    for option in options {
        let administrators = if option.for_administrators { "; administrators only" } else { "" };
        let about = format!(
            "{}{administrators}. Values: {}. Default: {}.",
            option.help, option.value, option.default
        );
        term(page, &format!("{}=", option.key), &about);
    }
}
