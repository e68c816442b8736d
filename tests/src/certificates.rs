//! TLS certificates, which each test makes for itself.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
    date_time_ymd,
};

/// Files of a peer with a certificate, in PEM.
#[derive(Debug, Clone)]
pub struct Papers {
    /// File of the private key.
    pub key: PathBuf,
    /// File of the certificate.
    pub certificate: PathBuf,
    /// File with the certificate of the CA that this peer trusts.
    pub ca: PathBuf,
}

impl Papers {
    /// Returns the options for these files, as Ringroad and Open vSwitch's tools take them.
    #[must_use]
    pub fn options(&self) -> [String; 3] {
        let Self { key, certificate, ca } = self;
        [("private-key", key), ("certificate", certificate), ("ca-cert", ca)]
            .map(|(name, path)| format!("--{name}={}", path.display()))
    }
}

/// Defect of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oddity {
    /// No defect.
    None,
    /// The certificate has expired.
    Expired,
    /// The certificate is for a host of this name.
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
    /// Makes a CA, whose files are in `folder` and whose file names begin with `name`.
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

    /// File of the CA's own certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.file("ca")
    }

    fn file(&self, what: &str) -> PathBuf {
        self.folder.join(format!("{}-{what}.pem", self.name))
    }

    /// Makes a certificate for `name`, and the files of a peer that trusts this CA.
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
