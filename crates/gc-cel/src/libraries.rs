//! Kubernetes' libraries of URLs, addresses, networks, semantic versions, formats and formatted texts.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use crate::budget::{Budget, EvalError, failed};
use crate::formats;
use crate::functions::printed;
use crate::semver::Semver;
use crate::url::Url;
use crate::value::{Evaluated, Val};

/// The entries of a URL's query.
fn query<'v>(url: &Url) -> Val<'v> {
    let mut entries: Vec<(String, Vec<Val<'v>>)> = Vec::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (unescaped(name), Val::text(&unescaped(value)));
        match entries.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => entries.push((name, vec![value])),
        }
    }
    let entries = entries.into_iter().map(|(name, values)| (Val::text(&name), Val::list(values)));
    Val::Map(Rc::new(entries.collect()))
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let value = digit(rest.next()).zip(digit(rest.next()));
                bytes.extend(value.and_then(|(high, low)| u8::try_from(high * 16 + low).ok()));
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The formats that texts can be validated against.
const FORMATS: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

fn format_named<'v>(name: &str) -> Option<Val<'v>> {
    FORMATS.iter().find(|known| **known == name).map(|known| Val::Format(known))
}

/// An address by Kubernetes' rules: no IPv4 address in IPv6, no zone.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    match address {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => None,
        other => Some(other),
    }
}

fn parse_cidr(text: &str) -> Option<(IpAddr, u8)> {
    if !formats::is_cidr(text) {
        return None;
    }
    let (address, bits) = text.split_once('/')?;
    Some((parse_ip(address)?, bits.parse().ok()?))
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

fn contains(network: (IpAddr, u8), address: IpAddr) -> bool {
    network.0.is_ipv4() == address.is_ipv4() && masked(network.0, network.1) == masked(address, network.1)
}

/// Calls a function of these libraries.
pub(crate) fn call<'v>(name: &str, arguments: &[Val<'v>], budget: &mut Budget) -> Option<Evaluated<'v>> {
    Some(match (name, arguments) {
        ("url", [Val::Text(text)]) => Url::parse(text).map_or_else(
            || {
                failed(format!(
                    "URL parse error during conversion from string: parse {text:?}: invalid URI for request"
                ))
            },
            |url| Ok(Val::Url(Rc::new(url))),
        ),
        ("isURL", [Val::Text(text)]) => Ok(Val::Bool(Url::parse(text).is_some())),
        (_, [Val::Url(url)]) => match name {
            "getScheme" => Ok(Val::text(&url.scheme)),
            "getHost" => Ok(Val::text(&url.host)),
            "getHostname" => Ok(Val::text(url.host_name())),
            "getPort" => Ok(Val::text(url.port())),
            "getEscapedPath" => Ok(Val::text(&url.path)),
            "getQuery" => Ok(query(url)),
            _ => return None,
        },
        ("ip", [Val::Text(text)]) => parse_ip(text).map_or_else(
            || failed(format!("IP Address {text:?} parse error during conversion from string")),
            |address| Ok(Val::Ip(address)),
        ),
        ("isIP", [Val::Text(text)]) => Ok(Val::Bool(parse_ip(text).is_some())),
        ("ip.isCanonical", [Val::Text(text)]) => parse_ip(text).map_or_else(
            || failed(format!("IP Address {text:?} parse error during conversion from string")),
            |address| Ok(Val::Bool(address.to_string() == **text)),
        ),
        (_, [Val::Ip(address)]) => return address_function(name, *address).map(Ok),
        ("cidr", [Val::Text(text)]) => parse_cidr(text).map_or_else(
            || {
                failed(format!(
                    "network address parse error during conversion from string: netip.ParsePrefix({text:?})"
                ))
            },
            |(address, bits)| Ok(Val::Cidr(address, bits)),
        ),
        ("isCIDR", [Val::Text(text)]) => Ok(Val::Bool(parse_cidr(text).is_some())),
        (_, [Val::Cidr(address, bits)]) => match name {
            "ip" => Ok(Val::Ip(*address)),
            "prefixLength" => Ok(Val::Int((*bits).into())),
            "masked" => Ok(Val::Cidr(masked(*address, *bits), *bits)),
            "string" => Ok(Val::text(&format!("{address}/{bits}"))),
            _ => return None,
        },
        ("containsIP", [Val::Cidr(address, bits), other]) => match other {
            Val::Ip(other) => Ok(Val::Bool(contains((*address, *bits), *other))),
            Val::Text(text) => Ok(Val::Bool(contains((*address, *bits), parse_ip(text)?))),
            _ => return None,
        },
        ("containsCIDR", [Val::Cidr(address, bits), other]) => {
            let (other, length) = match other {
                Val::Cidr(address, bits) => (*address, *bits),
                Val::Text(text) => parse_cidr(text)?,
                _ => return None,
            };
            Ok(Val::Bool(*bits <= length && contains((*address, *bits), other)))
        }
        ("semver", [Val::Text(text)]) => version(text, false),
        ("semver", [Val::Text(text), Val::Bool(tolerant)]) => version(text, *tolerant),
        ("isSemver", [Val::Text(text)]) => Ok(Val::Bool(Semver::parse(text, false).is_some())),
        ("isSemver", [Val::Text(text), Val::Bool(tolerant)]) => {
            Ok(Val::Bool(Semver::parse(text, *tolerant).is_some()))
        }
        (_, [Val::Semver(version)]) => {
            let index = ["major", "minor", "patch"].iter().position(|part| *part == name)?;
            Ok(Val::Int(i64::try_from(version.numbers[index]).unwrap_or(i64::MAX)))
        }
        ("isGreaterThan", [Val::Semver(a), Val::Semver(b)]) => Ok(Val::Bool(a.compare(b).is_gt())),
        ("isLessThan", [Val::Semver(a), Val::Semver(b)]) => Ok(Val::Bool(a.compare(b).is_lt())),
        ("compareTo", [Val::Semver(a), Val::Semver(b)]) => Ok(Val::Int(a.compare(b) as i64)),
        ("format.named", [Val::Text(name)]) => Ok(Val::Optional(format_named(name).map(Rc::new))),
        ("validate", [Val::Format(format), Val::Text(text)]) => {
            let problems: Vec<Val<'v>> =
                formats::problems(format, text).iter().map(|why| Val::text(why)).collect();
            Ok(Val::Optional((!problems.is_empty()).then(|| Rc::new(Val::list(problems)))))
        }
        ("lists.range", [Val::Int(count)]) => {
            match usize::try_from(*count).map(|count| budget.spend(count)) {
                Ok(Ok(())) => Ok(Val::list((0..*count).map(Val::Int).collect())),
                Ok(Err(error)) => Err(error),
                Err(_) => Ok(Val::list(Vec::new())),
            }
        }
        ("jsonpatch.escapeKey", [Val::Text(text)]) => {
            Ok(Val::text(&text.replace('~', "~0").replace('/', "~1")))
        }
        (_, []) => return name.strip_prefix("format.").and_then(format_named).map(Ok),
        _ => return None,
    })
}

