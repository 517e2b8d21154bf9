//! URLs.

use std::fmt;

/// A URL in its parts, as written.
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
    /// A URL as allowed in the request line of HTTP: absolute, or a path from the root.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.chars().any(|c| c.is_control() || c == ' ') || !has_whole_escapes(text) {
            return None;
        }
        let (scheme, rest) = match text.find([':', '/', '?']) {
            Some(end) if text[end..].starts_with(':') => {
                let scheme = &text[..end];
                let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                    && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
                if !is_scheme {
                    return None;
                }
                (scheme.to_ascii_lowercase(), &text[end + 1..])
            }
            _ => (String::new(), text),
        };
        if scheme.is_empty() && !rest.starts_with('/') {
            return None;
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
            None => ("", rest),
        };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let url = Self {
            text: text.to_owned(),
            scheme,
            host: host.to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
        };
        let port = url.port();
        port.bytes().all(|byte| byte.is_ascii_digit()).then_some(url)
    }

    /// Where the port begins, if there is one.
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

fn has_whole_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        let mut digits = rest.bytes().take(2);
        digits.len() == 2 && digits.all(|byte| byte.is_ascii_hexdigit())
    })
}
