//! Validation of the issued certificate, and of the times that the status repeats from it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::{SignedDuration, Timestamp};

use crate::kinds::pem::PemBlocks;
use crate::kinds::prelude::*;
use crate::kinds::x509::{CertificateFacts, CertificateRequest};

const CHAIN_MAX_BYTES: usize = 100 * 1024;
const LIFETIME_SECONDS_MIN: i64 = 60 * 60;
/// Maximum distance from now of the start of a certificate's validity.
const SKEW: SignedDuration = SignedDuration::from_mins(5);
/// Minimum time between the start of renewals and either end of a certificate.
const MARGIN: SignedDuration = SignedDuration::from_mins(10);

/// Checks the status that issues a certificate. An error is reported by itself, as upstream does, except for errors in the names of
/// the first certificate.
pub(super) fn check(status: &Field<'_, '_>, spec: &Field<'_, '_>, report: &mut Report) {
    let chain = status.get("certificateChain");
    if chain.text().len() > CHAIN_MAX_BYTES {
        report.too_long(&chain, CHAIN_MAX_BYTES);
        return;
    }
    let mut blocks = PemBlocks::of(chain.text());
    let leaf = match blocks.next() {
        None => Err("issued certificate chain must contain at least one certificate"),
        Some(block) if block.label != "CERTIFICATE" => {
            Err("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
        }
        Some(block) => CertificateFacts::from_der(&block.der)
            .map_err(|_| "leaf certificate does not parse as valid X.509"),
    };
    let leaf = match leaf {
        Ok(leaf) => leaf,
        Err(why) => return report.invalid(&chain, why),
    };
    let before = report.errors.len();
    names(&leaf, &chain, report);
    let request = spec.get("stubPKCS10Request");
    let der = BASE64.decode(request.text()).unwrap_or_default();
    match CertificateRequest::from_der(&der) {
        Err(_) => return report.invalid_without_value(&request, "must be a valid PKCS#10 CSR"),
        Ok(request) if request.public_key != leaf.public_key => {
            return report.invalid(&chain, "leaf certificate was not issued to the requested public key");
        }
        Ok(_) => {}
    }
    let times = required_times(status, report);
    let Some(times) = times.filter(|_| report.errors.len() == before) else { return };
    if let Err((field, shown, why)) = validity(&leaf, &times, spec, report.now) {
        return report.invalid_shown(&status.get(field), &shown, &why);
    }
    for block in blocks {
        if block.label != "CERTIFICATE" {
            // The typo is upstream's.
            let why = "issued certificate chain must consist entirely of CERTFICATE PEM blocks";
            return report.invalid(&chain, why);
        }
        if CertificateFacts::from_der(&block.der).is_err() {
            return report.invalid(&chain, "intermediate certificate does not parse as valid X.509");
        }
    }
}

/// Checks the names in the first certificate of a chain.
fn names(leaf: &CertificateFacts, chain: &Field<'_, '_>, report: &mut Report) {
    for name in &leaf.names.dns_names {
        let mut refuse = |why: &str| report.invalid_text(chain, name, why);
        if name.is_empty() {
            refuse("leaf certificate should not contain empty DNSName");
        }
        if name.contains("..") {
            refuse("leaf certificate's DNSName should not contain '..'");
        }
        if name.starts_with('.') || name.ends_with('.') {
            refuse("leaf certificate's DNSName should not start or end with '.'");
        }
    }
    for address in &leaf.names.email_addresses {
        if !is_email_address(address) {
            report.invalid_text(chain, address, "leaf certificate should not contain invalid EmailAddress");
        }
    }
}

/// Reports whether a text is an email address, by itself or in angle brackets after a name.
fn is_email_address(text: &str) -> bool {
    let text = text.trim();
    let address = match text.strip_suffix('>').map(|text| text.rsplit_once('<')) {
        Some(Some((_, address))) => address,
        Some(None) => return false,
        None => text,
    };
    let is_atom = |text: &str| {
        let is_taken = |letter: char| {
            letter.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(letter) || !letter.is_ascii()
        };
        !text.is_empty() && text.chars().all(is_taken)
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_quoted = local.len() > 1 && local.starts_with('"') && local.ends_with('"');
    let is_literal = domain.starts_with('[') && domain.ends_with(']');
    (is_quoted || local.split('.').all(is_atom)) && (is_literal || domain.split('.').all(is_atom))
}

/// Times in a status that issues a certificate.
struct Times {
    not_before: Timestamp,
    begin_refresh_at: Timestamp,
    not_after: Timestamp,
}

/// Returns the times if all are present; reports missing ones.
fn required_times(status: &Field<'_, '_>, report: &mut Report) -> Option<Times> {
    let mut time = |name: &str, why: &str| {
        let field = status.get(name);
        let time = field.text().parse().ok();
        if time.is_none() {
            report.required(&field, why);
        }
        time
    };
    const CONSISTENT: &str = "must be present and consistent with the issued certificate";
    let not_before = time("notBefore", CONSISTENT);
    let not_after = time("notAfter", CONSISTENT);
    let begin_refresh_at =
        time("beginRefreshAt", "must be present and in the range [notbefore+10min, notafter-10min]");
    Some(Times { not_before: not_before?, begin_refresh_at: begin_refresh_at?, not_after: not_after? })
}

/// Checks times against the certificate and the request. The error contains the field of the status, the value and the reason.
fn validity(
    leaf: &CertificateFacts,
    times: &Times,
    spec: &Field<'_, '_>,
    now: Option<Timestamp>,
) -> Result<(), (&'static str, Value, String)> {
    let refuse = |field: &'static str, time: Timestamp, why: &str| {
        Err((field, Value::from(time.to_string()), why.to_owned()))
    };
    if times.not_before.as_second() != leaf.not_before {
        let why = "must be set to the NotBefore time encoded in the leaf certificate";
        return refuse("notBefore", times.not_before, why);
    }
    if now.is_some_and(|now| now.duration_since(times.not_before).abs() >= SKEW) {
        let why = "must be set to within 5 minutes of kube-apiserver's current time";
        return refuse("notBefore", times.not_before, why);
    }
    if times.not_after.as_second() != leaf.not_after {
        let why = "must be set to the NotAfter time encoded in the leaf certificate";
        return refuse("notAfter", times.not_after, why);
    }
    let lifetime = leaf.not_after.saturating_sub(leaf.not_before);
    // Durations are shown in nanoseconds.
    let shown = || Value::from(lifetime.saturating_mul(1_000_000_000));
    if lifetime < LIFETIME_SECONDS_MIN {
        return Err(("certificateChain", shown(), "leaf certificate lifetime must be >= 1 hour".to_owned()));
    }
    let most = spec.number_of("maxExpirationSeconds");
    if lifetime > most {
        let why = format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})");
        return Err(("certificateChain", shown(), why));
    }
    if times.begin_refresh_at.duration_since(times.not_before) < MARGIN {
        let why = "must be at least 10 minutes after status.notBefore";
        return refuse("beginRefreshAt", times.begin_refresh_at, why);
    }
    if times.not_after.duration_since(times.begin_refresh_at) < MARGIN {
        let why = "must be at least 10 minutes before status.notAfter";
        return refuse("beginRefreshAt", times.begin_refresh_at, why);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_email_are_distinguished_from_other_texts() {
        for good in ["a@b", "a.b+c@example.com", "Jane <jane@example.com>", "\"a b\"@c", "a@[127.0.0.1]"] {
            assert!(is_email_address(good), "{good}");
        }
        for bad in ["", "a", "@b", "a@", "a b@c", "a@b c", "a@b..c", ".a@b", "a@b>", "<a@b"] {
            assert!(!is_email_address(bad), "{bad}");
        }
    }
}
