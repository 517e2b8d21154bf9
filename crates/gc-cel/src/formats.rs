//! Text formats for expressions.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::time::Timestamp;
use crate::url::Url;

/// Reports whether a text is an address with a prefix length, such as `10.0.0.0/8`.
#[must_use]
pub fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let bits_below = |limit: u8| bits.parse::<u8>().is_ok_and(|bits| bits <= limit) && !bits.starts_with('+');
    (address.parse::<Ipv4Addr>().is_ok() && bits_below(32))
        || (address.parse::<Ipv6Addr>().is_ok() && bits_below(128))
}

/// Reports whether a text is a URI, or an absolute path.
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

/// A format of names: its maximum length in bytes, its pattern, its description, and examples.
struct Name {
    longest: usize,
    pattern: &'static str,
    what: &'static str,
    examples: &'static [&'static str],
}

const DNS_1123_LABEL: Name = Name {
    longest: 63,
    pattern: "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    what: "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
    examples: &["my-name", "123-abc"],
};

const DNS_1123_SUBDOMAIN: Name = Name {
    longest: 253,
    pattern: "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    what: "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
    examples: &["example.com"],
};

const DNS_1035_LABEL: Name = Name {
    longest: 63,
    pattern: "[a-z]([-a-z0-9]*[a-z0-9])?",
    what: "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
    examples: &["my-name", "abc-123"],
};

const LABEL_VALUE: Name = Name {
    longest: 63,
    pattern: "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
    what: "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    examples: &["MyValue", "my_value", "12345"],
};

const QUALIFIED_NAME: Name = Name {
    longest: 63,
    pattern: "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
    what: "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    examples: &["MyName", "my.name", "123-abc"],
};

impl Name {
    fn problems(&self, text: &str) -> Vec<String> {
        let long =
            (text.len() > self.longest).then(|| format!("must be no more than {} bytes", self.longest));
        let other = (!matches_whole(self.pattern, text)).then(|| self.rule());
        long.into_iter().chain(other).collect()
    }

    fn rule(&self) -> String {
        let examples: Vec<String> = self.examples.iter().map(|example| format!("'{example}', ")).collect();
        let examples = examples.join(" or ");
        format!("{} (e.g. {examples}regex used for validation is '{}')", self.what, self.pattern)
    }
}

/// Validates a text by one of Kubernetes' named formats, and returns the errors.
pub(crate) fn problems(format: &str, text: &str) -> Vec<String> {
    // A prefix may end with a dash, because another character will follow it.
    let masked = match text.strip_suffix('-').and_then(|rest| rest.char_indices().next_back()) {
        Some((last, _)) => format!("{}a", &text[..last]),
        None => text.to_owned(),
    };
    let unless = |fits: bool, why: &str| if fits { Vec::new() } else { vec![why.to_owned()] };
    match format {
        "dns1123Label" => DNS_1123_LABEL.problems(text),
        "dns1123LabelPrefix" => DNS_1123_LABEL.problems(&masked),
        "dns1123Subdomain" => DNS_1123_SUBDOMAIN.problems(text),
        "dns1123SubdomainPrefix" => DNS_1123_SUBDOMAIN.problems(&masked),
        "dns1035Label" => DNS_1035_LABEL.problems(text),
        "dns1035LabelPrefix" => DNS_1035_LABEL.problems(&masked),
        "labelValue" => LABEL_VALUE.problems(text),
        "qualifiedName" => qualified_name(text),
        "uri" => Url::parse(text).err().into_iter().collect(),
        "uuid" => unless(
            matches_whole("(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", text),
            "does not match the UUID format",
        ),
        "byte" => unless(
            matches_whole("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", text),
            "invalid base64",
        ),
        "date" => {
            unless(matches!(Timestamp::parse(&format!("{text}T00:00:00Z")), Some(Ok(_))), "invalid date")
        }
        "datetime" => unless(matches!(Timestamp::parse(text), Some(Ok(_))), "invalid datetime"),
        _ => Vec::new(),
    }
}

fn qualified_name(text: &str) -> Vec<String> {
    let prefixed = |part: &str, problems: Vec<String>| -> Vec<String> {
        problems.iter().map(|problem| format!("{part} part {problem}")).collect()
    };
    let (prefix, name) = match text.split_once('/') {
        Some((_, name)) if name.contains('/') => {
            let why = format!("a qualified name {}", QUALIFIED_NAME.rule());
            return vec![format!(
                "{why} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let mut problems = match prefix {
        None => Vec::new(),
        Some("") => vec!["prefix part must be non-empty".to_owned()],
        Some(prefix) => prefixed("prefix", DNS_1123_SUBDOMAIN.problems(prefix)),
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    }
    problems.extend(prefixed("name", QUALIFIED_NAME.problems(name)));
    problems
}

/// Reports whether an entire text matches one of this crate's patterns, which are compiled once per thread.
pub(crate) fn matches_whole(pattern: &'static str, text: &str) -> bool {
    thread_local! {
        static COMPILED: RefCell<BTreeMap<&'static str, Option<regex::Regex>>> = RefCell::default();
    }
    COMPILED.with_borrow_mut(|compiled| {
        let compile = || regex::Regex::new(&format!("^(?:{pattern})$")).ok();
        compiled.entry(pattern).or_insert_with(compile).as_ref().is_some_and(|regex| regex.is_match(text))
    })
}
