//! AWS Signature Version 4 for the Query API: POST requests with a form as body.

use std::fmt::Write as _;

use ring::{digest, hmac};

use super::credentials::Credentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The parts of a request that are signed.
pub(crate) struct Signing<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// In canonical form already: sorted, and escaped.
    pub(crate) query: &'a str,
    /// Lower-case names with values, sorted by name.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
    /// `20150830T123600Z`
    pub(crate) time: &'a str,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

impl Signing<'_> {
    /// The value of the header `authorization`.
    pub(crate) fn authorization(&self, credentials: &Credentials) -> String {
        let date = self.time.get(..8).unwrap_or_default();
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let mut canonical = format!("{}\n{}\n{}\n", self.method, self.path, self.query);
        for (name, value) in self.headers {
            let _ = writeln!(canonical, "{name}:{}", value.trim());
        }
        let _ = write!(canonical, "\n{names}\n{}", sha256(self.body));
        let scope = format!("{date}/{}/{}/aws4_request", self.region, self.service);
        let text = format!("{ALGORITHM}\n{}\n{scope}\n{}", self.time, sha256(canonical.as_bytes()));
        let mut key = mac(format!("AWS4{}", credentials.secret_key).as_bytes(), date);
        for part in [self.region, self.service, "aws4_request"] {
            key = mac(&key, part);
        }
        let signature = hex(&mac(&key, &text));
        format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            credentials.access_key
        )
    }
}

/// `application/x-www-form-urlencoded` as AWS requires it: unreserved characters stay, all others are escaped.
pub(crate) fn escape(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of AWS' documentation ("Create a signed request").
    #[test]
    fn the_published_example_is_signed_as_published() {
        let credentials = Credentials {
            access_key: "AKIDEXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let signing = Signing {
            method: "GET",
            path: "/",
            query: "Action=ListUsers&Version=2010-05-08",
            headers: &[
                ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
                ("host", "iam.amazonaws.com"),
                ("x-amz-date", "20150830T123600Z"),
            ],
            body: b"",
            region: "us-east-1",
            service: "iam",
            time: "20150830T123600Z",
        };
        assert_eq!(
            signing.authorization(&credentials),
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date, \
             Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        );
        assert_eq!(escape("a b/c~é=1"), "a%20b%2Fc~%C3%A9%3D1");
    }
}
