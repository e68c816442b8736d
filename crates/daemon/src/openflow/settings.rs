//! Checked OpenFlow settings, and the files that they name.

use std::io::Read;
use std::path::Path;

use ringroad_control::guarded_file::{self, FilePurpose};
use ringroad_control::message::{FailMode as WantedFailMode, OpenFlow};
use ringroad_drivers::catalogue::port_name::{PortBase, PortName};
use ringroad_openflow_agent::address::{ControllerAddress, ListenAddress, Transport};
use ringroad_openflow_agent::agent::FailMode;
use ringroad_openflow_agent::tls::{Tls, TlsError};

/// Maximum size of a file of certificates, bytes.
const MAX_PEM_BYTES: u64 = 1 << 20;

/// Checked settings.
#[derive(Debug)]
pub(crate) struct CheckedSettings {
    pub(super) controllers: Vec<ControllerAddress>,
    pub(super) listen: Vec<ListenAddress>,
    pub(super) datapath_id: u64,
}

/// Parses settings.
///
/// # Errors
/// Text that names the invalid value, and valid values.
pub(crate) fn parse(settings: &OpenFlow) -> Result<CheckedSettings, String> {
    let OpenFlow { switch, controllers, listen, datapath_id, .. } = settings;
    let base = format!("{switch}:x").parse::<PortName>().map(|name| name.base);
    if !matches!(&base, Ok(PortBase::Switch { switch: parsed, .. }) if parsed == switch) {
        return Err(format!("{switch:?} is not a name of a switch, such as vale0"));
    }
    let controllers = controllers
        .iter()
        .map(|address| address.parse())
        .collect::<Result<Vec<ControllerAddress>, String>>()?;
    let listen =
        listen.iter().map(|address| address.parse()).collect::<Result<Vec<ListenAddress>, String>>()?;
    let has_tls = controllers.iter().any(|controller| controller.transport == Transport::Tls)
        || listen.iter().any(|address| address.transport == Transport::Tls);
    let paths = [&settings.private_key, &settings.certificate, &settings.ca_cert];
    match (has_tls, paths.iter().filter(|path| path.is_some()).count()) {
        (false, 0) | (true, 3) => {}
        (true, _) => {
            return Err(
                "TLS (ssl:) needs files: a private key, its certificate, and the CA's certificate".to_owned()
            );
        }
        // Files that a user names must be of use.
        (false, _) => {
            return Err("keys and certificates are for TLS, and no address begins with ssl:".to_owned());
        }
    }
    if let Some(path) = paths.into_iter().flatten().find(|path| !Path::new(path).is_absolute()) {
        return Err(format!("{path:?}: write the whole path, from / on"));
    }
    let datapath_id = match datapath_id {
        None => named_id(switch),
        Some(text) => {
            let digits = text.strip_prefix("0x").unwrap_or(text);
            let is_hexadecimal = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            let id = is_hexadecimal.then(|| u64::from_str_radix(digits, 16).ok()).flatten();
            id.filter(|&id| id != 0).ok_or_else(|| {
                format!("datapath id {text:?}: write 1 to 16 hexadecimal digits that are not all 0")
            })?
        }
    };
    Ok(CheckedSettings { controllers, listen, datapath_id })
}

/// Reads the files that settings name, if they name any.
///
/// # Errors
/// Text that names the file that cannot be used, with the reason.
pub(super) fn read_tls(settings: &OpenFlow) -> Result<Option<Tls>, String> {
    let OpenFlow {
        private_key: Some(private_key),
        certificate: Some(certificate),
        ca_cert: Some(ca_cert),
        ..
    } = settings
    else {
        return Ok(None);
    };
    let tls = Tls::new(&read(private_key)?, &read(certificate)?, &read(ca_cert)?);
    tls.map(Some).map_err(|error| {
        let path = match &error {
            TlsError::PrivateKey(_) => private_key,
            TlsError::Certificate(_) => certificate,
            TlsError::CaCert(_) => ca_cert,
        };
        format!("{path}: {error}")
    })
}

