//! End of a certificate's validity, read by the parser of the crate `x509-cert`, like everywhere that decisions about certificates
//! are made.

use gc_types::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_cert::Certificate;
use x509_cert::der::{Decode as _, Reader as _, SliceReader};

/// Returns `notAfter` of the first certificate in PEM; `None` if it cannot be read. As upstream, any further data in the same block
/// must be certificates too. An API server stores no other blocks.
pub(crate) fn not_after(pem: &[u8]) -> Option<Timestamp> {
    let block = CertificateDer::from_pem_slice(pem).ok()?;
    let mut reader = SliceReader::new(&block).ok()?;
    let first = Certificate::decode(&mut reader).ok()?;
    while !reader.is_finished() {
        Certificate::decode(&mut reader).ok()?;
    }
    let end = first.tbs_certificate().validity().not_after.to_unix_duration();
    let end = i64::try_from(end.as_millis()).ok()?;
    // The last second of 9999, which means that a certificate has no end, is beyond the range of a timestamp.
    jiff::Timestamp::from_millisecond(end).ok().map(|_| Timestamp(end))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use base64::Engine as _;
    use proptest::prelude::*;

    const SEQUENCE: u8 = 0x30;
    const EXPLICIT_VERSION: u8 = 0xa0;
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;

    fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        match u8::try_from(contents.len()) {
            Ok(short) if short < 0x80 => bytes.push(short),
            Ok(long) => bytes.extend([0x81, long]),
            Err(_) => {
                bytes.push(0x82);
                bytes.extend(u16::try_from(contents.len()).unwrap_or(u16::MAX).to_be_bytes());
            }
        }
        bytes.extend(contents);
        bytes
    }

    /// Creates a minimal certificate that ends at this time.
    pub(crate) fn certificate(kind: u8, not_after: &str, versioned: bool) -> Vec<u8> {
        let validity = [der(UTC_TIME, b"200101000000Z"), der(kind, not_after.as_bytes())].concat();
        // A certificate contains its version unless it is the first one. The algorithm is Ed25519.
        let version = if versioned { der(EXPLICIT_VERSION, &der(2, &[2])) } else { Vec::new() };
        let algorithm = der(SEQUENCE, &der(6, &[0x2b, 0x65, 0x70]));
        let key = der(SEQUENCE, &[algorithm.clone(), der(3, &[0; 33])].concat());
        let names = der(SEQUENCE, &[]);
        let parts =
            [version, der(2, &[1]), algorithm.clone(), names.clone(), der(SEQUENCE, &validity), names, key];
        let signed = der(SEQUENCE, &parts.concat());
        let whole = der(SEQUENCE, &[signed, algorithm, der(3, &[0; 65])].concat());
        let text = base64::engine::general_purpose::STANDARD.encode(whole);
        let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n")).into_bytes()
    }

    #[test]
    fn the_end_is_found() {
        for (pem, expected) in [
            (certificate(UTC_TIME, "270115080000Z", true), Some(1_800_000_000_000)),
            (certificate(GENERALIZED_TIME, "20270115080000Z", false), Some(1_800_000_000_000)),
            (certificate(UTC_TIME, "700101000000Z", true), Some(0)),
            // The parser rejects times before 1970, so nothing is decided by them.
            (certificate(UTC_TIME, "500101000000Z", true), None),
            (certificate(GENERALIZED_TIME, "99991231235959Z", true), None),
            (certificate(UTC_TIME, "271315080000Z", true), None),
            (certificate(UTC_TIME, "+70115080000Z", true), None),
            (certificate(GENERALIZED_TIME, "-0270115080000Z", true), None),
            (certificate(4, "270115080000Z", true), None),
            (b"not PEM".to_vec(), None),
            (b"-----BEGIN X-----\nMAA=\n-----END X-----\n".to_vec(), None),
        ] {
            assert_eq!(not_after(&pem).map(|time| time.0), expected, "{}", String::from_utf8_lossy(&pem));
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_read_ends_in_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let text = base64::engine::general_purpose::STANDARD.encode(&bytes);
            let pem = format!("-----BEGIN A-----{text}-----END A-----");
            let _ = not_after(pem.as_bytes());
            let _ = not_after(&bytes);
        }
    }
}
