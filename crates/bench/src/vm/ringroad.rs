//! Ringroad: the daemon with vhost-user ports on learning switches, one for each pair of ports.

use ringroad::control::Connection;
use ringroad::control::message::{PortWish, Reply, Request};
use ringroad_netdev::Namespace;

use super::contestant::{Ground, GuestSwitch, RunningSwitch};
use crate::error::BenchError;
use crate::ours::{Programs, socket, start_daemon};

/// Ringroad's switch.
#[derive(Debug)]
pub(super) struct RingroadSwitch {
    pub(super) programs: Programs,
}

impl GuestSwitch for RingroadSwitch {
    fn name(&self) -> &'static str {
        "Ringroad"
    }

    fn about(&self) -> &'static str {
        "learning switch of vhost-user ports: source address learnt, destination looked up, 1 copy from port to port; sleeps when idle"
    }

    fn start(&self, ground: &Ground<'_>) -> Result<RunningSwitch, BenchError> {
        let daemon = start_daemon(
            &self.programs,
            &Namespace::Current,
            ground.folder,
            Some(ground.cores.switch),
            ground.stop,
        )?;
        let mut commands = vec![daemon.command];
        let failed =
            |command: &str, error: String| BenchError::SetUp { command: command.into(), message: error };
        let connect = || {
            let mut connection = Connection::connect(socket(ground.folder))?;
            connection.hello("ringroad bench")?;
            Ok::<_, ringroad::control::ControlError>(connection)
        };
        let mut connection =
            connect().map_err(|error| failed("connecting to the daemon", error.to_string()))?;
        let pairs = ground.topology.port_pairs().iter().enumerate();
        for (switch, port) in pairs.flat_map(|(switch, pair)| pair.map(|port| (switch, port))) {
            let name = format!("vale{switch}:{port}");
            let driver = format!("vhost-user:{}", ground.socket(port).display());
            let command = format!("ringroad attach {name} --driver {driver}");
            let request = Request::Attach {
                name,
                driver: Some(driver),
                for_program: false,
                host: false,
                take: false,
                wish: PortWish::default(),
            };
            match connection.request(&request) {
                Ok((Reply::Attached(_), _)) => {}
                Ok((reply, _)) => return Err(failed(&command, format!("{reply:?}"))),
                Err(error) => return Err(failed(&command, error.to_string())),
            }
            commands.push(command);
        }
        Ok(RunningSwitch {
            ports: ground.generator_ports(""),
            guest_devices: ground.guest_devices(""),
            namespace: Namespace::Current,
            process: Some(daemon.process),
            commands,
            _keep: vec![Box::new(connection)],
        })
    }
}
