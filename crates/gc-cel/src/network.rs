//! Addresses and networks, as Go's `netip` reads them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::budget::failed;
use crate::text::quoted;
use crate::value::{Evaluation, Val};

/// A network: an address and the length of its prefix.
type Network = (IpAddr, u8);

/// Parses an address by Kubernetes' rules: no IPv4-mapped IPv6 addresses, no zones.
fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) if address.contains(':') && !zone.is_empty() => (address, true),
        _ => (text, false),
    };
    let Ok(found) = address.parse::<IpAddr>() else {
        let why = why_no_address(text);
        let text = quoted(text);
        return Err(format!(
            "IP Address {text} parse error during conversion from string: ParseAddr({text}): {why}"
        ));
    };
    if zone {
        return Err(format!("IP address {} with zone value is not allowed", quoted(text)));
    }
    unmapped(found, text)
}

fn unmapped(address: IpAddr, text: &str) -> Result<IpAddr, String> {
    match address {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {} is not allowed", quoted(text)))
        }
        other => Ok(other),
    }
}

/// Explains why a text is not an address. For IPv6, not every reason has its own message.
fn why_no_address(text: &str) -> String {
    match text.find(['.', ':', '%']).map(|at| text.as_bytes()[at]) {
        Some(b'.') => why_no_ipv4(text),
        Some(b':') if text.ends_with('%') => "zone must be a non-empty string".to_owned(),
        Some(b':') => why_no_ipv6(text),
        Some(_) => "missing IPv6 address".to_owned(),
        None => "unable to parse IP".to_owned(),
    }
}

fn why_no_ipv4(text: &str) -> String {
    const FIELDS: usize = 4;
    let (mut fields, mut value, mut digits) = (0, 0_u32, 0);
    for (at, c) in text.char_indices() {
        let rest = || format!(" (at {})", quoted(&text[at..]));
        match c.to_digit(10) {
            Some(digit) => {
                if digits == 1 && value == 0 {
                    return "IPv4 field has octet with leading zero".to_owned();
                }
                value = value * 10 + digit;
                digits += 1;
                if value > u8::MAX.into() {
                    return "IPv4 field has value >255".to_owned();
                }
            }
            None if c == '.' => {
                if at == 0 || at + 1 == text.len() || digits == 0 {
                    return format!("IPv4 field must have at least one digit{}", rest());
                }
                if fields + 1 == FIELDS {
                    return "IPv4 address too long".to_owned();
                }
                (fields, value, digits) = (fields + 1, 0, 0);
            }
            None => return format!("unexpected character{}", rest()),
        }
    }
    "IPv4 address too short".to_owned()
}

fn why_no_ipv6(text: &str) -> String {
    let fields: Vec<&str> = text.split(':').collect();
    let is_hex = |field: &&&str| field.bytes().all(|byte| byte.is_ascii_hexdigit());
    if text.matches("::").count() > 1 || text.contains(":::") {
        let at = text.rfind("::").unwrap_or_default();
        return if text.contains(":::") {
            let at = text.find(":::").unwrap_or_default() + 2;
            format!("each colon-separated field must have at least one digit (at {})", quoted(&text[at..]))
        } else {
            format!("multiple :: in address (at {})", quoted(&text[at + 1..]))
        };
    }
    if let Some(long) = fields.iter().find(|field| field.len() > 4 && is_hex(field)) {
        let at = text.find(*long).unwrap_or_default();
        return format!("each group must have 4 or fewer digits (at {})", quoted(&text[at..]));
    }
    if text.ends_with(':') && !text.ends_with("::") {
        return "colon must be followed by more characters (at \":\")".to_owned();
    }
    if fields.iter().all(|field| is_hex(&field)) && !text.contains("::") && fields.len() < 8 {
        return "address string too short".to_owned();
    }
    if fields.iter().all(|field| is_hex(&field)) && fields.len() > 8 {
        return format!("trailing garbage after address (at {})", quoted(&fields[8..].join(":")));
    }
    "unexpected character, want colon".to_owned()
}

