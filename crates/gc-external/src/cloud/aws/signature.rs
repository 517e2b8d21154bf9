//! AWS Signature Version 4, in the `authorization` header.

use std::fmt::Write as _;

use ring::{digest, hmac};

use super::credentials::Credentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// Signed parts of a request.
pub(crate) struct Signing<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    /// Query in canonical form: sorted and escaped.
    pub(crate) query: &'a str,
    /// Headers: lower-case names with values, sorted by name.
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
    /// Time, such as `20150830T123600Z`.
    pub(crate) time: &'a str,
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    gc_types::hexadecimal(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

impl Signing<'_> {
    /// Returns the value of the `authorization` header.
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
        let signature = gc_types::hexadecimal(&mac(&key, &text));
        format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            credentials.access_key
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in AWS' documentation ("Create a signed request").
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
    }

    /// The examples in S3's documentation ("Signature Calculations for the Authorization Header").
    #[test]
    fn the_published_examples_of_s3_are_signed_as_published() {
        const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        const DATE: (&str, &str) = ("x-amz-date", "20130524T000000Z");
        const HOST: (&str, &str) = ("host", "examplebucket.s3.amazonaws.com");
        let credentials = Credentials {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
        };
        let body = b"Welcome to Amazon S3.";
        let digest = sha256(body);
        let (empty, full) = (("x-amz-content-sha256", EMPTY), ("x-amz-content-sha256", digest.as_str()));
        let put = [
            ("date", "Fri, 24 May 2013 00:00:00 GMT"),
            HOST,
            full,
            DATE,
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        let get = [HOST, ("range", "bytes=0-9"), empty, DATE];
        let plain = [HOST, empty, DATE];
        let cases: [(&str, &str, &str, &[(&str, &str)], &[u8], &str); 4] = [
            (
                "GET",
                "/test.txt",
                "",
                &get,
                b"",
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                "PUT",
                "/test%24file.text",
                "",
                &put,
                body,
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                "GET",
                "/",
                "lifecycle=",
                &plain,
                b"",
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                "GET",
                "/",
                "max-keys=2&prefix=J",
                &plain,
                b"",
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ];
        for (method, path, query, headers, body, expected) in cases {
            let (region, service, time) = ("us-east-1", "s3", DATE.1);
            let signing = Signing { method, path, query, headers, body, region, service, time };
            let authorization = signing.authorization(&credentials);
            assert_eq!(authorization.rsplit("Signature=").next(), Some(expected), "{method} {path}?{query}");
        }
    }
}
