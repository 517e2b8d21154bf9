//! Client certificates of version 1, which openssl makes unless it is given extensions. Go takes them from clients, and webpki
//! refuses them; they have no extensions, so that all that counts is who signed them, and when they are valid.

use rustls::pki_types::{CertificateDer, UnixTime};

use super::certificates::{BIT_STRING, CONTEXT_0, INTEGER, SEQUENCE, encode, parse_time, verify};
use super::subject::{CertificateFields, element};

/// The certificate as one of version 3, if it is of version 1: so that webpki reads its key. Its own signature does not fit any
/// more, so it is good for nothing else.
pub(super) fn readable(certificate: &CertificateDer<'_>) -> Option<CertificateDer<'static>> {
    let fields = CertificateFields::read(certificate).filter(is_of_version_one)?;
    let (_, contents, _) = element(fields.signed)?;
    let version = encode(CONTEXT_0, &[&encode(INTEGER, &[&[2]])]);
    let made = encode(
        SEQUENCE,
        &[
            &encode(SEQUENCE, &[&version, contents]),
            &encode(SEQUENCE, &[fields.algorithm]),
            &encode(BIT_STRING, &[fields.signature]),
        ],
    );
    Some(made.into())
}

/// Whether a certificate is of version 1, valid, and signed by one of the authorities itself.
pub(super) fn is_issued(
    certificate: &CertificateDer<'_>,
    authorities: &[CertificateDer<'static>],
    now: UnixTime,
) -> bool {
    let Some(fields) = CertificateFields::read(certificate).filter(is_of_version_one) else { return false };
    let Ok(now) = i64::try_from(now.as_secs()) else { return false };
    is_valid(&fields, now)
        && authorities.iter().filter_map(|authority| CertificateFields::read(authority)).any(|authority| {
            authority.subject == fields.issuer
                && is_valid(&authority, now)
                && verify(authority.public_key, fields.algorithm, fields.signed, fields.signature).is_ok()
        })
}

fn is_of_version_one(fields: &CertificateFields<'_>) -> bool {
    !fields.has_version && fields.rest.is_empty()
}

fn is_valid(fields: &CertificateFields<'_>, now: i64) -> bool {
    let time = |bytes| element(bytes).and_then(|(_, text, rest)| Some((parse_time(text)?.as_second(), rest)));
    let Some((begin, rest)) = time(fields.validity) else { return false };
    time(rest).is_some_and(|(end, _)| begin <= now && now <= end)
}
