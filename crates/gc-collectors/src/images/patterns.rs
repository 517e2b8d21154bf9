//! Lists of references and patterns that select images (spec `node-gc.md`, section 4, R6).

use std::sync::Arc;

use super::Image;
use super::names::full_repository;

/// A list of patterns. An image matches it if any of its tags, digests or its identifier matches any of them.
///
/// A pattern is a name as `crictl images` shows it, with `*` for any run of characters: an exact tag (`registry.example/db:16`), a
/// repository (`registry.example/db`, any tag or digest of it), a prefix (`registry.example/base/*`), a digest (`*@sha256:12ab…` or
/// `sha256:12ab…`) or an image identifier. Short and old names of Docker Hub stand for their full ones: `nginx` means
/// `docker.io/library/nginx`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImagePatterns {
    patterns: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    text: Arc<str>,
    glob: Glob,
    /// The pattern with its full name, if that is different.
    in_full: Option<Glob>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Glob {
    text: Arc<str>,
    /// Number of bytes before the first `*` and after the last one; all of them if there is none.
    ends: (usize, usize),
}

/// Reason why a pattern is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Empty.
    #[error(
        "image pattern {position} is empty; expected an image name, or a pattern such as \"registry.example/base/*\""
    )]
    Empty {
        /// Position in the list, from 1.
        position: usize,
    },
    /// Contains white space.
    #[error("image pattern {pattern:?} contains white space; expected an image name or a pattern with '*'")]
    WhiteSpace {
        /// The pattern.
        pattern: Arc<str>,
    },
    /// There are more patterns than the limit.
    #[error("{count} image patterns; at most {MAX_PATTERNS} are taken")]
    TooMany {
        /// Number of patterns.
        count: usize,
    },
}

/// Maximum number of patterns.
pub const MAX_PATTERNS: usize = 1_000;

impl ImagePatterns {
    /// Parses patterns.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, PatternError> {
        let patterns: Vec<Pattern> = patterns.into_iter().map(Pattern::new).collect();
        if patterns.len() > MAX_PATTERNS {
            return Err(PatternError::TooMany { count: patterns.len() });
        }
        for (index, Pattern { text: pattern, .. }) in patterns.iter().enumerate() {
            if pattern.is_empty() {
                return Err(PatternError::Empty { position: index + 1 });
            }
            if pattern.contains(char::is_whitespace) {
                return Err(PatternError::WhiteSpace { pattern: pattern.clone() });
            }
        }
        Ok(Self { patterns })
    }

    /// Returns the first pattern that the image matches.
    #[must_use]
    pub fn matching(&self, image: &Image) -> Option<&Arc<str>> {
        let pattern = self.patterns.iter().find(|pattern| {
            let names = image.repo_tags.iter().chain(&image.repo_digests).map(AsRef::as_ref);
            names.chain([image.id.as_str(), image.id.digits()]).any(|name| pattern.matches(name))
                || image.repo_tags.iter().any(|tag| pattern.matches_tag_in_full(tag))
                || pattern.matches_digest_alone(image)
        });
        pattern.map(|pattern| &pattern.text)
    }

    /// Returns the first pattern that the image matches beyond doubt: a `*` for a tag (`*:1*`) does not match the digits of a
    /// digest here. Use it for lists of images to remove, where too wide a pattern does harm.
    #[must_use]
    pub fn matching_narrowly(&self, image: &Image) -> Option<&Arc<str>> {
        let repository =
            |digest: &Arc<str>| digest.split_once('@').map(|(repository, _)| repository.to_owned());
        let pattern = self.patterns.iter().find(|pattern| {
            let of_digests = |digest: &Arc<str>| {
                if pattern.text.contains('@') {
                    pattern.matches(digest)
                } else {
                    repository(digest).is_some_and(|name| pattern.is_repository(&name))
                }
            };
            image.repo_tags.iter().any(|tag| pattern.matches(tag) || pattern.matches_tag_in_full(tag))
                || image.repo_digests.iter().any(of_digests)
                || *pattern.text == *image.id.as_str()
                || *pattern.text == *image.id.digits()
                || pattern.matches_digest_alone(image)
        });
        pattern.map(|pattern| &pattern.text)
    }

    /// Returns the patterns.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(|pattern| &*pattern.text)
    }

    /// Returns this list followed by another one.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self { patterns: self.patterns.iter().chain(&other.patterns).cloned().collect() }
    }
}

