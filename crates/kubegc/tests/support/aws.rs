//! A check of signed requests like that of AWS servers (Signature Version 4), and addresses of this machine for it.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)] // a broken assumption should stop the test; not every test uses all

use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener};

use sha2::{Digest as _, Sha256};

/// A request as it has arrived.
pub struct Arrived<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub header: &'a dyn Fn(&str) -> Option<String>,
    pub body: &'a [u8],
}

fn sha256(bytes: &[u8]) -> String {
    gc_types::hexadecimal(&Sha256::digest(bytes))
}

/// Returns an HMAC with SHA-256; keys are shorter than a block here.
fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let pad = |byte: u8| -> Vec<u8> {
        let mut block = [byte; 64];
        block.iter_mut().zip(key).for_each(|(left, right)| *left ^= right);
        block.to_vec()
    };
    let inner = Sha256::digest([&pad(0x36)[..], text].concat());
    Sha256::digest([&pad(0x5c)[..], &inner].concat()).to_vec()
}

/// Reports whether the request is signed with this secret key, including `host` as it was sent.
pub fn is_signed(secret: &str, request: &Arrived<'_>) -> bool {
    let Some(authorization) = (request.header)("authorization") else { return false };
    let part = |name: &str| {
        let (_, rest) = authorization.split_once(name)?;
        rest.split(',').next().map(|value| value.trim().to_owned())
    };
    let (Some(credential), Some(names), Some(signature)) =
        (part("Credential="), part("SignedHeaders="), part("Signature="))
    else {
        return false;
    };
    let (_, scope) = credential.split_once('/').unwrap();
    let mut canonical = format!("{}\n{}\n{}\n", request.method, request.path, request.query);
    for name in names.split(';') {
        // Writing to a String cannot fail.
        let _ = writeln!(canonical, "{name}:{}", (request.header)(name).unwrap_or_default().trim());
    }
    let _ = write!(canonical, "\n{names}\n{}", sha256(request.body));
    let time = (request.header)("x-amz-date").unwrap_or_default();
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let key =
        scope.split('/').fold(format!("AWS4{secret}").into_bytes(), |key, part| mac(&key, part.as_bytes()));
    names.split(';').any(|name| name == "host")
        && gc_types::hexadecimal(&mac(&key, text.as_bytes())) == signature
}

/// Listens on the default port of a scheme, on an address of this machine that no other test uses. Returns `None`, with a clear
/// message, if the test lacks the permission, or if another process listens on all addresses.
pub fn at_port_of_scheme(port: u16) -> Option<TcpListener> {
    let [high, low] = u16::try_from(std::process::id() % 60_000).unwrap().to_be_bytes();
    let listener = TcpListener::bind((Ipv4Addr::new(127, 100, high, low.max(1)), port));
    match listener {
        Ok(listener) => Some(listener),
        Err(error) => {
            let is_refused = error.kind() == std::io::ErrorKind::PermissionDenied;
            assert!(!is_refused || std::env::var("CI").as_deref() != Ok("true"), "this test needs root");
            eprintln!("SKIPPED: cannot listen at port {port}: {error}");
            None
        }
    }
}
