//! Names, ports, addresses and paths, with upstream's messages.

use std::net::{IpAddr, Ipv4Addr};

use crate::kinds::prelude::*;

pub(crate) use crate::metadata::names::{
    dns_label, dns_label_1035, dns_subdomain, label_value, path_segment, qualified_name,
};

pub(crate) const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
pub(crate) const NOT_A_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

/// Returns `must be between FROM and TO, inclusive`.
pub(crate) fn range_error(from: i64, to: i64) -> String {
    format!("must be between {from} and {to}, inclusive")
}

pub(crate) fn label(field: &Field<'_, '_>, report: &mut Report) {
    report.each(field, dns_label(field.text()));
}

pub(crate) fn subdomain(field: &Field<'_, '_>, report: &mut Report) {
    report.each(field, dns_subdomain(field.text()));
}

pub(crate) fn qualified(field: &Field<'_, '_>, report: &mut Report) {
    report.each(field, qualified_name(field.text()));
}

/// Validates a subdomain that may contain underscores.
pub(crate) fn subdomain_with_underscores(field: &Field<'_, '_>, text: &str, report: &mut Report) {
    const WHY: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' \
        or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
        is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
    if text.len() > 253 {
        report.invalid_text(field, text, "must be no more than 253 characters");
    }
    let outer = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let fits = text.split('.').all(|part| {
        let bytes = part.strip_prefix('_').unwrap_or(part).as_bytes();
        bytes.first().is_some_and(|b| outer(*b))
            && bytes.last().is_some_and(|b| outer(*b))
            && bytes.iter().all(|b| outer(*b) || matches!(b, b'-' | b'_'))
    });
    if !fits {
        report.invalid_text(field, text, WHY);
    }
}

/// Returns the errors of a subdomain whose first label may be `*`.
pub(crate) fn wildcard_subdomain(text: &str) -> Vec<String> {
    let rest = text.strip_prefix("*.");
    let mut problems = Vec::new();
    if text.len() > 253 {
        problems.push("must be no more than 253 characters".into());
    }
    if rest.is_none_or(|rest| !dns_subdomain(rest).is_empty()) {
        problems.push(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist \
             of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. \
             '*.example.com', regex used for validation is \
             '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .into(),
        );
    }
    problems
}

/// Validates a fully qualified domain name.
pub(crate) fn fully_qualified(field: &Field<'_, '_>, report: &mut Report) {
    let text = field.text();
    if text.is_empty() {
        report.required(field, "");
        return;
    }
    let text = text.strip_suffix('.').unwrap_or(text);
    let problems = dns_subdomain(text);
    if !problems.is_empty() {
        report.each(field, problems);
        return;
    }
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() < 3 {
        report.invalid(field, "should be a domain with at least three segments separated by dots");
        return;
    }
    for part in parts {
        report.each_of(field, part, dns_label(part));
    }
}

/// Validates a domain with at least two segments and a path, such as `example.com/thing`.
pub(crate) fn domain_prefixed_path(field: &Field<'_, '_>, report: &mut Report) {
    let text = field.text();
    if text.is_empty() {
        report.required(field, "");
        return;
    }
    let Some((domain, path)) =
        text.split_once('/').filter(|(domain, path)| !domain.is_empty() && !path.is_empty())
    else {
        report.invalid(field, "must be a domain-prefixed path (such as \"acme.io/foo\")");
        return;
    };
    report.each_of(field, domain, dns_subdomain(domain));
    let is_path = path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b));
    if !is_path {
        report.invalid_text(
            field,
            path,
            "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
        );
    }
}

/// Returns the errors of a container port's name.
pub(crate) fn port_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 15 {
        problems.push("must be no more than 15 characters".into());
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)".into());
    }
    if text.contains("--") {
        problems.push("must not contain consecutive hyphens".into());
    }
    if text.starts_with('-') || text.ends_with('-') {
        problems.push("must not begin or end with a hyphen".into());
    }
    problems
}

/// Validates a port number; an absent one is 0.
pub(crate) fn port_number(field: &Field<'_, '_>, report: &mut Report) {
    if !(1..=65_535).contains(&field.number()) {
        report.invalid_number(field, PORT_RANGE);
    }
}

/// Validates a port number or name; an absent one is 0.
pub(crate) fn port_number_or_name(field: &Field<'_, '_>, report: &mut Report) {
    if field.value().is_string() {
        report.each(field, port_name(field.text()));
    } else {
        port_number(field, report);
    }
}

/// Parses an IP address like Go's lenient parser: IPv4 numbers may have leading zeros.
pub(crate) fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok();
    }
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 10 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *octet = part.parse().ok()?;
    }
    parts.next().is_none().then_some(IpAddr::V4(Ipv4Addr::from(octets)))
}

/// Parses an address range like Go's lenient parser.
pub(crate) fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address = parse_ip(address)?;
    if length.is_empty() || length.len() > 3 || !length.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let length = length.parse::<u8>().ok()?;
    (length <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, length))
}

const LEADING_ZEROS: &str = "must not have leading 0s in IP or prefix length";

