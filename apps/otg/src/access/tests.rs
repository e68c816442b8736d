use std::os::unix::fs::PermissionsExt;

use hyper::Request;

use super::*;

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Returns the status of a request with these headers.
fn status(gate: &Gate, target: &str, headers: &[(&str, &str)]) -> u16 {
    let request =
        headers.iter().fold(Request::get(target), |request, (name, value)| request.header(*name, *value));
    gate.check(&request.body(()).unwrap().into_parts().0).map_or_else(|refusal| refusal.code, |()| 200)
}

#[test]
fn a_token_is_256_random_bits_and_not_in_debug_output() {
    let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
    assert_eq!(one.text().len(), 64);
    assert_ne!(one, other);
    let gate = Gate::at_path(Some(one.clone()));
    assert!(!format!("{one:?} {gate:?}").contains(one.text()));
}

#[test]
fn the_token_is_accepted_only_as_bearer_or_password() {
    let token = Token("0123456789abcdef0123456789abcdef".to_owned());
    let gate = Gate::at_address(Some(token.clone()), LOOPBACK, &[], "http");
    let ask = |authorization: &[&str]| {
        let mut headers = vec![("host", "localhost")];
        headers.extend(authorization.iter().map(|value| ("authorization", *value)));
        status(&gate, "/config", &headers)
    };
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    let text = token.text();
    for right in [format!("Bearer {text}"), format!("bearer  {text}"), basic(&format!("otg:{text}"))] {
        assert_eq!(ask(&[&right]), 200, "{right}");
    }
    for wrong in [
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        text.to_owned(),
        format!("Bearer {}", &text[1..]),
        format!("Bearer {text}0"),
        format!("Bearer {}", text.to_uppercase()),
        format!("Digest {text}"),
        basic(text),
        basic(&format!("{text}:")),
        format!("Basic otg:{text}"),
    ] {
        assert_eq!(ask(&[&wrong]), 401, "{wrong}");
    }
    let right = format!("Bearer {text}");
    assert_eq!(ask(&[]), 401);
    assert_eq!(ask(&[&right, &right]), 401);
}

#[test]
fn the_server_answers_only_to_its_own_names() {
    let gate = Gate::at_address(None, LOOPBACK, &["Lab.Example".to_owned()], "http");
    for host in
        ["localhost", "LOCALHOST:8443", "127.0.0.1:1", "[::1]:8443", "[0:0:0:0:0:0:0:1]", "lab.example"]
    {
        assert_eq!(status(&gate, "/config", &[("host", host)]), 200, "{host}");
    }
    for host in
        ["evil.example", "localhost.evil.example", "localhost@evil.example", "evil@localhost", "", "10.0.0.1"]
    {
        assert_eq!(status(&gate, "/config", &[("host", host)]), 421, "{host}");
    }
    assert_eq!(status(&gate, "/config", &[]), 421);
    assert_eq!(status(&gate, "/config", &[("host", "localhost"), ("host", "evil.example")]), 421);
    // A request line can contain the whole URL.
    assert_eq!(status(&gate, "http://evil.example/config", &[("host", "localhost")]), 421);
    assert_eq!(status(&gate, "http://localhost/config", &[("host", "localhost")]), 200);

    let everywhere = Gate::at_address(None, "0.0.0.0".parse().unwrap(), &[], "http");
    assert_eq!(status(&everywhere, "/config", &[("host", "0.0.0.0")]), 421);
    let elsewhere = Gate::at_address(None, "192.0.2.1".parse().unwrap(), &[], "http");
    assert_eq!(status(&elsewhere, "/config", &[("host", "192.0.2.1:8443")]), 200);
    assert_eq!(status(&Gate::at_path(None), "/config", &[("host", "whatever")]), 200);
}

#[test]
fn pages_of_other_sites_are_refused() {
    let gate = Gate::at_address(None, LOOPBACK, &[], "https");
    let ask = |origin: &str| status(&gate, "/config", &[("host", "localhost:8443"), ("origin", origin)]);
    assert_eq!(ask("https://localhost:8443"), 200);
    for origin in
        ["null", "http://localhost:8443", "https://localhost", "https://evil.example", "https://localhost:1"]
    {
        assert_eq!(ask(origin), 403, "{origin}");
    }
}

#[test]
fn a_token_file_must_be_private() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let write = |text: &str, mode| {
        // A user who is not root cannot write a file of mode 0400 again.
        drop(std::fs::remove_file(&path));
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Token::read(&path).map(|token| token.text().to_owned()).map_err(|error| error.to_string())
    };
    let text = "a".repeat(32);
    assert_eq!(write(&format!("{text}\n"), 0o600), Ok(text.clone()));
    assert_eq!(write(&text, 0o400), Ok(text.clone()));
    for (content, mode, words) in [
        (text.clone(), 0o640, "other users can read it"),
        (text.clone(), 0o604, "other users can read it"),
        ("a".repeat(31), 0o600, "it contains no token"),
        ("a".repeat(1 << 20), 0o600, "it contains no token"),
        (format!("{text} "), 0o600, "it contains no token"),
        (format!("{text}@"), 0o600, "it contains no token"),
        (String::new(), 0o600, "it contains no token"),
    ] {
        let error = write(&content, mode).unwrap_err();
        assert!(error.contains("/token: ") && error.contains(words), "{error}");
    }
    assert!(Token::read(folder.path()).unwrap_err().to_string().contains("it is not a file"));
}
