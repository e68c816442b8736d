//! Opens ports and reports the results, as a program of any user.
//!
//! Usage: `netmap_user SOCKET PORT...`. A port is bound as netmap programs bind it. With `open:` before its name it is
//! opened as other programs open it. A line for each port reports `PORT: memory ID`, `PORT: open` or `PORT: refused
//! WHY`. A program that got all ports holds them until its standard input ends.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ringroad::control::message::{PortProperties, Reply, Request};
use ringroad::control::netmap::{NetmapReply, NetmapRequest, PortSizes};
use ringroad::control::{Connection, ControlError};
use ringroad_tests::netmap_register::register_all_rings;

fn bind(socket: &str, name: &str) -> (Connection, Result<String, String>) {
    let mut device = Connection::connect(socket).unwrap();
    device.hello("netmap_user").unwrap();
    let (Reply::NetmapDevice(badge), _) = device.request(&Request::NetmapOpen).unwrap() else { panic!() };
    let register = register_all_rings(name, PortSizes::default());
    let request = Request::Netmap { device: Some(badge), request: NetmapRequest::Register(register) };
    let mut requests = Connection::connect(socket).unwrap();
    requests.hello("netmap_user").unwrap();
    let answer = match requests.request(&request).unwrap().0 {
        Reply::Netmap(NetmapReply::Bound(bound)) => Ok(format!("memory {}", bound.mem_id)),
        Reply::Netmap(NetmapReply::Failed { errno, message }) => Err(format!("errno {errno}: {message}")),
        other => panic!("{other:?}"),
    };
    (device, answer)
}

fn open(socket: &str, name: &str) -> (Connection, Result<String, String>) {
    let mut connection = Connection::connect(socket).unwrap();
    connection.hello("netmap_user").unwrap();
    let answer =
        connection.request(&Request::Open { name: name.to_owned(), properties: PortProperties::default() });
    let printed = match answer {
        Ok((Reply::Opened(_), _)) => Ok("open".to_owned()),
        Err(ControlError::Refused(refusal)) => Err(format!("{:?}: {}", refusal.kind, refusal.message)),
        other => panic!("{other:?}"),
    };
    (connection, printed)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (socket, ports) = arguments.split_first().unwrap();
    let mut held = Vec::new();
    for port in ports {
        let (connection, answer) = match port.strip_prefix("open:") {
            Some(name) => open(socket, name),
            None => bind(socket, port),
        };
        match answer {
            Ok(printed) => println!("{port}: {printed}"),
            Err(why) => println!("{port}: refused {why}"),
        }
        held.push(connection);
    }
    println!("done");
    let _ = std::io::stdin().lines().last();
}
