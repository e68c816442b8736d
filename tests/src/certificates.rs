//! Certificates for TLS, made by each test for itself.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
    date_time_ymd,
};

/// Files of a peer with a certificate, in PEM.
#[derive(Debug, Clone)]
pub struct Papers {
    /// The private key.
    pub key: PathBuf,
    /// The certificate.
    pub certificate: PathBuf,
    /// The certificate of the CA whose certificates this peer trusts.
    pub ca: PathBuf,
}

impl Papers {
    /// As options of Ringroad and of Open vSwitch's tools.
    #[must_use]
    pub fn options(&self) -> [String; 3] {
        let Self { key, certificate, ca } = self;
        [("private-key", key), ("certificate", certificate), ("ca-cert", ca)]
            .map(|(name, path)| format!("--{name}={}", path.display()))
    }
}

/// What is odd about a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oddity {
    /// Nothing.
    None,
    /// Its time is over.
    Expired,
    /// It is for a host of this name.
    For(&'static str),
}

/// A certificate authority.
#[derive(Debug)]
pub struct CertificateAuthority {
    folder: PathBuf,
    name: String,
    issuer: Issuer<'static, KeyPair>,
}

impl CertificateAuthority {
    /// A new one, whose files are in `folder` and begin with `name`.
    ///
    /// # Panics
    /// If the files cannot be written.
    #[must_use]
    pub fn new(folder: &Path, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, format!("CA {name}"));
        let certificate = params.self_signed(&key).unwrap().pem();
        let made =
            Self { folder: folder.to_owned(), name: name.to_owned(), issuer: Issuer::new(params, key) };
        std::fs::write(made.certificate(), certificate).unwrap();
        made
    }

    /// The file of its own certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.file("ca")
    }

    fn file(&self, what: &str) -> PathBuf {
        self.folder.join(format!("{}-{what}.pem", self.name))
    }

    /// A certificate for `name`, and files for a peer that trusts those of the same CA.
    ///
    /// # Panics
    /// If the files cannot be written.
    #[must_use]
    pub fn papers(&self, name: &str, oddity: Oddity) -> Papers {
        let signing_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        match oddity {
            Oddity::None => {}
            Oddity::Expired => {
                (params.not_before, params.not_after) =
                    (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
            }
            Oddity::For(host) => params.subject_alt_names = vec![SanType::DnsName(host.try_into().unwrap())],
        }
        let [key, certificate] = ["key", "certificate"].map(|what| self.file(&format!("{name}-{what}")));
        std::fs::write(&key, signing_key.serialize_pem()).unwrap();
        std::fs::write(&certificate, params.signed_by(&signing_key, &self.issuer).unwrap().pem()).unwrap();
        Papers { key, certificate, ca: self.certificate() }
    }
}
