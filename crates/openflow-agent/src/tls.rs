//! TLS: the switch's certificate, and the certificates that the switch trusts.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error,
    RootCertStore, ServerConfig, ServerConnection, SignatureScheme,
};

const MAX_PROBLEM_LETTERS: usize = 300;

/// Error: a PEM file that cannot be used, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The private key cannot be used.
    #[error("{0}")]
    PrivateKey(String),
    /// The switch's certificate cannot be used.
    #[error("{0}")]
    Certificate(String),
    /// The certificates of the trusted CAs cannot be used.
    #[error("{0}")]
    CaCert(String),
}

/// TLS of a switch: versions 1.2 and 1.3, with certificates from both sides.
#[derive(Debug, Clone)]
pub struct Tls {
    to_controllers: Arc<ClientConfig>,
    from_tools: Arc<ServerConfig>,
}

impl Tls {
    /// Reads three PEM files: the switch's private key; its certificate with the intermediate ones; the certificates of
    /// the CAs that sign those of controllers and tools.
    ///
    /// # Errors
    /// The part that cannot be used, and the reason. No error shows any of the key.
    pub fn new(private_key: &[u8], certificate: &[u8], ca_cert: &[u8]) -> Result<Self, TlsError> {
        let key = PrivateKeyDer::from_pem_slice(private_key)
            .map_err(|error| TlsError::PrivateKey(format!("it holds no private key in PEM ({error})")))?;
        let chain = certificates(certificate).map_err(TlsError::Certificate)?;
        let mut roots = RootCertStore::empty();
        for root in certificates(ca_cert).map_err(TlsError::CaCert)? {
            roots.add(root).map_err(|error| TlsError::CaCert(error.to_string()))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let unusable = |error: Error| match error {
            Error::InconsistentKeys(_) => TlsError::PrivateKey("it is not the certificate's key".to_owned()),
            Error::InvalidCertificate(_) => TlsError::Certificate(error.to_string()),
            error => TlsError::PrivateKey(error.to_string()),
        };
        let controllers = ControllerVerifier { roots: Arc::clone(&roots), provider: Arc::clone(&provider) };
        let mut to_controllers = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(controllers))
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(unusable)?;
        // Resumption is disabled, so that each connection verifies the certificates again.
        to_controllers.resumption = Resumption::disabled();
        let tools = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        let tools = tools.map_err(|error| TlsError::CaCert(error.to_string()))?;
        let mut from_tools = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_client_cert_verifier(tools)
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        from_tools.session_storage = Arc::new(NoServerSessionStorage {});
        from_tools.send_tls13_tickets = 0;
        Ok(Self { to_controllers: Arc::new(to_controllers), from_tools: Arc::new(from_tools) })
    }

    /// Makes the switch's end of a connection to a controller on `host`.
    ///
    /// # Errors
    /// The reason, such as a name that no certificate can have.
    pub(crate) fn dial(&self, host: &str) -> Result<Connection, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let connection = ClientConnection::new(Arc::clone(&self.to_controllers), name);
        connection.map(Connection::Client).map_err(|error| problem(&error))
    }

    /// Makes the switch's end of a connection from a tool.
    ///
    /// # Errors
    /// The reason why TLS failed to begin.
    pub(crate) fn accept(&self) -> Result<Connection, String> {
        let connection = ServerConnection::new(Arc::clone(&self.from_tools));
        connection.map(Connection::Server).map_err(|error| problem(&error))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let read = read.map_err(|error| error.to_string())?;
    match read.is_empty() {
        true => Err("it holds no certificate in PEM".to_owned()),
        false => Ok(read),
    }
}

/// Trusts a controller whose certificate the CA has signed. If the certificate names hosts, the controller's has to be
/// one of them. Certificates of `ovs-pki` name none: they have a label with spaces instead of a host.
#[derive(Debug)]
struct ControllerVerifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ControllerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        match verify_server_name(&certificate, server_name) {
            Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext {
                presented, ..
            })) if presented.iter().all(|name| is_label(name)) => {}
            verified => verified?,
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether a certificate's name, as rustls prints it, cannot be a host name. An unknown form counts as a host name.
fn is_label(name: &str) -> bool {
    let name = name.strip_prefix("DnsName(\"").and_then(|rest| rest.strip_suffix("\")"));
    name.is_some_and(|name| ServerName::try_from(name.strip_prefix("*.").unwrap_or(name)).is_err())
}

/// Describes the peer's error in one line for users.
pub(crate) fn problem(error: &Error) -> String {
    use CertificateError::{BadSignature, ExpiredContext, NotValidYetContext, UnknownIssuer};
    let what = match error {
        Error::InvalidMessage(_) => format!("it does not speak TLS ({error})"),
        Error::NoCertificatesPresented => "it shows no certificate".to_owned(),
        Error::InvalidCertificate(UnknownIssuer | BadSignature) => {
            "its certificate is not signed by a CA of the switch's settings".to_owned()
        }
        Error::InvalidCertificate(ExpiredContext { .. }) => "its certificate has expired".to_owned(),
        Error::InvalidCertificate(NotValidYetContext { .. }) => "its certificate is not valid yet".to_owned(),
        Error::InvalidCertificate(error) => format!("its certificate: {error}"),
        Error::AlertReceived(alert) => format!("it refuses the TLS handshake: {alert:?}"),
        error => format!("TLS: {error}"),
    };
    // Names in a certificate come from the peer, so they are sanitized.
    what.chars().filter(|letter| !letter.is_control()).take(MAX_PROBLEM_LETTERS).collect()
}

#[cfg(test)]
mod tests;
