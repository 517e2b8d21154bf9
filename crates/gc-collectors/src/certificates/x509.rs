//! A minimal X.509 parser that finds when a certificate ends.

use base64::Engine as _;
use gc_types::Timestamp;

const SEQUENCE: u8 = 0x30;
const EXPLICIT_VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// `notAfter` of the first certificate in the first PEM block, whatever its label; `None` if it cannot be read.
pub(crate) fn not_after(pem: &[u8]) -> Option<Timestamp> {
    let certificate = first_block(std::str::from_utf8(pem).ok()?)?;
    let (certificate, _) = element(&certificate, Some(SEQUENCE))?;
    let (mut fields, _) = element(certificate, Some(SEQUENCE))?;
    if fields.first() == Some(&EXPLICIT_VERSION) {
        fields = element(fields, None)?.1;
    }
    // serialNumber, signature, issuer
    for _ in 0..3 {
        fields = element(fields, None)?.1;
    }
    let (validity, _) = element(fields, Some(SEQUENCE))?;
    let (_, after) = element(validity, None)?;
    let kind = *after.first()?;
    let (text, _) = element(after, None)?;
    time(kind, std::str::from_utf8(text).ok()?)
}

fn first_block(text: &str) -> Option<Vec<u8>> {
    let (_, rest) = text.split_once("-----BEGIN ")?;
    let (_, rest) = rest.split_once("-----")?;
    let (body, _) = rest.split_once("-----END ")?;
    let body: String = body.split_whitespace().collect();
    base64::engine::general_purpose::STANDARD.decode(body).ok()
}

/// The contents of the first DER element, if it has the requested tag, and the bytes after it.
fn element(bytes: &[u8], tag: Option<u8>) -> Option<(&[u8], &[u8])> {
    let (&found, rest) = bytes.split_first()?;
    if tag.is_some_and(|tag| tag != found) {
        return None;
    }
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let count = usize::from(first & 0x7f);
        if count == 0 || count > 4 {
            return None;
        }
        let (digits, after) = rest.split_at_checked(count)?;
        length = digits.iter().fold(0, |sum, &digit| sum << 8 | usize::from(digit));
        rest = after;
    }
    rest.split_at_checked(length)
}

fn time(kind: u8, text: &str) -> Option<Timestamp> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let (year, rest) = match kind {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year: i16 = year.parse().ok()?;
            // RFC 5280, 4.1.2.5.1
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    if rest.len() != 10 {
        return None;
    }
    let two = |at: usize| rest[at..at + 2].parse::<i8>().ok();
    let moment = jiff::civil::DateTime::new(year, two(0)?, two(2)?, two(4)?, two(6)?, two(8)?, 0).ok()?;
    let moment = moment.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(Timestamp(moment.timestamp().as_millisecond()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        match u8::try_from(contents.len()) {
            Ok(short) if short < 0x80 => bytes.push(short),
            _ => {
                bytes.push(0x82);
                bytes.extend(u16::try_from(contents.len()).unwrap_or(u16::MAX).to_be_bytes());
            }
        }
        bytes.extend(contents);
        bytes
    }

    /// A minimal certificate that ends then.
    pub(crate) fn certificate(kind: u8, not_after: &str, versioned: bool) -> Vec<u8> {
        let validity = [der(UTC_TIME, b"200101000000Z"), der(kind, not_after.as_bytes())].concat();
        let version = if versioned { der(EXPLICIT_VERSION, &der(2, &[2])) } else { Vec::new() };
        let parts = [
            version,
            der(2, &[1]),
            der(SEQUENCE, &[]),
            der(SEQUENCE, &[0; 200]),
            der(SEQUENCE, &validity),
            der(SEQUENCE, &[]),
        ];
        let whole = der(SEQUENCE, &der(SEQUENCE, &parts.concat()));
        let text = base64::engine::general_purpose::STANDARD.encode(whole);
        let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n")).into_bytes()
    }

    #[test]
    fn the_end_is_found() {
        for (pem, expected) in [
            (certificate(UTC_TIME, "270115080000Z", true), Some(1_800_000_000_000)),
            (certificate(GENERALIZED_TIME, "20270115080000Z", false), Some(1_800_000_000_000)),
            (certificate(UTC_TIME, "500101000000Z", true), Some(-631_152_000_000)),
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
