//! A program that is installed in the daemon's place and does not take over.
//!
//! It sends the bytes of the file `PROGRAM.answer`, if there is one, to the daemon that started it. Then it waits until
//! the daemon, or a test, ends it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Read;

fn main() {
    let own = std::env::args().next().unwrap();
    let mut answer: &[u8] = &std::fs::read(format!("{own}.answer")).unwrap_or_default();
    while !answer.is_empty() {
        answer = &answer[rustix::io::write(rustix::stdio::stdin(), answer).unwrap()..];
    }
    // The end of the input is the end of the daemon.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
