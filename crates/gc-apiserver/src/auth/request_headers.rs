//! Users named by a proxy in the headers of its requests.

use gc_registry::api::UserInfo;
use http::{HeaderMap, HeaderName};

use crate::exchange::header_text;
use crate::transport::query::decode_exactly;

/// Front proxies that may name the user, and the headers that they use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeaders {
    /// Authorities of the proxies' certificates, in PEM.
    pub authorities: Vec<u8>,
    /// Common names that their certificates may have; empty for any.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name; the first one present counts.
    pub user: Vec<String>,
    /// Headers with the user's UID.
    pub uid: Vec<String>,
    /// Headers with groups.
    pub groups: Vec<String>,
    /// Prefixes of the headers with extra attributes.
    pub extra_prefixes: Vec<String>,
}

impl RequestHeaders {
    /// Returns the user that the headers name, if any.
    pub(crate) fn user(&self, headers: &HeaderMap) -> Option<UserInfo> {
        let first = |names: &[String]| {
            let found = names.iter().filter_map(|name| headers.get(name)).map(header_text);
            found.map(str::to_owned).find(|text| !text.is_empty()).unwrap_or_default()
        };
        let name = first(&self.user);
        if name.is_empty() {
            return None;
        }
        let groups = self.groups.iter().flat_map(|name| headers.get_all(name)).map(header_text);
        let groups = groups.filter(|group| !group.is_empty()).map(str::to_owned).collect();
        Some(UserInfo { name, uid: first(&self.uid), groups, extra: self.extra(headers) })
    }

    /// Reports whether a header of this name contributes to naming the user.
    pub(crate) fn names_a_user(&self, header: &HeaderName) -> bool {
        let whole = [&self.user, &self.uid, &self.groups].into_iter().flatten();
        let starts = |prefix: &String| {
            header.as_str().get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        };
        whole.into_iter().any(|name| header.as_str().eq_ignore_ascii_case(name))
            || self.extra_prefixes.iter().any(starts)
    }

    fn extra(&self, headers: &HeaderMap) -> Vec<(String, Vec<String>)> {
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for prefix in &self.extra_prefixes {
            let prefix = prefix.to_ascii_lowercase();
            for (name, value) in headers {
                let key = name.as_str().strip_prefix(&prefix).and_then(decode_exactly);
                let Some(key) = key else { continue };
                let value = header_text(value).to_owned();
                match found.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, values)) => values.push(value),
                    None => found.push((key, vec![value])),
                }
            }
        }
        found
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    #[test]
    fn headers_name_a_user_in_all_parts() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let configured = RequestHeaders {
            user: words("X-Remote-User X-Other"),
            uid: words("X-Remote-Uid"),
            groups: words("X-Remote-Group"),
            extra_prefixes: words("X-Remote-Extra-"),
            ..RequestHeaders::default()
        };
        let read = |lines: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, value.parse().unwrap());
            }
            configured.user(&headers)
        };
        assert_eq!(read(&[("x-remote-group", "g")]), None);
        assert_eq!(read(&[("x-remote-user", "")]), None);
        let user = UserInfo {
            name: "ann".into(),
            uid: "7".into(),
            groups: words("a b"),
            extra: vec![("example.org/team".into(), words("x y"))],
        };
        let named = read(&[
            ("x-other", "ann"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-example.org%2fteam", "x"),
            ("x-remote-extra-example.org%2fteam", "y"),
        ]);
        assert_eq!(named, Some(user));
    }
}
