//! Images that an operator protects (spec `node-gc.md`, section 4, R6).

use std::sync::Arc;

use super::Image;

/// A list of patterns. An image is kept if any of its tags, digests or its identifier matches any of them.
///
/// A pattern is a name as `crictl images` shows it, with `*` for any run of characters: an exact tag
/// (`registry.example/db:16`), a repository (`registry.example/db`, any tag or digest of it), a prefix
/// (`registry.example/base/*`), a digest (`*@sha256:12ab…`) or an image identifier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtectionList {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    text: Arc<str>,
    /// Bytes before the first star and after the last one; all of them, if there is none.
    ends: (usize, usize),
}

/// Why a pattern cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtectionError {
    /// It is empty.
    #[error(
        "protection pattern {position} is empty; expected an image name, or a pattern such as \"registry.example/base/*\""
    )]
    Empty {
        /// Its place in the list, from 1.
        position: usize,
    },
    /// It contains white space.
    #[error(
        "protection pattern {pattern:?} contains white space; expected an image name or a pattern with '*'"
    )]
    WhiteSpace {
        /// The pattern.
        pattern: Arc<str>,
    },
    /// More patterns than the bound.
    #[error("{count} protection patterns; at most {MAX_PATTERNS} are taken")]
    TooMany {
        /// How many there were.
        count: usize,
    },
}

/// Maximum number of patterns.
pub const MAX_PATTERNS: usize = 1_000;

impl ProtectionList {
    /// Validates patterns.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, ProtectionError> {
        let patterns: Vec<Pattern> = patterns.into_iter().map(Pattern::new).collect();
        if patterns.len() > MAX_PATTERNS {
            return Err(ProtectionError::TooMany { count: patterns.len() });
        }
        for (index, Pattern { text: pattern, .. }) in patterns.iter().enumerate() {
            if pattern.is_empty() {
                return Err(ProtectionError::Empty { position: index + 1 });
            }
            if pattern.contains(char::is_whitespace) {
                return Err(ProtectionError::WhiteSpace { pattern: pattern.clone() });
            }
        }
        Ok(Self { patterns })
    }

    /// The first pattern that protects the image.
    #[must_use]
    pub fn keeps(&self, image: &Image) -> Option<&Arc<str>> {
        let pattern = self.patterns.iter().find(|pattern| {
            let names = image.repo_tags.iter().chain(&image.repo_digests).map(AsRef::as_ref);
            names.chain([image.id.as_str(), image.id.digits()]).any(|name| pattern.keeps(name))
        });
        pattern.map(|pattern| &pattern.text)
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        let start = text.find('*').unwrap_or(text.len());
        let end = text.rfind('*').map_or(text.len(), |last| text.len() - last - 1);
        Self { text: text.into(), ends: (start, end) }
    }

    fn keeps(&self, name: &str) -> bool {
        self.matches(name)
            || name.split_once('@').is_some_and(|(repository, _)| self.matches(repository))
            || name.rsplit_once(':').is_some_and(|(repository, tag)| {
                !tag.contains('/')
                    && !repository.contains('@')
                    && repository != "sha256"
                    && self.matches(repository)
            })
    }

    /// The text before the first star and after the last one decides most cases at once.
    fn matches(&self, text: &str) -> bool {
        let (pattern, text) = (self.text.as_bytes(), text.as_bytes());
        let (start, end) = (&pattern[..self.ends.0], &pattern[pattern.len() - self.ends.1..]);
        text.starts_with(start) && text.ends_with(end) && matches(pattern, text)
    }
}

/// Glob with `*` only, without backtracking over more than the last star: linear in practice and bounded by
/// the product of both lengths.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((star, start)) = retry {
            p = star + 1;
            t = start + 1;
            retry = Some((star, t));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::super::testing::{id, image};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pattern_keeps_by_tag_repository_prefix_digest_and_identifier() {
        let mut subject = image(7, 1);
        subject.repo_tags = vec!["registry.example:5000/base/db:16".into()];
        subject.repo_digests = vec!["registry.example:5000/base/db@sha256:feed".into()];
        for (pattern, kept) in [
            ("registry.example:5000/base/db:16", true),
            ("registry.example:5000/base/db:17", false),
            ("registry.example:5000/base/db", true),
            ("registry.example:5000/base/*", true),
            ("registry.example:5000/ba", false),
            ("registry.example", false),
            ("*/db:16", true),
            ("*@sha256:feed", true),
            ("*:1*", true),
            ("*", true),
            (id(7).as_str(), true),
            (id(7).digits(), true),
            (id(8).as_str(), false),
            ("sha256", false),
        ] {
            let list = ProtectionList::new([pattern]).expect("valid");
            assert_eq!(list.keeps(&subject).is_some(), kept, "{pattern}");
        }
    }

    /// T30: protection follows the tag, not the image that once had it.
    #[test]
    fn protection_follows_a_tag_that_moves() {
        let list = ProtectionList::new(["registry.example/app:live"]).expect("valid");
        let (mut old, mut new) = (image(1, 1), image(2, 1));
        old.repo_tags = vec!["registry.example/app:live".into()];
        assert!(list.keeps(&old).is_some() && list.keeps(&new).is_none());
        new.repo_tags = std::mem::take(&mut old.repo_tags);
        assert!(list.keeps(&old).is_none() && list.keeps(&new).is_some());
    }

    #[test]
    fn bad_patterns_are_named() {
        let many = vec!["a"; MAX_PATTERNS + 1];
        assert_eq!(ProtectionList::new(["a", ""]), Err(ProtectionError::Empty { position: 2 }));
        assert_eq!(ProtectionList::new(["a b"]), Err(ProtectionError::WhiteSpace { pattern: "a b".into() }));
        assert_eq!(ProtectionList::new(many), Err(ProtectionError::TooMany { count: MAX_PATTERNS + 1 }));
    }

    proptest! {
        #[test]
        fn a_glob_agrees_with_its_definition(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
            fn slow(p: &[u8], t: &[u8]) -> bool {
                match p.split_first() {
                    None => t.is_empty(),
                    Some((b'*', rest)) => (0..=t.len()).any(|skip| slow(rest, &t[skip..])),
                    Some((byte, rest)) => t.split_first().is_some_and(|(first, tail)| first == byte && slow(rest, tail)),
                }
            }
            prop_assert_eq!(Pattern::new(&pattern).matches(&text), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
