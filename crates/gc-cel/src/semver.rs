//! Semantic versions.

use std::cmp::Ordering;
use std::fmt;

/// A semantic version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Semver {
    pub(crate) numbers: [u64; 3],
    pre_release: Vec<String>,
    build: String,
}

impl fmt::Display for Semver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        if !self.pre_release.is_empty() {
            write!(f, "-{}", self.pre_release.join("."))?;
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build)?;
        }
        Ok(())
    }
}

impl Semver {
    /// Parses a version; tolerant parsing accepts a leading `v`, leading zeros and missing numbers.
    pub(crate) fn parse(text: &str, tolerant: bool) -> Option<Self> {
        let text = if tolerant { text.strip_prefix('v').unwrap_or(text) } else { text };
        let (text, build) = text.split_once('+').map_or((text, None), |(text, build)| (text, Some(build)));
        let (core, pre) = text.split_once('-').map_or((text, None), |(core, pre)| (core, Some(pre)));
        let mut numbers = Vec::new();
        for part in core.split('.') {
            let zero_first = part.len() > 1 && part.starts_with('0') && !tolerant;
            if part.is_empty() || zero_first || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            numbers.push(part.parse().ok()?);
        }
        if tolerant && build.is_none() && pre.is_none() {
            while numbers.len() < 3 {
                numbers.push(0);
            }
        }
        let is_word = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let pre: Vec<String> = pre.map(|pre| pre.split('.').map(str::to_owned).collect()).unwrap_or_default();
        let pre_fits = pre
            .iter()
            .all(|part| is_word(part) && !(is_number(part) && part.len() > 1 && part.starts_with('0')));
        if !pre_fits || !build.is_none_or(|build| build.split('.').all(is_word)) {
            return None;
        }
        let numbers = numbers.try_into().ok()?;
        Some(Self { numbers, pre_release: pre, build: build.unwrap_or_default().to_owned() })
    }

    /// The precedence of two versions, which ignores builds.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| {
            match (self.pre_release.is_empty(), other.pre_release.is_empty()) {
                (true, true) => Ordering::Equal,
                (true, false) => Ordering::Greater,
                (false, true) => Ordering::Less,
                (false, false) => {
                    let parts = self.pre_release.iter().zip(&other.pre_release);
                    let first = parts.map(|(a, b)| compare_parts(a, b)).find(|order| order.is_ne());
                    first.unwrap_or_else(|| self.pre_release.len().cmp(&other.pre_release.len()))
                }
            }
        })
    }
}

fn compare_parts(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}
