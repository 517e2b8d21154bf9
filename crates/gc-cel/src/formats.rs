//! Formats of texts that expressions can ask for.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether a text is an address with a prefix length, such as `10.0.0.0/8`.
#[must_use]
pub fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let bits_below = |limit: u8| bits.parse::<u8>().is_ok_and(|bits| bits <= limit) && !bits.starts_with('+');
    (address.parse::<Ipv4Addr>().is_ok() && bits_below(32))
        || (address.parse::<Ipv6Addr>().is_ok() && bits_below(128))
}

/// Whether a text is a URI, or an absolute path.
#[must_use]
pub fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.chars().any(|c| c.is_control() || c == ' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    text.split_once(':').is_some_and(|(scheme, rest)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
            && !rest.is_empty()
    })
}

/// A float without the fraction that it does not have.
#[must_use]
pub fn printed_float(float: f64) -> String {
    /// From here on Go writes exponents.
    const PLAIN_BELOW: f64 = 1e21;
    if float.abs() < PLAIN_BELOW { format!("{float}") } else { format!("{float:e}") }
}