fn parse_cidr(text: &str) -> Result<Network, String> {
    let twice = "network address parse error during conversion from string";
    let wrong = |why: &str| Err(format!("{twice}: netip.ParsePrefix({}): {why}", quoted(text)));
    let Some((address, bits)) = text.rsplit_once('/') else { return wrong("no '/'") };
    let Ok(found) = address.parse::<IpAddr>() else {
        if address.contains('%') {
            return wrong("IPv6 zones cannot be present in a prefix");
        }
        let why = why_no_address(address);
        return wrong(&format!("ParseAddr({}): {why}", quoted(address)));
    };
    let has_digits = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = bits.len() > 1 && bits.starts_with('0');
    let Some(length) = bits.parse::<u16>().ok().filter(|_| has_digits && !leading_zero) else {
        return wrong(&format!("bad bits after slash: {}", quoted(bits)));
    };
    match u8::try_from(length) {
        Ok(length) if u32::from(length) <= bits_of(found).1 => Ok((unmapped(found, text)?, length)),
        _ => wrong("prefix length out of range"),
    }
}

fn bits_of(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)), Ipv4Addr::BITS),
        IpAddr::V6(address) => (u128::from(address), Ipv6Addr::BITS),
    }
}

fn masked(address: IpAddr, bits: u8) -> IpAddr {
    let (value, length) = bits_of(address);
    let kept = value.checked_shr(length - u32::from(bits)).unwrap_or_default();
    let value = kept.checked_shl(length - u32::from(bits)).unwrap_or_default();
    match address {
        IpAddr::V4(_) => IpAddr::V4(u32::try_from(value).unwrap_or_default().into()),
        IpAddr::V6(_) => IpAddr::V6(value.into()),
    }
}

fn contains(network: Network, address: IpAddr) -> bool {
    network.0.is_ipv4() == address.is_ipv4() && masked(network.0, network.1) == masked(address, network.1)
}

/// Calls a function of these libraries.
pub(crate) fn call<'v>(name: &str, arguments: &[Val<'v>]) -> Option<Evaluation<'v>> {
    let ip = |text: &str| parse_ip(text).or_else(failed);
    let cidr = |text: &str| {
        parse_cidr(text).or_else(|why| {
            failed(format!("network address parse error during conversion from string: {why}"))
        })
    };
    Some(match (name, arguments) {
        ("ip", [Val::Text(text)]) => ip(text).map(Val::Ip),
        ("isIP", [Val::Text(text)]) => Ok(Val::Bool(parse_ip(text).is_ok())),
        ("ip.isCanonical", [Val::Text(text)]) => {
            ip(text).map(|address| Val::Bool(address.to_string() == **text))
        }
        (_, [Val::Ip(address)]) => return address_function(name, *address).map(Ok),
        ("cidr", [Val::Text(text)]) => cidr(text).map(|(address, bits)| Val::Cidr(address, bits)),
        ("isCIDR", [Val::Text(text)]) => Ok(Val::Bool(parse_cidr(text).is_ok())),
        (_, [Val::Cidr(address, bits)]) => match name {
            "ip" => Ok(Val::Ip(*address)),
            "prefixLength" => Ok(Val::Int((*bits).into())),
            "masked" => Ok(Val::Cidr(masked(*address, *bits), *bits)),
            _ => return None,
        },
        ("containsIP", [Val::Cidr(address, bits), other]) => match other {
            Val::Ip(other) => Ok(Val::Bool(contains((*address, *bits), *other))),
            Val::Text(text) => ip(text).map(|other| Val::Bool(contains((*address, *bits), other))),
            _ => return None,
        },
        ("containsCIDR", [Val::Cidr(address, bits), other]) => {
            let other = match other {
                Val::Cidr(address, bits) => Ok((*address, *bits)),
                Val::Text(text) => cidr(text),
                _ => return None,
            };
            other.map(|(other, length)| Val::Bool(*bits <= length && contains((*address, *bits), other)))
        }
        _ => return None,
    })
}

fn address_function<'v>(name: &str, address: IpAddr) -> Option<Val<'v>> {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let link_local_multicast = match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    };
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    Some(match name {
        "family" => Val::Int(if address.is_ipv4() { 4 } else { 6 }),
        "isUnspecified" => Val::Bool(address.is_unspecified()),
        "isLoopback" => Val::Bool(address.is_loopback()),
        "isLinkLocalMulticast" => Val::Bool(link_local_multicast),
        "isLinkLocalUnicast" => Val::Bool(link_local),
        "isGlobalUnicast" => Val::Bool(
            !(address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast()
                || link_local
                || broadcast),
        ),
        _ => return None,
    })
}
