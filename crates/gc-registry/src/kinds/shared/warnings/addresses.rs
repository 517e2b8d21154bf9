//! Warnings about addresses and ranges that are accepted but not in canonical form.

use std::net::IpAddr;

use serde_json::Value;

use crate::kinds::shared::names::{masked, parse_cidr, parse_ip};
use crate::metadata::names::quoted;

pub(crate) fn ip(path: &str, address: &str, texts: &mut Vec<String>) {
    if let Some(IpAddr::V6(ip)) = parse_ip(address)
        && ip.to_string() != address
    {
        texts.push(format!(
            "{path}: IPv6 address {} should be in RFC 5952 canonical format (\"{ip}\")",
            quoted(address)
        ));
    }
}

pub(crate) fn cidr(path: &str, range: &str, texts: &mut Vec<String>) {
    let Some((address, length)) = parse_cidr(range) else { return };
    let first = masked(address, length);
    if first != address {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        texts.push(format!(
            "{path}: CIDR value {} is ambiguous in this context (should be \"{first}/{length}\" or \
             \"{address}/{bits}\"?)",
            quoted(range)
        ));
    } else if address.is_ipv6() && format!("{address}/{length}") != range {
        texts.push(format!(
            "{path}: IPv6 CIDR value {} should be in RFC 5952 canonical format (\"{address}/{length}\")",
            quoted(range)
        ));
    }
}

/// Checks each address in a list of texts.
pub(crate) fn ips(path: &str, addresses: &[Value], texts: &mut Vec<String>) {
    for (index, address) in addresses.iter().enumerate() {
        ip(&format!("{path}[{index}]"), address.as_str().unwrap_or_default(), texts);
    }
}

/// Checks each range in a list of texts.
pub(crate) fn cidrs(path: &str, ranges: &[Value], texts: &mut Vec<String>) {
    for (index, range) in ranges.iter().enumerate() {
        cidr(&format!("{path}[{index}]"), range.as_str().unwrap_or_default(), texts);
    }
}