impl Pattern {
    fn new(text: &str) -> Self {
        let in_full = full_repository(text);
        // A `*` alone is not a name, and neither are digits.
        let is_name = in_full != text && !text.starts_with(['*', '/']) && !text.starts_with("sha256:");
        Self { text: text.into(), glob: Glob::new(text), in_full: is_name.then(|| Glob::new(&in_full)) }
    }

    fn matches(&self, name: &str) -> bool {
        self.glob.covers(name) || self.in_full.as_ref().is_some_and(|glob| glob.covers(name))
    }

    /// Matches the full name of a tag, for runtimes that list short names.
    fn matches_tag_in_full(&self, tag: &str) -> bool {
        match full_repository(tag) {
            std::borrow::Cow::Borrowed(_) => false,
            std::borrow::Cow::Owned(tag) => self.matches(&tag),
        }
    }

    /// Matches `sha256:…` as the digest of a manifest, in any repository.
    fn matches_digest_alone(&self, image: &Image) -> bool {
        let digests = || image.repo_digests.iter().filter_map(|name| name.split_once('@'));
        self.text.starts_with("sha256:") && digests().any(|(_, digest)| self.glob.matches(digest))
    }

    fn is_repository(&self, repository: &str) -> bool {
        self.glob.matches(repository) || self.in_full.as_ref().is_some_and(|glob| glob.matches(repository))
    }
}

impl Glob {
    fn new(text: &str) -> Self {
        let start = text.find('*').unwrap_or(text.len());
        let end = text.rfind('*').map_or(text.len(), |last| text.len() - last - 1);
        Self { text: text.into(), ends: (start, end) }
    }

    fn covers(&self, name: &str) -> bool {
        self.matches(name)
            || name.split_once('@').is_some_and(|(repository, _)| self.matches(repository))
            || name.rsplit_once(':').is_some_and(|(repository, tag)| {
                !tag.contains('/')
                    && !repository.contains('@')
                    && repository != "sha256"
                    && self.matches(repository)
            })
    }

    /// Matches a text. The parts before the first `*` and after the last one decide most cases immediately.
    fn matches(&self, text: &str) -> bool {
        let (pattern, text) = (self.text.as_bytes(), text.as_bytes());
        let (start, end) = (&pattern[..self.ends.0], &pattern[pattern.len() - self.ends.1..]);
        text.starts_with(start) && text.ends_with(end) && matches(pattern, text)
    }
}

