//! Results for programs: one JSON value per line.

use ringroad::PortInfo;
use serde::Serialize;

use crate::failure::Failure;

/// Formats `value` as JSON in one line.
pub(crate) fn line<T: Serialize>(value: &T) -> Result<String, Failure> {
    serde_json::to_string(value)
        .map_err(|error| Failure::new(format!("making JSON of the result: {error}"), ""))
}

/// Line for an interval of a running command.
#[derive(Debug, Serialize)]
pub(crate) struct IntervalLine<T> {
    pub(crate) interval: T,
}

/// First line of a traffic command, when its ports are open.
#[derive(Debug, Serialize)]
pub(crate) struct Ready<'a> {
    ready: bool,
    ports: Vec<ReadyPort<'a>>,
}

#[derive(Debug, Serialize)]
struct ReadyPort<'a> {
    name: &'a str,
    driver: &'a str,
    mode: &'a str,
    switch_index: Option<u8>,
}

impl<'a> Ready<'a> {
    pub(crate) fn new(ports: &[&'a PortInfo]) -> Self {
        let ports = ports.iter().map(|port| ReadyPort {
            name: &port.name,
            driver: &port.driver,
            mode: &port.mode,
            switch_index: port.switch_index,
        });
        Self { ready: true, ports: ports.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_one_json_line() {
        let port = PortInfo {
            name: "vale0:a".into(),
            driver: "shm".into(),
            mode: "private".into(),
            max_frame_bytes: 16384,
            switch_index: Some(0),
        };
        assert_eq!(
            line(&Ready::new(&[&port])).unwrap(),
            r#"{"ready":true,"ports":[{"name":"vale0:a","driver":"shm","mode":"private","switch_index":0}]}"#
        );
    }
}