fn read(path: &str) -> Result<Vec<u8>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{path}: {error}");
    // Links that the administrator made are followed; a pipe would block all clients.
    let file = Path::new(path).canonicalize().map_err(|error| failed(&error))?;
    let file = guarded_file::open(&file, FilePurpose::Read).map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    let len = file.take(MAX_PEM_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    match len as u64 > MAX_PEM_BYTES {
        true => Err(failed(&"it is too long for certificates")),
        false => Ok(bytes),
    }
}

/// Derives a number from a name, the same each time (FNV-1a), in the half of the numbers that is for local use.
fn named_id(name: &str) -> u64 {
    let hash = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    (hash & 0xffff_ffff_ffff) | 0x0200_0000_0000
}

/// Mode as the agent has it.
pub(super) fn fail_mode(wanted: WantedFailMode) -> FailMode {
    match wanted {
        WantedFailMode::Secure => FailMode::Secure,
        WantedFailMode::Standalone => FailMode::Standalone,
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    fn settings(switch: &str) -> OpenFlow {
        OpenFlow {
            switch: switch.to_owned(),
            controllers: vec!["tcp:127.0.0.1:6653".to_owned()],
            listen: vec!["127.0.0.1:6654".to_owned()],
            fail_mode: WantedFailMode::Secure,
            datapath_id: Some("abc".to_owned()),
            private_key: None,
            certificate: None,
            ca_cert: None,
        }
    }

    fn with_tls() -> OpenFlow {
        OpenFlow {
            listen: vec!["ssl:127.0.0.1:6654".to_owned()],
            private_key: Some("/nonexistent/key".to_owned()),
            certificate: Some("/nonexistent/certificate".to_owned()),
            ca_cert: Some("/nonexistent/ca".to_owned()),
            ..settings("vale0")
        }
    }

    #[test]
    fn settings_are_checked() {
        assert_eq!(parse(&settings("vale0")).map(|parsed| parsed.datapath_id), Ok(0xabc));
        assert!(parse(&with_tls()).is_ok());
        let wrong = [
            settings("eth0"),
            settings("vale0:a"),
            settings(""),
            OpenFlow { controllers: vec!["127.0.0.1".to_owned()], ..settings("vale0") },
            OpenFlow { listen: vec!["6654".to_owned()], ..settings("vale0") },
            OpenFlow { listen: Vec::new(), ..with_tls() },
            OpenFlow { ca_cert: None, ..with_tls() },
            OpenFlow { private_key: Some("key".to_owned()), ..with_tls() },
            OpenFlow { controllers: vec!["ssl:127.0.0.1".to_owned()], ..settings("vale0") },
            OpenFlow { datapath_id: Some("0".to_owned()), ..settings("vale0") },
            OpenFlow { datapath_id: Some("+1".to_owned()), ..settings("vale0") },
            OpenFlow { datapath_id: Some("10000000000000000".to_owned()), ..settings("vale0") },
        ];
        for settings in wrong {
            assert!(parse(&settings).is_err(), "{settings:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        assert!(read_tls(&settings("vale0")).unwrap().is_none());
        assert!(read_tls(&with_tls()).unwrap_err().starts_with("/nonexistent/key: "));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key").to_str().unwrap().to_owned();
        let refusal = || read(&path).unwrap_err();
        std::fs::write(&path, vec![b'x'; MAX_PEM_BYTES as usize + 1]).unwrap();
        assert!(refusal().contains("too long"), "{}", refusal());
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(refusal().contains("not a regular file"), "{}", refusal());
    }

    #[test]
    fn a_switch_has_a_number_of_its_own_without_one_in_the_settings() {
        assert_eq!(named_id("vale0"), named_id("vale0"));
        assert_ne!(named_id("vale0"), named_id("vale1"));
        assert_eq!(named_id("vale0") >> 40 & 3, 2, "locally administered, no group");
    }
}
