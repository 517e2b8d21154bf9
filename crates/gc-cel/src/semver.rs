//! Semantic versions.

use std::cmp::Ordering;
use std::fmt;

use crate::text::quoted;

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
    /// Parses a version; tolerant parsing accepts a leading `v`, leading zeros and missing numbers. The error explains the defect.
    pub(crate) fn parse(text: &str, tolerant: bool) -> Result<Self, String> {
        if tolerant { Self::strict(&normalized(text)?) } else { Self::strict(text) }
    }

    fn strict(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts[..] else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
        let numbers = [number(major, "major")?, number(minor, "minor")?, number(patch, "patch")?];
        let parts = |text: Option<&str>| -> Vec<String> {
            text.map(|text| text.split('.').map(str::to_owned).collect()).unwrap_or_default()
        };
        let (pre_release, build_parts) = (parts(pre), parts(build));
        for part in &pre_release {
            if part.is_empty() {
                return Err("Prerelease is empty".to_owned());
            }
            let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
            if is_number && part.len() > 1 && part.starts_with('0') {
                let part = quoted(part);
                return Err(format!("Numeric PreRelease version must not contain leading zeroes {part}"));
            }
            if !is_word(part) {
                return Err(format!("Invalid character(s) found in prerelease {}", quoted(part)));
            }
        }
        for part in &build_parts {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !is_word(part) {
                return Err(format!("Invalid character(s) found in build meta data {}", quoted(part)));
            }
        }
        Ok(Self { numbers, pre_release, build: build.unwrap_or_default().to_owned() })
    }

    /// Compares two versions by precedence, which ignores build metadata.
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

fn is_word(part: &str) -> bool {
    part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Parses one of the three numbers.
fn number(text: &str, which: &str) -> Result<u64, String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {which} number {}", quoted(text)));
    }
    if text.len() > 1 && text.starts_with('0') {
        let (first, rest) = which.split_at(1);
        let which = first.to_ascii_uppercase() + rest;
        return Err(format!("{which} number must not contain leading zeroes {}", quoted(text)));
    }
    text.parse().map_err(|_| {
        let why = if text.is_empty() { "invalid syntax" } else { "value out of range" };
        format!("strconv.ParseUint: parsing {}: {why}", quoted(text))
    })
}

/// Converts a version to strict form: without a leading `v` and leading zeros, and with three numbers.
fn normalized(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text
        .splitn(3, '.')
        .map(|part| {
            let kept = part.trim_start_matches('0');
            let zero = part.len() > 1 && !kept.starts_with(|c: char| c.is_ascii_digit());
            if part.len() <= 1 { part.to_owned() } else { format!("{}{kept}", if zero { "0" } else { "" }) }
        })
        .collect();
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}

fn compare_parts(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}
