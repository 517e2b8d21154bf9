//! The subject of a certificate, and the elements of DER that it consists of.

/// Subject of a client certificate: common name and organizations, which are the user and its groups.
///
/// The certificate has been verified by the TLS stack; this only walks to the subject. Anything unexpected
/// ends the walk with what was found, so that a strange certificate is a user without a name (refused later).
pub(crate) fn certificate_subject(der: &[u8]) -> (String, Vec<String>) {
    subject(der).unwrap_or_default()
}

fn subject(der: &[u8]) -> Option<(String, Vec<String>)> {
    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;
    const EXPLICIT_VERSION: u8 = 0xa0;
    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
    let (_, certificate, _) = element(der)?;
    let (_, mut rest, _) = element(certificate)?;
    if rest.first() == Some(&EXPLICIT_VERSION) {
        rest = element(rest)?.2;
    }
    // serialNumber, signature, issuer, validity; the subject is next.
    for _ in 0..4 {
        rest = element(rest)?.2;
    }
    let (tag, mut names, _) = element(rest)?;
    if tag != SEQUENCE {
        return None;
    }
    let (mut user, mut groups) = (String::new(), Vec::new());
    while !names.is_empty() {
        let (tag, mut set, after) = element(names)?;
        names = after;
        if tag != SET {
            return None;
        }
        while !set.is_empty() {
            let (_, pair, after) = element(set)?;
            set = after;
            let (_, oid, value) = element(pair)?;
            let (_, text, _) = element(value)?;
            let text = std::str::from_utf8(text).ok()?.to_owned();
            match oid {
                COMMON_NAME => user = text,
                ORGANIZATION => groups.push(text),
                _ => {}
            }
        }
    }
    Some((user, groups))
}

/// One DER element: tag, content, and what follows. A length in more bytes than it needs is refused, so that one document has
/// one meaning.
pub(super) fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        if count == 0 || count > 4 || rest.len() < count {
            return None;
        }
        let (digits, rest) = rest.split_at(count);
        if digits[0] == 0 || (count == 1 && digits[0] < 0x80) {
            return None;
        }
        (digits.iter().fold(0_usize, |sum, digit| sum << 8 | usize::from(*digit)), rest)
    };
    (rest.len() >= length).then(|| (tag, &rest[..length], &rest[length..]))
}