/// Reports whether an address is an IPv4-mapped IPv6 address, which programs interpret differently.
fn is_mapped(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

/// Reports whether `address` is in the range that begins at `first` and fixes `length` bits.
pub(crate) fn contains(first: IpAddr, length: u8, address: IpAddr) -> bool {
    match (first, address) {
        (IpAddr::V4(first), IpAddr::V4(address)) => {
            let shift = 32 - u32::from(length.min(32));
            u64::from(u32::from(first)) >> shift == u64::from(u32::from(address)) >> shift
        }
        (IpAddr::V6(first), IpAddr::V6(address)) => {
            let shift = 128 - u32::from(length.min(128));
            shift == 128 || u128::from(first) >> shift == u128::from(address) >> shift
        }
        _ => false,
    }
}

pub(crate) fn ip(field: &Field<'_, '_>, report: &mut Report) {
    ip_text(field, field.text(), report);
}

pub(crate) fn ip_text(field: &Field<'_, '_>, text: &str, report: &mut Report) {
    let problem = match parse_ip(text) {
        None => NOT_AN_IP,
        Some(ip) if is_mapped(ip) => "must not be an IPv4-mapped IPv6 address",
        Some(IpAddr::V4(ip)) if ip.to_string() != text => "must not have leading 0s",
        Some(_) => return,
    };
    report.invalid_text(field, text, problem);
}

pub(crate) fn cidr_text(field: &Field<'_, '_>, text: &str, report: &mut Report) {
    let problem = match parse_cidr(text) {
        None => NOT_A_CIDR,
        Some((ip, length)) if ip.is_ipv4() && format!("{ip}/{length}") != text => LEADING_ZEROS,
        Some((_, length)) if !text.ends_with(&format!("/{length}")) => LEADING_ZEROS,
        Some((ip, _)) if is_mapped(ip) => "must not have an IPv4-mapped IPv6 address",
        Some((ip, length)) if masked(ip, length) != ip => "must not have bits set beyond the prefix length",
        Some(_) => return,
    };
    report.invalid_text(field, text, problem);
}

/// Returns the first address of the range that contains an address and fixes `length` bits.
pub(crate) fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::from(Ipv4Addr::from(u32::from(ip) & mask))
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::from(std::net::Ipv6Addr::from(u128::from(ip) & mask))
        }
    }
}

/// Validates a range, which must be in canonical form.
pub(crate) fn canonical_cidr(field: &Field<'_, '_>, report: &mut Report) {
    let Some((address, length)) = parse_cidr(field.text()) else {
        report.invalid(field, NOT_A_CIDR);
        return;
    };
    let wanted = format!("{}/{length}", masked(address, length));
    if wanted != field.text() {
        report.invalid(field, &format!("must be in canonical form ({wanted:?})"));
    }
}

/// Reports whether the addresses cover both families; `None` if one of them is invalid.
pub(crate) fn is_dual_stack<'t>(texts: impl IntoIterator<Item = &'t str>) -> Option<bool> {
    let (mut four, mut six) = (false, false);
    for text in texts {
        match parse_ip(text)? {
            IpAddr::V4(_) => four = true,
            IpAddr::V6(_) => six = true,
        }
    }
    Some(four && six)
}

/// Checks that an endpoint's address or an external address is not a special one.
pub(crate) fn non_special_ip(field: &Field<'_, '_>, report: &mut Report) {
    let text = field.text();
    let Some(ip) = parse_ip(text) else {
        report.invalid(field, "must be a valid IP address");
        return;
    };
    if ip.is_unspecified() {
        report.invalid(field, &format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        report.invalid(field, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (link_local, multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(ip) => (ip.segments()[0] & 0xffc0 == 0xfe80, ip.segments()[0] & 0xff0f == 0xff02),
    };
    if link_local {
        report.invalid(field, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        report.invalid(field, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}

/// Validates a path, which must not contain `..` as one of its parts.
pub(crate) fn path_without_backsteps(field: &Field<'_, '_>, text: &str, report: &mut Report) {
    if text.split('/').any(|part| part == "..") {
        report.invalid_text(field, text, "must not contain '..'");
    }
}

/// Validates a relative path, which must not leave its directory.
pub(crate) fn local_descending_path(field: &Field<'_, '_>, text: &str, report: &mut Report) {
    if text.starts_with('/') {
        report.invalid_text(field, text, "must be a relative path");
    }
    path_without_backsteps(field, text, report);
}

/// Validates a relative path, which must neither leave its directory nor begin with `..`.
pub(crate) fn local_non_reserved_path(field: &Field<'_, '_>, report: &mut Report) {
    let text = field.text();
    local_descending_path(field, text, report);
    if text.starts_with("..") && !text.starts_with("../") {
        report.invalid_text(field, text, "must not start with '..'");
    }
}

/// Returns the errors of a key in a ConfigMap or Secret.
pub(crate) fn config_key(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if key.len() > 253 {
        problems.push("must be no more than 253 characters".into());
    }
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        problems.push(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
             'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
                .into(),
        );
    }
    if key == "." || key == ".." {
        problems.push(format!("must not be '{key}'"));
    } else if key.starts_with("..") {
        problems.push("must not start with '..'".into());
    }
    problems
}

/// Returns the errors of an environment variable's name.
pub(crate) fn environment_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'=') {
        return Vec::new();
    }
    vec![
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
            .into(),
    ]
}

/// Returns the errors of an HTTP header's name.
pub(crate) fn header_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    vec![
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
         validation is '[-A-Za-z0-9]+')"
            .into(),
    ]
}

/// Reports whether a text is a C identifier.
pub(crate) fn is_c_identifier(text: &str) -> bool {
    text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

pub(crate) const NOT_A_C_IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', \
    followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used \
    for validation is '[A-Za-z_][A-Za-z0-9_]*')";

/// Validates the name of a CSI driver.
pub(crate) fn csi_driver_name(field: &Field<'_, '_>, report: &mut Report) {
    let name = field.text();
    if name.is_empty() {
        report.required(field, "");
        return;
    }
    if name.len() > 63 {
        report.too_long(field, 63);
    }
    report.each(field, dns_subdomain(&name.to_lowercase()));
}
