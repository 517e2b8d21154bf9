//! Rules by reference: which images are kept, removed last or unwanted, regardless of who uses or needs them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::Image;
use super::patterns::{ImagePatterns, PatternError};

/// Treatment of images that match a pattern while nothing uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Never removed, as if they were protected.
    Always,
    /// Removed for space after all others, and not because of their age.
    Last,
    /// Treated like any other image, even if workloads will need it later. An annotation `always` and a protection take precedence.
    Never,
}

impl Keep {
    /// Returns its name in flags.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Last => "last",
            Self::Never => "never",
        }
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A pattern, and how images that match it are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepRule {
    pattern: ImagePatterns,
    keep: Keep,
}

/// Reason why a rule is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepRuleError {
    /// Has another form.
    #[error("{text:?}: expected PATTERN=always, PATTERN=last or PATTERN=never")]
    Form {
        /// The rule.
        text: Arc<str>,
    },
    /// Its pattern is invalid.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

impl KeepRule {
    /// Creates a rule with one pattern.
    pub fn new(pattern: &str, keep: Keep) -> Result<Self, PatternError> {
        Ok(Self { pattern: ImagePatterns::new([pattern])?, keep })
    }
}

impl FromStr for KeepRule {
    type Err = KeepRuleError;

    /// Parses `PATTERN=always`.
    fn from_str(text: &str) -> Result<Self, KeepRuleError> {
        let form = || KeepRuleError::Form { text: text.into() };
        let (pattern, word) = text.rsplit_once('=').ok_or_else(form)?;
        let all = [Keep::Always, Keep::Last, Keep::Never];
        let keep = all.into_iter().find(|keep| keep.name() == word).ok_or_else(form)?;
        Ok(Self::new(pattern, keep)?)
    }
}

/// Rules of a node. Of those that an image matches, the first counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceRules {
    /// Rules about keeping images.
    pub keep: Vec<KeepRule>,
    /// Images that are removed as soon as nothing uses, pins or protects them, regardless of their age and the disk usage.
    pub unwanted: ImagePatterns,
}

impl ReferenceRules {
    /// Returns how an image is kept, with the matching pattern.
    #[must_use]
    pub fn keep(&self, image: &Image) -> Option<(Keep, &Arc<str>)> {
        self.keep.iter().find_map(|rule| Some((rule.keep, rule.pattern.matching(image)?)))
    }

    /// Reports whether an image is to be removed as soon as possible.
    #[must_use]
    pub fn is_unwanted(&self, image: &Image) -> bool {
        self.unwanted.matching_narrowly(image).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::image;
    use super::*;

    #[test]
    fn a_rule_is_a_pattern_and_a_word() {
        for (text, expected) in [
            ("registry.example/*=always", Some(Keep::Always)),
            ("nginx=last", Some(Keep::Last)),
            ("sha256:12=never", Some(Keep::Never)),
            ("nginx", None),
            ("nginx=often", None),
            ("=last", None),
            ("a b=last", None),
        ] {
            let found = text.parse::<KeepRule>();
            assert_eq!(found.as_ref().ok().map(|rule| rule.keep), expected, "{text}: {found:?}");
        }
    }

    #[test]
    fn the_first_rule_that_an_image_matches_counts() {
        let texts = ["registry.example/image-1=never", "registry.example/*=last", "*=always"];
        let keep = texts.map(|text| text.parse().expect("a rule")).to_vec();
        let rules = ReferenceRules { keep, ..ReferenceRules::default() };
        let mut other = image(3, 1);
        other.repo_tags = vec!["other.example/app:1".into()];
        other.repo_digests.clear();
        let found = [image(1, 1), image(2, 1), other].map(|one| rules.keep(&one).map(|(keep, _)| keep));
        assert_eq!(found, [Keep::Never, Keep::Last, Keep::Always].map(Some));
        assert_eq!(ReferenceRules::default().keep(&image(1, 1)), None);
    }

    #[test]
    fn a_word_is_written_as_it_is_read() {
        for keep in [Keep::Always, Keep::Last, Keep::Never] {
            let rule: KeepRule = format!("nginx={keep}").parse().expect("a rule");
            assert_eq!(rule.keep, keep);
        }
        assert_eq!(image(1, 1).id.to_string(), format!("sha256:{:064x}", 1));
    }
}
