use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd};

use super::*;

struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "CA of the tests");
        Self { pem: params.self_signed(&key).unwrap().pem(), issuer: Issuer::new(params, key) }
    }

    /// Makes a key and a certificate, both in PEM.
    fn sign(&self, change: impl FnOnce(&mut CertificateParams)) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        change(&mut params);
        (key.serialize_pem(), params.signed_by(&key, &self.issuer).unwrap().pem())
    }

    /// Makes a peer with a certificate of this CA. The peer trusts certificates of `believed`.
    fn party(&self, believed: &Ca, change: impl FnOnce(&mut CertificateParams)) -> Tls {
        let (key, certificate) = self.sign(change);
        Tls::new(key.as_bytes(), certificate.as_bytes(), believed.pem.as_bytes()).unwrap()
    }
}

/// Carries bytes between the two until both accept the connection, or returns the reason of a rejection.
fn shake_hands(mut client: Connection, mut server: Connection) -> Result<(), String> {
    while client.is_handshaking() || server.is_handshaking() {
        for there in [true, false] {
            let (from, to) = if there { (&mut client, &mut server) } else { (&mut server, &mut client) };
            let mut bytes = Vec::new();
            while from.wants_write() {
                from.write_tls(&mut bytes).unwrap();
            }
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                to.read_tls(&mut rest).unwrap();
                to.process_new_packets().map_err(|error| problem(&error))?;
            }
        }
    }
    Ok(())
}

fn names(wanted: &[SanType]) -> impl FnOnce(&mut CertificateParams) {
    move |params| params.subject_alt_names = wanted.to_vec()
}

fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

#[test]
fn a_controller_is_trusted_if_the_ca_signed_its_certificate_for_its_host_or_for_none() {
    let ca = Ca::new();
    let switch = ca.party(&ca, names(&[]));
    let meets = |host: &str, controllers: &[SanType]| {
        let controller = ca.party(&ca, names(controllers));
        shake_hands(switch.dial(host).unwrap(), controller.accept().unwrap())
    };
    let address = SanType::IpAddress("127.0.0.1".parse().unwrap());
    assert_eq!(meets("127.0.0.1", std::slice::from_ref(&address)), Ok(()));
    assert_eq!(meets("lab.example", &[dns("lab.example")]), Ok(()));
    assert_eq!(meets("lab.example", &[]), Ok(()));
    assert_eq!(meets("lab.example", &[dns("sc id:7fb1a0f4-3d39")]), Ok(()), "as ovs-pki labels them");
    for other in [
        vec![dns("lab.example")],
        vec![dns("*.example")],
        vec![address],
        vec![SanType::URI("urn:x".try_into().unwrap())],
    ] {
        let refused = meets("other.test", &other).unwrap_err();
        assert!(refused.contains("not valid for name"), "{other:?}: {refused}");
    }
}

#[test]
fn unknown_and_expired_certificates_are_refused_by_either_side() {
    let (ca, other) = (Ca::new(), Ca::new());
    let own = ca.party(&ca, names(&[]));
    let by_another = "not signed by a CA of the switch's settings";
    let expired = |params: &mut CertificateParams| {
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
    };
    let early = |params: &mut CertificateParams| params.not_before = date_time_ymd(4000, 1, 1);
    for (peer, part) in [
        (other.party(&ca, names(&[])), by_another),
        (ca.party(&ca, expired), "has expired"),
        (ca.party(&ca, early), "not valid yet"),
    ] {
        let dialed = shake_hands(own.dial("a.test").unwrap(), peer.accept().unwrap());
        assert!(dialed.as_ref().is_err_and(|refused| refused.contains(part)), "{part}: {dialed:?}");
        let accepted = shake_hands(peer.dial("a.test").unwrap(), own.accept().unwrap());
        assert!(accepted.as_ref().is_err_and(|refused| refused.contains(part)), "{part}: {accepted:?}");
    }
}

#[test]
fn a_part_that_cannot_be_used_is_named() {
    let ca = Ca::new();
    let (key, certificate) = ca.sign(names(&[]));
    let new = |key: &str, certificate: &str, ca: &str| {
        Tls::new(key.as_bytes(), certificate.as_bytes(), ca.as_bytes()).unwrap_err()
    };
    assert!(matches!(new(&certificate, &certificate, &ca.pem), TlsError::PrivateKey(_)));
    assert!(matches!(new(&key, &key, &ca.pem), TlsError::Certificate(_)));
    assert!(matches!(new(&key, &certificate, ""), TlsError::CaCert(_)));
    let garbled = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(new(&key, garbled, &ca.pem), TlsError::Certificate(_)));
    assert!(matches!(new(&key, &certificate, garbled), TlsError::CaCert(_)));
    let (other_key, _) = ca.sign(names(&[]));
    let mismatch = new(&other_key, &certificate, &ca.pem);
    assert_eq!(mismatch, TlsError::PrivateKey("it is not the certificate's key".to_owned()));
}
