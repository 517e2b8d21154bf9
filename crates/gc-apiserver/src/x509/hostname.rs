//! Host names in certificates.

use std::net::IpAddr;

use super::{Certificate, Refusal};

/// Maximum number of names that an error lists.
const MOST_SHOWN: usize = 100;

/// Checks that a certificate was issued for a host name or an address. Common names are ignored.
pub(crate) fn check_host(certificate: &Certificate, host: &str) -> Result<(), Refusal> {
    let unbracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let (dns_names, addresses) = certificate
        .names
        .as_ref()
        .map_or((&[][..], &[][..]), |names| (&names.dns_names[..], &names.ip_addresses[..]));
    if let Ok(address) = unbracketed.parse::<IpAddr>() {
        let canonical = address.to_canonical();
        if addresses.iter().any(|known| known.to_canonical() == canonical) {
            return Ok(());
        }
        let shown = addresses.iter().take(MOST_SHOWN).map(|known| known.to_canonical().to_string());
        let shown: Vec<String> = shown.collect();
        return Err(Refusal::Host(if shown.is_empty() {
            format!("cannot validate certificate for {unbracketed} because it doesn't contain any IP SANs")
        } else {
            format!("certificate is valid for {}, not {unbracketed}", shown.join(", "))
        }));
    }
    let wanted = host.to_ascii_lowercase();
    if dns_names.iter().any(|name| matches(&name.to_ascii_lowercase(), &wanted)) {
        return Ok(());
    }
    let common = certificate.subject.common_name.to_ascii_lowercase();
    if certificate.names.is_none() && matches_host(&common, &wanted) {
        let why = "certificate relies on legacy Common Name field, use SANs instead";
        return Err(Refusal::Host(why.to_owned()));
    }
    Err(Refusal::Host(if dns_names.is_empty() {
        format!("certificate is not valid for any names, but wanted to match {host}")
    } else {
        let shown = dns_names.iter().take(MOST_SHOWN).map(String::as_str).collect::<Vec<_>>();
        format!("certificate is valid for {}, not {host}", shown.join(", "))
    }))
}

/// Matches a name. Wildcards are supported in well-formed names; others are compared literally.
fn matches(pattern: &str, host: &str) -> bool {
    if is_valid(host.strip_suffix('.').unwrap_or(host), false) && is_valid(pattern, true) {
        return matches_host(pattern, host);
    }
    let is_something = |name: &str| !matches!(name, "" | ".");
    is_something(pattern) && is_something(host) && pattern == host
}

fn matches_host(pattern: &str, host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    if pattern.is_empty() || host.is_empty() || pattern.split('.').count() != host.split('.').count() {
        return false;
    }
    let mut labels = pattern.split('.').zip(host.split('.')).enumerate();
    labels.all(|(index, (pattern, label))| index == 0 && pattern == "*" || pattern == label)
}

fn is_valid(name: &str, is_pattern: bool) -> bool {
    if name.is_empty() || name == "*" {
        return false;
    }
    name.split('.').enumerate().all(|(index, label)| {
        if is_pattern && index == 0 && label == "*" {
            return true;
        }
        let plain = |(at, c): (usize, char)| c.is_ascii_alphanumeric() || c == '_' || c == '-' && at != 0;
        !label.is_empty() && label.char_indices().all(plain)
    })
}
