//! Access to the server: a request needs the token and one of the server's names, and must not come from another site's
//! page.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use rustix::rand::{GetRandomFlags, getrandom};
use subtle::ConstantTimeEq;

use crate::refusal::Refusal;
use crate::server::OtgServerError;

/// Random bytes of a generated token.
const RANDOM_BYTES: usize = 32;
/// Lengths of a token, characters: shorter tokens could be guessed.
const TOKEN_CHARS: std::ops::RangeInclusive<usize> = 32..=256;
/// Names that every machine has for itself.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The secret that a client shows with each request.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Omission of the secret, so that no log contains it.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl Token {
    /// Generates a token of 256 random bits.
    ///
    /// # Errors
    /// [`OtgServerError::Token`]: the kernel has no random numbers.
    pub fn random() -> Result<Self, OtgServerError> {
        let mut bytes = [0; RANDOM_BYTES];
        match getrandom(&mut bytes, GetRandomFlags::empty()) {
            Ok(RANDOM_BYTES) => Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())),
            Ok(_) => Err(OtgServerError::Token { reason: "too few random bytes".to_owned() }),
            Err(error) => Err(OtgServerError::Token { reason: error.to_string() }),
        }
    }

    /// Reads the token from a file that only its owner can read.
    ///
    /// # Errors
    /// [`OtgServerError::File`]: the file is unreadable, readable by other users, or contains no token.
    pub fn read(path: &Path) -> Result<Self, OtgServerError> {
        let unusable = |reason: String| OtgServerError::File { path: PathBuf::from(path), reason };
        let file = File::open(path).map_err(|error| unusable(error.to_string()))?;
        let status = file.metadata().map_err(|error| unusable(error.to_string()))?;
        if !status.is_file() {
            return Err(unusable("it is not a file; give a file with the token".to_owned()));
        }
        if status.mode() & 0o077 != 0 {
            return Err(unusable(
                "other users can read it, so its token is not secret; chmod 600 it".to_owned(),
            ));
        }
        if ![0, rustix::process::geteuid().as_raw()].contains(&status.uid()) {
            return Err(unusable(format!(
                "it belongs to user {}, who knows its token; give a file of your own",
                status.uid()
            )));
        }
        let mut text = String::new();
        let most = *TOKEN_CHARS.end() as u64 + 2;
        file.take(most).read_to_string(&mut text).map_err(|error| unusable(error.to_string()))?;
        let token = text.trim_end_matches(['\r', '\n']);
        // Characters that need no escapes in a URL.
        let fits = |char: char| char.is_ascii_alphanumeric() || "-._~".contains(char);
        if !TOKEN_CHARS.contains(&token.len()) || !token.chars().all(fits) {
            return Err(unusable(format!(
                "it contains no token, which is a line of {} to {} letters, digits and - . _ ~; make one with: \
                 openssl rand -hex 32",
                TOKEN_CHARS.start(),
                TOKEN_CHARS.end()
            )));
        }
        Ok(Self(token.to_owned()))
    }

    /// Returns the token's text, as a client sends it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Whether `shown` is the token. The time of the comparison does not reveal how many bytes are correct.
    fn is(&self, shown: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(shown).into()
    }
}

/// Checks of every request: host, origin, token.
#[derive(Debug)]
pub(crate) struct Gate {
    token: Option<Token>,
    /// Names of the server that requests can use; `None` for any.
    hosts: Option<Vec<String>>,
    scheme: &'static str,
}

impl Gate {
    /// Makes the gate of a server on a UNIX socket, which browsers cannot reach.
    pub(crate) fn at_path(token: Option<Token>) -> Self {
        Self { token, hosts: None, scheme: "http" }
    }

    /// Makes the gate of a server at `address`. `names` are further names of the server.
    pub(crate) fn at_address(
        token: Option<Token>,
        address: IpAddr,
        names: &[String],
        scheme: &'static str,
    ) -> Self {
        let mut hosts: Vec<String> = OWN_NAMES.iter().map(|name| (*name).to_owned()).collect();
        hosts.extend(names.iter().map(|name| normal(name)));
        if !address.is_unspecified() {
            hosts.push(address.to_string());
        }
        Self { token, hosts: Some(hosts), scheme }
    }

    /// Checks whether a request is allowed. It uses only the HTTP head: the body has not been read.
    ///
    /// # Errors
    /// The reply for the client.
    pub(crate) fn check(&self, head: &Parts) -> Result<(), Refusal> {
        let host = self.check_host(head)?;
        self.check_origin(&head.headers, &host)?;
        self.check_token(&head.headers)
    }

    /// Returns the requested host. A hostile site can point its own name to this machine: then the host is that name.
    fn check_host(&self, head: &Parts) -> Result<String, Refusal> {
        let refused = |host: &str| {
            Refusal::invalid(format!(
                "host \"{host}\": this server does not have that name; use localhost, or start it with --host-name"
            ))
            .with_status(StatusCode::MISDIRECTED_REQUEST)
        };
        let host = one(&head.headers, HOST).map_err(|()| refused("several"))?.ok_or_else(|| refused(""))?;
        let in_target = head.uri.authority().map(Authority::as_str);
        for asked in std::iter::once(host).chain(in_target) {
            let Some(hosts) = &self.hosts else { continue };
            let name = asked.parse::<Authority>().ok().map(|authority| normal(authority.host()));
            if asked.contains('@') || !name.is_some_and(|name| hosts.contains(&name)) {
                return Err(refused(&asked.chars().take(80).collect::<String>()));
            }
        }
        Ok(host.to_owned())
    }

    /// Refuses requests from a page of another site: the browser puts the site into the `Origin` header.
    fn check_origin(&self, headers: &HeaderMap, host: &str) -> Result<(), Refusal> {
        let own = format!("{}://{host}", self.scheme);
        match one(headers, ORIGIN) {
            Ok(None) => Ok(()),
            Ok(Some(origin)) if origin.eq_ignore_ascii_case(&own) => Ok(()),
            _ => Err(Refusal::invalid("pages of other sites may not use this server")
                .with_status(StatusCode::FORBIDDEN)),
        }
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(token) = &self.token else { return Ok(()) };
        let shown = one(headers, AUTHORIZATION).ok().flatten().and_then(shown);
        if shown.is_some_and(|shown| token.is(&shown)) {
            return Ok(());
        }
        Err(Refusal::invalid(
            "no token, or a wrong one: give the header \"Authorization: Bearer TOKEN\", or to snappi the location \
             https://otg:TOKEN@HOST:PORT; the server prints its token when it starts, or has it from --token-file",
        )
        .with_status(StatusCode::UNAUTHORIZED))
    }
}

/// Returns the value of a header that can occur only once.
fn one(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        _ => Err(()),
    }
}

/// Returns the token of an `Authorization` header: plain, or as the password that clients take from a URL, with any
/// user name.
fn shown(authorization: &str) -> Option<Vec<u8>> {
    let (scheme, value) = authorization.split_once(' ')?;
    let value = value.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(value.as_bytes().to_vec());
    }
    let pair = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(value).ok()).flatten()?;
    let colon = pair.iter().position(|byte| *byte == b':')?;
    pair.get(colon + 1..).map(<[u8]>::to_vec)
}

/// Returns a host's name in the form that is compared.
fn normal(host: &str) -> String {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().map_or_else(|_| bare.to_ascii_lowercase(), |address| address.to_string())
}

#[cfg(test)]
mod tests;
