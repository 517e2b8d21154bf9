//! The subject of a certificate, and the elements of DER that it consists of.

/// Subject of a client certificate: common name and organizations, which are the user and its groups.
///
/// The certificate has been verified by the TLS stack; this only walks to the subject. Anything unexpected
/// ends the walk with what was found, so that a strange certificate is a user without a name (refused later).
pub(crate) fn certificate_subject(der: &[u8]) -> (String, Vec<String>) {
    subject(der).unwrap_or_default()
}

fn subject(der: &[u8]) -> Option<(String, Vec<String>)> {
    const SET: u8 = 0x31;
    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
    let mut names = CertificateFields::read(der)?.subject;
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

/// The parts of a certificate, each the content of its element.
pub(super) struct CertificateFields<'a> {
    /// What is signed, as a whole element.
    pub(super) signed: &'a [u8],
    /// Whether it names a version: those that do not are of version 1.
    pub(super) has_version: bool,
    /// The issuer's name.
    pub(super) issuer: &'a [u8],
    /// Two times.
    pub(super) validity: &'a [u8],
    /// The subject's name.
    pub(super) subject: &'a [u8],
    /// The key with its algorithm.
    pub(super) public_key: &'a [u8],
    /// What follows the key: nothing in version 1.
    pub(super) rest: &'a [u8],
    /// The algorithm of the signature.
    pub(super) algorithm: &'a [u8],
    /// The signature, a bit string.
    pub(super) signature: &'a [u8],
}

impl<'a> CertificateFields<'a> {
    pub(super) fn read(der: &'a [u8]) -> Option<Self> {
        const SEQUENCE: u8 = 0x30;
        const EXPLICIT_VERSION: u8 = 0xa0;
        let sequence = |bytes: &'a [u8]| element(bytes).filter(|(tag, _, _)| *tag == SEQUENCE);
        let (_, certificate, _) = sequence(der)?;
        let (_, mut contents, rest) = sequence(certificate)?;
        let signed = certificate.get(..certificate.len() - rest.len())?;
        let (_, algorithm, rest) = sequence(rest)?;
        let (_, signature, _) = element(rest)?;
        let has_version = contents.first() == Some(&EXPLICIT_VERSION);
        // The version, if there is one, and the serial number.
        for _ in 0..=usize::from(has_version) {
            contents = element(contents)?.2;
        }
        let (_, _, contents) = sequence(contents)?;
        let (_, issuer, contents) = sequence(contents)?;
        let (_, validity, contents) = sequence(contents)?;
        let (_, subject, contents) = sequence(contents)?;
        let (_, public_key, rest) = sequence(contents)?;
        Some(Self { signed, has_version, issuer, validity, subject, public_key, rest, algorithm, signature })
    }
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
