//! URLs.

use std::fmt;

use crate::text::quoted;

/// A URL in parts, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    text: String,
    pub(crate) scheme: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Url {
    /// Parses a URL as allowed in the request line of HTTP: absolute, or a path from the root. The error is Go's message.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Self::checked(text, false).map_err(|why| format!("parse {}: {why}", quoted(text)))
    }

    /// Describes an error in a URL that may be relative, as Go does; `None` if it is valid.
    #[must_use]
    pub fn reference_problem(text: &str) -> Option<String> {
        let text = text.split_once('#').map_or(text, |(text, _)| text);
        Self::checked(text, true).err().map(|why| format!("parse {}: {why}", quoted(text)))
    }

    fn checked(text: &str, may_be_relative: bool) -> Result<Self, String> {
        if text.chars().any(|c| c.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text.is_empty() && !may_be_relative {
            return Err("empty url".to_owned());
        }
        let (scheme, rest) = split_scheme(text)?;
        if !rest.starts_with('/') && scheme.is_empty() {
            if !may_be_relative {
                return Err("invalid URI for request".to_owned());
            }
            if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = match rest.strip_prefix("//").filter(|_| !rest.starts_with("///")) {
            Some(rest) if !scheme.is_empty() => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            _ => ("", rest),
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        if let Some(wrong) =
            host.chars().find(|c| matches!(c, ' ' | '"' | '\\' | '^' | '`' | '{' | '|' | '}'))
        {
            let wrong = quoted(&wrong.to_string());
            return Err(format!("invalid character {wrong} in host name"));
        }
        if let Some(escape) = bad_escape(host).or_else(|| bad_escape(path)) {
            return Err(format!("invalid URL escape {}", quoted(escape)));
        }
        let url = Self {
            text: text.to_owned(),
            scheme,
            host: host.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
        };
        match url.port_at().map(|colon| &url.host[colon..]) {
            Some(port) if !port[1..].bytes().all(|byte| byte.is_ascii_digit()) => {
                Err(format!("invalid port {} after host", quoted(port)))
            }
            _ => Ok(url),
        }
    }

    /// Returns the position of the port, if there is one.
    fn port_at(&self) -> Option<usize> {
        let after_brackets = self.host.rfind(']').map_or(0, |end| end + 1);
        self.host[after_brackets..].rfind(':').map(|colon| after_brackets + colon)
    }

    pub(crate) fn port(&self) -> &str {
        self.port_at().map_or("", |colon| &self.host[colon + 1..])
    }

    pub(crate) fn host_name(&self) -> &str {
        let host = self.port_at().map_or(&*self.host, |colon| &self.host[..colon]);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }
}

/// Splits off the scheme, in lower case; it is empty if there is none.
fn split_scheme(text: &str) -> Result<(String, &str), String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    match text.find(|c: char| !is_part(c)) {
        Some(0) if text.starts_with(':') => Err("missing protocol scheme".to_owned()),
        Some(end) if text[end..].starts_with(':') && text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Ok((text[..end].to_ascii_lowercase(), &text[end + 1..]))
        }
        _ => Ok((String::new(), text)),
    }
}

/// Returns the first escape that does not have two digits.
fn bad_escape(text: &str) -> Option<&str> {
    text.match_indices('%').map(|(at, _)| &text[at..]).find_map(|escape| {
        let mut digits = escape.bytes().skip(1).take(2);
        let whole = digits.len() == 2 && digits.all(|byte| byte.is_ascii_hexdigit());
        let end = escape.char_indices().nth(3).map_or(escape.len(), |(end, _)| end);
        (!whole).then_some(&escape[..end])
    })
}