fn version<'v>(text: &str, tolerant: bool) -> Evaluated<'v> {
    match Semver::parse(text, tolerant) {
        Some(version) => Ok(Val::Semver(Rc::new(version))),
        None if text.is_empty() => failed("Version string empty"),
        None if text.splitn(3, '.').count() < 3 => failed("No Major.Minor.Patch elements found"),
        None => failed(format!("semver {text:?} parse error during conversion from string")),
    }
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
        "string" => Val::text(&address.to_string()),
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

/// A text with its verbs (`%s`, `%d`, `%f`, `%e`, `%x`, `%o`, `%b`) replaced by values.
pub(crate) fn formatted<'v>(text: &str, items: &[Val<'v>]) -> Evaluated<'v> {
    let mut result = String::new();
    let mut items = items.iter();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        result.push_str(before);
        if let Some(after) = after.strip_prefix('%') {
            result.push('%');
            rest = after;
            continue;
        }
        let (precision, after) = match after.strip_prefix('.') {
            Some(digits) => {
                let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
                (digits[..end].parse().unwrap_or(6_usize).min(MOST_DIGITS), &digits[end..])
            }
            None => (6, after),
        };
        let mut characters = after.chars();
        let Some(verb) = characters.next() else { return failed("unexpected end of string") };
        rest = characters.as_str();
        let Some(value) = items.next() else { return failed("index out of range") };
        write_verb(&mut result, verb, precision, value)?;
    }
    result.push_str(rest);
    Ok(Val::text(&result))
}

/// Maximum number of digits after the point.
const MOST_DIGITS: usize = 100;

fn write_verb(result: &mut String, verb: char, precision: usize, value: &Val<'_>) -> Result<(), EvalError> {
    // Writing to a string cannot fail.
    let _ = match (verb, value) {
        ('s', value) => write!(result, "{}", printed(value)),
        ('d', Val::Int(value)) => write!(result, "{value}"),
        ('d', Val::Uint(value)) => write!(result, "{value}"),
        ('f', value) if value.number().is_some() => {
            write!(result, "{:.precision$}", value.number().unwrap_or_default())
        }
        ('e', value) if value.number().is_some() => {
            write!(result, "{:.precision$e}", value.number().unwrap_or_default())
        }
        ('x', Val::Int(value)) => write!(result, "{value:x}"),
        ('X', Val::Int(value)) => write!(result, "{value:X}"),
        ('x', Val::Uint(value)) => write!(result, "{value:x}"),
        ('x', Val::Text(text)) => text.bytes().try_for_each(|byte| write!(result, "{byte:02x}")),
        ('X', Val::Text(text)) => text.bytes().try_for_each(|byte| write!(result, "{byte:02X}")),
        ('o', Val::Int(value)) => write!(result, "{value:o}"),
        ('b', Val::Int(value)) => write!(result, "{value:b}"),
        ('b', Val::Bool(value)) => write!(result, "{}", u8::from(*value)),
        ('d' | 'f' | 'e' | 'x' | 'X' | 'o' | 'b', other) => {
            return failed(format!(
                "error during formatting: no formatting for {} with %{verb}",
                other.type_name()
            ));
        }
        _ => {
            return failed(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{verb}\""
            ));
        }
    };
    Ok(())
}
