//! Messages that others captured: os-ken's test data, of real switches and controllers and of its own library.
//!
//! `make unit` fetches them and names their folder in RINGROAD_OPENFLOW_PACKETS.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ringroad_openflow::{ErrorCode, Reply, Request};

/// A message that is read and written again.
fn again(bytes: &[u8]) -> Result<Vec<u8>, ErrorCode> {
    let mut out = Vec::new();
    match Request::decode(bytes) {
        Ok((xid, request)) => request.encode(xid, &mut out).unwrap(),
        Err(ErrorCode::REQUEST_BAD_TYPE) => {
            let (xid, reply) = Reply::decode(bytes)?;
            reply.encode(xid, &mut out).unwrap();
        }
        Err(error) => return Err(error),
    }
    Ok(out)
}

#[test]
#[ignore = "make unit fetches the messages"]
fn captured_messages_are_written_as_they_were_read() {
    let folder = std::env::var("RINGROAD_OPENFLOW_PACKETS").expect("make unit names the messages' folder");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut refused = BTreeMap::new();
    let mut different = Vec::new();
    for file in &files {
        let bytes = std::fs::read(file).unwrap();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        match again(&bytes) {
            Ok(written) if written == bytes => {}
            Ok(written) => {
                assert_eq!(again(&written).as_ref(), Ok(&written), "{name}");
                different.push(name);
            }
            Err(error) => {
                refused.insert(name, error.name().unwrap());
            }
        }
    }
    assert_eq!(files.len(), 105);
    eprintln!("{different:#?} {refused:#?}");
    assert!(false);
}