/// Matches a glob with `*` only, without backtracking over more than the last `*`: linear in practice, and bounded by the product
/// of both lengths.
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
    fn a_pattern_matches_by_tag_repository_prefix_digest_and_identifier() {
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
            ("sha256:feed", true),
            ("sha256:fee", false),
            ("*:1*", true),
            ("*", true),
            (id(7).as_str(), true),
            (id(7).digits(), true),
            (id(8).as_str(), false),
            ("sha256", false),
            ("*@sha256", false),
        ] {
            let list = ImagePatterns::new([pattern]).expect("valid");
            assert_eq!(list.matching(&subject).is_some(), kept, "{pattern}");
        }
    }

    /// The port of a registry is no tag.
    #[test]
    fn a_registry_alone_is_no_repository() {
        let mut subject = image(7, 1);
        subject.repo_tags = vec!["registry.example:5000/app".into()];
        subject.repo_digests.clear();
        for (pattern, kept) in [("registry.example", false), ("registry.example:5000/app", true)] {
            let list = ImagePatterns::new([pattern]).expect("valid");
            assert_eq!(list.matching(&subject).is_some(), kept, "{pattern}");
        }
    }

    #[test]
    fn short_and_old_names_of_docker_hub_count() {
        for (tag, pattern, kept) in [
            ("docker.io/library/nginx:1", "nginx", true),
            ("docker.io/library/nginx:1", "nginx:1", true),
            ("docker.io/library/nginx:1", "docker.io/nginx:1", true),
            ("docker.io/library/nginx:1", "index.docker.io/library/*", true),
            ("docker.io/library/nginx:1", "index.docker.io/*", true),
            ("docker.io/team/app:1", "index.docker.io/*", true),
            ("registry.example/app:1", "index.docker.io/*", false),
            ("docker.io/library/nginx:1", "nginx:2", false),
            ("docker.io/team/app:1", "team/app", true),
            ("docker.io/team/app:1", "app", false),
            ("registry.example/nginx:1", "nginx", false),
            // Listed by a runtime that omits the registry.
            ("nginx:1", "docker.io/library/nginx", true),
        ] {
            let mut subject = image(7, 1);
            subject.repo_tags = vec![tag.into()];
            let list = ImagePatterns::new([pattern]).expect("valid");
            assert_eq!(list.matching(&subject).is_some(), kept, "{tag} {pattern}");
        }
    }

    /// Images to remove are matched more narrowly than images to keep: `*:f*` is about tags.
    #[test]
    fn a_pattern_for_removal_does_not_reach_into_digests() {
        let mut tagged = image(7, 1);
        tagged.repo_tags = vec!["docker.io/library/nginx:1.27".into()];
        tagged.repo_digests = vec!["docker.io/library/nginx@sha256:feed".into()];
        let bare = Image { repo_tags: Vec::new(), ..tagged.clone() };
        for (pattern, of_tagged, of_bare) in [
            ("nginx", true, true),
            ("nginx:1.27", true, false),
            ("*:1.*", true, false),
            ("*:f*", false, false),
            ("*/nginx", true, true),
            ("docker.io/library/*", true, true),
            ("*@sha256:feed", true, true),
            ("nginx@sha256:feed", true, true),
            ("nginx@sha256:f00d", false, false),
            ("sha256:feed", true, true),
            (id(7).as_str(), true, true),
            (id(7).digits(), true, true),
            ("sha256:0*", false, false),
        ] {
            let list = ImagePatterns::new([pattern]).expect("valid");
            let found = [&tagged, &bare].map(|image| list.matching_narrowly(image).is_some());
            assert_eq!(found, [of_tagged, of_bare], "{pattern}");
            assert!(list.matching(&tagged).is_some() || !of_tagged, "{pattern}");
        }
    }

    /// T30: protection follows the tag, and not the image that once had it.
    #[test]
    fn protection_follows_a_tag_that_moves() {
        let list = ImagePatterns::new(["registry.example/app:live"]).expect("valid");
        let (mut old, mut new) = (image(1, 1), image(2, 1));
        old.repo_tags = vec!["registry.example/app:live".into()];
        assert!(list.matching(&old).is_some() && list.matching(&new).is_none());
        new.repo_tags = std::mem::take(&mut old.repo_tags);
        assert!(list.matching(&old).is_none() && list.matching(&new).is_some());
    }

    #[test]
    fn bad_patterns_are_named() {
        let many = vec!["a"; MAX_PATTERNS + 1];
        assert_eq!(ImagePatterns::new(["a", ""]), Err(PatternError::Empty { position: 2 }));
        assert_eq!(ImagePatterns::new(["a b"]), Err(PatternError::WhiteSpace { pattern: "a b".into() }));
        assert_eq!(ImagePatterns::new(many), Err(PatternError::TooMany { count: MAX_PATTERNS + 1 }));
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
            prop_assert_eq!(Glob::new(&pattern).matches(&text), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
