//! The server's certificate, generated at the start or read from files.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::server::OtgServerError;

/// A certificate chain and its key, for TLS.
#[derive(Debug)]
pub(crate) struct Certificate {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Certificate {
    /// Generates a self-signed certificate for `address`, `names` and the machine's own names.
    pub(crate) fn self_signed(address: IpAddr, names: &[String]) -> Result<Self, OtgServerError> {
        let mut names = [&["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()], names].concat();
        if !address.is_unspecified() && !address.is_loopback() {
            names.push(address.to_string());
        }
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|error| OtgServerError::Certificate { reason: error.to_string() })?;
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        Ok(Self { chain: vec![made.cert.der().clone()], key: key.into() })
    }

    /// Reads the chain and the key from two PEM files.
    pub(crate) fn read(chain: &Path, key: &Path) -> Result<Self, OtgServerError> {
        let unusable = |path: &Path, reason: String| OtgServerError::File {
            path: PathBuf::from(path),
            reason: format!("{reason}; give PEM files of a certificate and its key"),
        };
        let read = |path: &Path| fs::read(path).map_err(|error| unusable(path, error.to_string()));
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(chain)?).collect();
        let certificates = certificates.map_err(|error| unusable(chain, error.to_string()))?;
        if certificates.is_empty() {
            return Err(unusable(chain, "it contains no certificate in PEM".to_owned()));
        }
        let key_der = PrivateKeyDer::from_pem_slice(&read(key)?)
            .map_err(|error| unusable(key, format!("it contains no private key in PEM ({error})")))?;
        Ok(Self { chain: certificates, key: key_der })
    }

    /// Returns the server's TLS settings: versions 1.2 and 1.3, for HTTP/1.1.
    pub(crate) fn into_config(self) -> Result<Arc<ServerConfig>, OtgServerError> {
        let failed = |error: rustls::Error| OtgServerError::Certificate { reason: error.to_string() };
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(failed)?
                .with_no_client_auth()
                .with_single_cert(self.chain, self.key)
                .map_err(failed)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_and_given_certificates_are_usable() {
        let address = "192.0.2.1".parse().unwrap();
        Certificate::self_signed(address, &["lab.example".to_owned()]).unwrap().into_config().unwrap();

        let made = rcgen::generate_simple_self_signed(["generator.example".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (chain, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        fs::write(&chain, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        Certificate::read(&chain, &key).unwrap().into_config().unwrap();

        // Errors: the two files exchanged, and a key that belongs to another certificate.
        let error = Certificate::read(&key, &chain).unwrap_err().to_string();
        assert!(error.contains("key.pem") && error.contains("certificate"), "{error}");
        let other = rcgen::generate_simple_self_signed(["other.example".to_owned()]).unwrap();
        fs::write(&key, other.signing_key.serialize_pem()).unwrap();
        assert!(Certificate::read(&chain, &key).unwrap().into_config().is_err());
        let error = Certificate::read(&folder.path().join("none.pem"), &key).unwrap_err().to_string();
        assert!(error.contains("none.pem"), "{error}");
    }
}
