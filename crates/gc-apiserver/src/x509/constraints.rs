//! Names that an authority may sign for.

use std::net::IpAddr;

use gc_registry::x509::{AlternativeNames, MalformedDocument};
use x509_cert::ext::pkix::NameConstraints;
use x509_cert::ext::pkix::constraints::name::GeneralSubtree;
use x509_cert::ext::pkix::name::GeneralName;

/// Permitted or excluded names of an authority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Constraints {
    permitted: Subtrees,
    excluded: Subtrees,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Subtrees {
    dns: Vec<String>,
    emails: Vec<String>,
    uris: Vec<String>,
    /// Addresses with their masks.
    addresses: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Subtrees {
    /// Reads subtrees; the flag is `false` if some are of an unknown kind.
    fn read(given: Option<&Vec<GeneralSubtree>>) -> Result<(Self, bool), MalformedDocument> {
        let (mut read, mut all_known) = (Self::default(), true);
        for subtree in given.into_iter().flatten() {
            match &subtree.base {
                GeneralName::DnsName(name) => read.dns.push(name.as_str().to_owned()),
                GeneralName::Rfc822Name(name) => read.emails.push(name.as_str().to_owned()),
                GeneralName::UniformResourceIdentifier(name) => read.uris.push(name.as_str().to_owned()),
                GeneralName::IpAddress(range) => {
                    let bytes = range.as_bytes();
                    if !matches!(bytes.len(), 8 | 32) {
                        return Err(MalformedDocument(
                            "a constraint of addresses has neither 8 nor 32 bytes",
                        ));
                    }
                    let (address, mask) = bytes.split_at(bytes.len() / 2);
                    read.addresses.push((address.to_vec(), mask.to_vec()));
                }
                _ => all_known = false,
            }
        }
        Ok((read, all_known))
    }
}

impl Constraints {
    /// Reads constraints; the flag is `false` if some are of an unknown kind.
    pub(super) fn read(given: &NameConstraints) -> Result<(Self, bool), MalformedDocument> {
        let (permitted, some) = Subtrees::read(given.permitted_subtrees.as_ref())?;
        let (excluded, others) = Subtrees::read(given.excluded_subtrees.as_ref())?;
        Ok((Self { permitted, excluded }, some && others))
    }

    /// Checks that the authority may sign for all names. An error contains the first one that is not allowed.
    pub(super) fn check(&self, names: &AlternativeNames) -> Result<(), String> {
        let (permitted, excluded) = (&self.permitted, &self.excluded);
        for name in &names.email_addresses {
            let matches = |constraint: &String| matches_email(name, constraint);
            check("email address", name, (&permitted.emails, &excluded.emails), matches)?;
        }
        for name in &names.dns_names {
            let matches = |constraint: &String| matches_domain(name, constraint);
            check("DNS name", name, (&permitted.dns, &excluded.dns), matches)?;
        }
        for name in &names.uris {
            let matches = |constraint: &String| matches_uri(name, constraint);
            check("URI", name, (&permitted.uris, &excluded.uris), matches)?;
        }
        for address in &names.ip_addresses {
            let matches = |range: &(Vec<u8>, Vec<u8>)| Ok(matches_address(*address, range));
            let text = address.to_string();
            check("IP address", &text, (&permitted.addresses, &excluded.addresses), matches)?;
        }
        Ok(())
    }
}

fn check<C>(
    kind: &str,
    name: &str,
    (permitted, excluded): (&[C], &[C]),
    matches: impl Fn(&C) -> Result<bool, String>,
) -> Result<(), String> {
    for constraint in excluded {
        if matches(constraint)? {
            return Err(format!("{kind} {name:?} is excluded by a constraint"));
        }
    }
    let mut is_permitted = permitted.is_empty();
    for constraint in permitted {
        is_permitted = is_permitted || matches(constraint)?;
    }
    if is_permitted { Ok(()) } else { Err(format!("{kind} {name:?} is not permitted by any constraint")) }
}

/// Returns the labels of a domain from its end; `None` if the text is not a domain.
fn labels(domain: &str) -> Option<Vec<&str>> {
    if domain.is_empty() {
        return Some(Vec::new());
    }
    let labels: Vec<&str> = domain.rsplit('.').collect();
    let is_plain =
        |label: &&str| !label.is_empty() && label.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
    labels.iter().all(is_plain).then_some(labels)
}

fn matches_domain(domain: &str, constraint: &str) -> Result<bool, String> {
    if constraint.is_empty() {
        return Ok(true);
    }
    let found = labels(domain).ok_or_else(|| format!("cannot parse domain {domain:?}"))?;
    let (constraint, needs_more) =
        constraint.strip_prefix('.').map_or((constraint, false), |rest| (rest, true));
    let wanted = labels(constraint).ok_or_else(|| format!("cannot parse domain {constraint:?}"))?;
    if found.len() < wanted.len() || needs_more && found.len() == wanted.len() {
        return Ok(false);
    }
    Ok(wanted.iter().zip(&found).all(|(wanted, found)| wanted.eq_ignore_ascii_case(found)))
}

fn matches_email(address: &str, constraint: &str) -> Result<bool, String> {
    let (local, domain) =
        address.rsplit_once('@').ok_or_else(|| format!("cannot parse rfc822Name {address:?}"))?;
    match constraint.rsplit_once('@') {
        Some((wanted, at)) => Ok(local == wanted && domain.eq_ignore_ascii_case(at)),
        None => matches_domain(domain, constraint),
    }
}

fn matches_uri(uri: &str, constraint: &str) -> Result<bool, String> {
    let rest = uri.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let host = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(host, _)| host);
    if host.is_empty() {
        return Err(format!("URI with empty host ({uri:?}) cannot be matched against constraints"));
    }
    if host.starts_with('[') || host.parse::<IpAddr>().is_ok() {
        return Err(format!("URI with IP ({uri:?}) cannot be matched against constraints"));
    }
    matches_domain(host, constraint)
}

fn matches_address(address: IpAddr, (network, mask): &(Vec<u8>, Vec<u8>)) -> bool {
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    bytes.len() == network.len()
        && bytes.iter().zip(network).zip(mask).all(|((byte, network), mask)| byte & mask == network & mask)
}
