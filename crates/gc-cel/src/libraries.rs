//! Kubernetes' libraries of URLs, semantic versions and formats.

use std::rc::Rc;

use crate::budget::{Budget, failed};
use crate::formats;
use crate::semver::Semver;
use crate::url::Url;
use crate::value::{Evaluation, Val};

/// Returns the entries of a URL's query.
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

/// Formats that texts can be validated against.
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

/// Calls a function of these libraries.
pub(crate) fn call<'v>(name: &str, arguments: &[Val<'v>], budget: &mut Budget) -> Option<Evaluation<'v>> {
    Some(match (name, arguments) {
        ("url", [Val::Text(text)]) => Url::parse(text).map_or_else(
            |why| failed(format!("URL parse error during conversion from string: {why}")),
            |url| Ok(Val::Url(Rc::new(url))),
        ),
        ("isURL", [Val::Text(text)]) => Ok(Val::Bool(Url::parse(text).is_ok())),
        (_, [Val::Url(url)]) => match name {
            "getScheme" => Ok(Val::text(&url.scheme)),
            "getHost" => Ok(Val::text(&url.host)),
            "getHostname" => Ok(Val::text(url.host_name())),
            "getPort" => Ok(Val::text(url.port())),
            "getEscapedPath" => Ok(Val::text(&url.path)),
            "getQuery" => Ok(query(url)),
            _ => return None,
        },
        ("semver", [Val::Text(text)]) => version(text, false),
        ("semver", [Val::Text(text), Val::Bool(tolerant)]) => version(text, *tolerant),
        ("isSemver", [Val::Text(text)]) => Ok(Val::Bool(Semver::parse(text, false).is_ok())),
        ("isSemver", [Val::Text(text), Val::Bool(tolerant)]) => {
            Ok(Val::Bool(Semver::parse(text, *tolerant).is_ok()))
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

fn version<'v>(text: &str, tolerant: bool) -> Evaluation<'v> {
    Semver::parse(text, tolerant).map_or_else(failed, |version| Ok(Val::Semver(Rc::new(version))))
}
