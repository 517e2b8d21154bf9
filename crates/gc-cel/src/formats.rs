//! Text formats for expressions.

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

/// A float without an empty fraction.
#[must_use]
pub fn printed_float(float: f64) -> String {
    /// From here on Go writes exponents.
    const PLAIN_BELOW: f64 = 1e21;
    if float.abs() < PLAIN_BELOW { format!("{float}") } else { format!("{float:e}").replace('e', "e+") }
}

/// The errors of a text by one of the named formats of Kubernetes.
pub(crate) fn problems(format: &str, text: &str) -> Vec<String> {
    /// Longest label and longest subdomain in bytes.
    const LONGEST: [usize; 2] = [63, 253];
    let mut problems = Vec::new();
    let mut name = |longest: usize, pattern: &str, what: &str| {
        if text.len() > longest {
            problems.push(format!("must be no more than {longest} bytes"));
        }
        if !matches(pattern, text) {
            problems.push(format!("{what} (regex used for validation is '{pattern}')"));
        }
    };
    const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
    const SUBDOMAIN: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
    let lower = "must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
    match format {
        "dns1123Label" => name(LONGEST[0], LABEL, &format!("a lowercase RFC 1123 label {lower}")),
        "dns1123LabelPrefix" => name(LONGEST[0], "[a-z0-9][-a-z0-9]*", "a lowercase RFC 1123 label prefix"),
        "dns1123Subdomain" => name(LONGEST[1], SUBDOMAIN, "a lowercase RFC 1123 subdomain"),
        "dns1123SubdomainPrefix" => {
            name(LONGEST[1], "[a-z0-9][-.a-z0-9]*", "a lowercase RFC 1123 subdomain prefix");
        }
        "dns1035Label" => name(LONGEST[0], "[a-z]([-a-z0-9]*[a-z0-9])?", "a DNS-1035 label"),
        "dns1035LabelPrefix" => name(LONGEST[0], "[a-z][-a-z0-9]*", "a DNS-1035 label prefix"),
        "labelValue" => name(LONGEST[0], "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", "a valid label"),
        "qualifiedName" => name(
            LONGEST[1] + 1 + LONGEST[0],
            "([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
            "name part must consist of alphanumeric characters, '-', '_' or '.'",
        ),
        "uri" if !is_uri(text) => problems.push("invalid URI".to_owned()),
        "uuid" if !matches("(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", text) => {
            problems.push("does not match the UUID format".to_owned());
        }
        "byte" if !matches("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", text) => {
            problems.push("invalid base64".to_owned());
        }
        "date" if format!("{text}T00:00:00Z").parse::<jiff::Timestamp>().is_err() => {
            problems.push("invalid date".to_owned());
        }
        "datetime" if text.parse::<jiff::Timestamp>().is_err() => {
            problems.push("invalid datetime".to_owned());
        }
        _ => {}
    }
    problems
}

fn matches(pattern: &str, text: &str) -> bool {
    regex::Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|regex| regex.is_match(text))
}
