//! Regular expressions from untrusted sources: the cost of compiling one is estimated before it is compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use regex::Regex;
use regex_syntax::hir::{Class, Hir, HirKind};

use crate::budget::{Budget, EvalError};
use crate::go_pattern::rewritten;

/// Maximum length of a pattern in bytes.
pub const MAX_PATTERN_BYTES: usize = 16 * 1024;
/// Maximum estimated size of the compiled patterns of one definition, in bytes. A single pattern may take all of it: one for
/// international host names takes a third.
pub const MAX_COMPILED_BYTES: usize = 48 << 20;
/// Maximum size of a compiled pattern of an expression, in bytes. It is far smaller because an object may bring the pattern, and every
/// request in flight may hold its own.
const MAX_EXPRESSION_BYTES: usize = 1 << 20;

/// Fixed number of steps that each pattern costs.
const STEPS_OF_EACH: usize = 500;
/// Steps for each parsed byte: classes such as `[\pL&&\pN]` contain many characters in a few bytes.
const STEPS_OF_A_BYTE: usize = 20;
/// Estimated number of bytes compiled per step. 10 million steps, the budget of an object, take about a second.
const COMPILED_BYTES_OF_A_STEP: u64 = 4;
/// Maximum ratio of the estimate to the actual size, so that every pattern of an expression that would compile is accepted.
const OVERESTIMATE: u64 = 4;
/// Maximum memory of one search for the states that it has met, in bytes.
const SEARCH_BYTES: usize = 512 << 10;

/// The compiled patterns of one evaluation.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    compiled: BTreeMap<String, Arc<Regex>>,
    estimated_bytes: u64,
}

impl Patterns {
    /// Maximum size of remembered compiled patterns, in estimated bytes; beyond it, all are forgotten.
    const MAX_BYTES: u64 = OVERESTIMATE * MAX_EXPRESSION_BYTES as u64;
}

/// Reason why a pattern is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The pattern is longer than [`MAX_PATTERN_BYTES`].
    #[error("the pattern has {0} bytes; at most {MAX_PATTERN_BYTES} are accepted")]
    TooLong(usize),
    /// The compiled pattern would be larger than this number of bytes.
    #[error("Compiled regex exceeds size limit of {0} bytes.")]
    TooLarge(usize),
    /// The text is not a pattern.
    #[error("{0}")]
    Syntax(String),
}

/// Limits of one compiled pattern, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeLimit {
    estimated: u64,
    actual: usize,
}

impl SizeLimit {
    /// Limit of a pattern of a schema.
    pub(crate) const SCHEMA: Self = Self { estimated: MAX_COMPILED_BYTES as u64, actual: MAX_COMPILED_BYTES };
    /// Limit of a pattern of an expression.
    const EXPRESSION: Self = Self { estimated: Patterns::MAX_BYTES, actual: MAX_EXPRESSION_BYTES };
}

/// A parsed pattern that has not been compiled.
pub(crate) struct ParsedPattern {
    /// Pattern in the syntax of the crate that compiles it.
    text: String,
    /// Estimated size of the compiled pattern.
    pub(crate) bytes: u64,
}

impl ParsedPattern {
    pub(crate) fn new(pattern: &str) -> Result<Self, PatternError> {
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(PatternError::TooLong(pattern.len()));
        }
        let text = rewritten(pattern);
        let hir = regex_syntax::parse(&text).map_err(syntax)?;
        Ok(Self { text, bytes: estimate(&hir) })
    }

    /// Compiles the pattern if neither its estimated size nor its actual one exceeds a limit.
    pub(crate) fn compile(&self, limit: SizeLimit) -> Result<Regex, PatternError> {
        self.check_size(limit)?;
        let mut builder = regex::RegexBuilder::new(&self.text);
        let compiled = builder.size_limit(limit.actual).dfa_size_limit(SEARCH_BYTES).build();
        compiled.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => PatternError::TooLarge(limit.actual),
            other => syntax(other),
        })
    }

    fn check_size(&self, limit: SizeLimit) -> Result<(), PatternError> {
        if self.bytes > limit.estimated { Err(PatternError::TooLarge(limit.actual)) } else { Ok(()) }
    }
}

fn syntax(error: impl fmt::Display) -> PatternError {
    PatternError::Syntax(error.to_string())
}

/// Checks a pattern of a schema without compiling it.
///
/// # Errors
/// Fails if the text is not a pattern, or the pattern is too large.
pub fn check_pattern(pattern: &str) -> Result<(), PatternError> {
    ParsedPattern::new(pattern)?.check_size(SizeLimit::SCHEMA)
}

/// Reports whether a text is a pattern that an expression may search with, without compiling it.
pub(crate) fn is_pattern(pattern: &str) -> bool {
    ParsedPattern::new(pattern).is_ok_and(|parsed| parsed.check_size(SizeLimit::EXPRESSION).is_ok())
}

/// Estimated size of the patterns of one definition, each of which counts once.
#[derive(Debug, Default)]
pub struct PatternBudget {
    known: BTreeSet<Box<str>>,
    bytes: u64,
}

impl PatternBudget {
    /// Adds a pattern, and reports whether all of them are within [`MAX_COMPILED_BYTES`]. A text that is not a pattern, or that is
    /// too large by itself, takes nothing: [`check_pattern`] refuses it.
    pub fn takes(&mut self, pattern: &str) -> bool {
        if !self.known.contains(pattern)
            && let Ok(parsed) = ParsedPattern::new(pattern)
            && parsed.check_size(SizeLimit::SCHEMA).is_ok()
        {
            self.known.insert(pattern.into());
            self.bytes = self.bytes.saturating_add(parsed.bytes);
        }
        self.bytes <= MAX_COMPILED_BYTES as u64
    }
}

/// Returns a pattern for searching a text, and spends the cost of compiling it and of the search. A pattern that this evaluation
/// has already compiled only costs the search.
pub(crate) fn searching(pattern: &str, text: &str, budget: &mut Budget) -> Result<Arc<Regex>, EvalError> {
    let wrong = |error: PatternError| EvalError::Failed(format!("error parsing regexp: {error}"));
    // Kubernetes' cost of a search: the product of the lengths, in the worst case.
    budget.spend((text.len() / 10 + 1).saturating_mul(pattern.len() / 4 + 1))?;
    if let Some(compiled) = budget.patterns.compiled.get(pattern) {
        return Ok(Arc::clone(compiled));
    }
    budget.spend(STEPS_OF_EACH + pattern.len().min(MAX_PATTERN_BYTES) * STEPS_OF_A_BYTE)?;
    let parsed = ParsedPattern::new(pattern).map_err(wrong)?;
    budget.spend(usize::try_from(parsed.bytes / COMPILED_BYTES_OF_A_STEP).unwrap_or(usize::MAX))?;
    let compiled = Arc::new(parsed.compile(SizeLimit::EXPRESSION).map_err(wrong)?);
    let patterns = &mut budget.patterns;
    if patterns.estimated_bytes.saturating_add(parsed.bytes) > Patterns::MAX_BYTES {
        *patterns = Patterns::default();
    }
    patterns.estimated_bytes = patterns.estimated_bytes.saturating_add(parsed.bytes);
    patterns.compiled.insert(pattern.to_owned(), Arc::clone(&compiled));
    Ok(compiled)
}

/// Estimates the size of a compiled pattern in bytes.
fn estimate(hir: &Hir) -> u64 {
    /// Size of an automaton state in bytes.
    const STATE: u64 = 32;
    /// Size of a character range in bytes: a range consists of a few byte sequences.
    const RANGE: u64 = 90;
    let all = |parts: &[Hir]| parts.iter().map(estimate).fold(0, u64::saturating_add);
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => STATE,
        HirKind::Literal(literal) => STATE.saturating_mul(literal.0.len() as u64),
        HirKind::Class(Class::Unicode(class)) => RANGE.saturating_mul(class.ranges().len() as u64),
        HirKind::Class(Class::Bytes(class)) => STATE.saturating_mul(class.ranges().len() as u64),
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or_else(|| repetition.min.saturating_add(1)).max(1);
            estimate(&repetition.sub).saturating_add(STATE).saturating_mul(times.into())
        }
        HirKind::Capture(capture) => estimate(&capture.sub).saturating_add(2 * STATE),
        HirKind::Concat(parts) => all(parts),
        HirKind::Alternation(parts) => all(parts).saturating_add(STATE),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    /// A pattern that is too large must be refused without being compiled, and its cost spent: the budget of an object pays for few
    /// of them.
    #[test]
    fn large_patterns_cost_what_they_compile_to() {
        let cost = |pattern: &str| {
            let mut budget = Budget::new(u64::MAX);
            let result = searching(pattern, "", &mut budget).map(drop);
            (u64::MAX - budget.left(), result)
        };
        let too_large = Err(EvalError::Failed(format!(
            "error parsing regexp: {}",
            PatternError::TooLarge(MAX_EXPRESSION_BYTES)
        )));
        for pattern in [r"\pL{900}", r"(\pL{30}){30}", r"(?i)[\pL\pN]{500}", r"(((a{100}){100}){100}){100}"] {
            let (spent, result) = cost(pattern);
            assert!(spent > 1_000_000, "{pattern}: {spent}");
            assert_eq!(result, too_large, "{pattern}");
        }
        for pattern in ["^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", r"^\d+(\.\d+){1,2}$", "a|b|c"] {
            let (spent, result) = cost(pattern);
            assert!(spent < 20_000, "{pattern}: {spent}");
            assert_eq!(result, Ok(()), "{pattern}");
        }
        let long = "a".repeat(MAX_PATTERN_BYTES + 1);
        assert!(matches!(cost(&long).1, Err(EvalError::Failed(why)) if why.contains("at most 16384")));
    }

    #[test]
    fn a_pattern_is_compiled_once_in_an_evaluation() {
        let mut budget = Budget::new(100_000);
        searching("[a-z]+", "abc", &mut budget).unwrap();
        let first = 100_000 - budget.left();
        for _ in 0..100 {
            searching("[a-z]+", "abc", &mut budget).unwrap();
        }
        assert_eq!(100_000 - budget.left(), first + 100 * 2);
    }

    /// The cache of patterns must be bounded regardless of the budget.
    #[test]
    fn remembered_patterns_are_bounded() {
        let mut budget = Budget::new(u64::MAX);
        for number in 0..400 {
            searching(&format!(r"\pL{{3}}{number}"), "", &mut budget).unwrap();
            assert!(budget.patterns.estimated_bytes <= Patterns::MAX_BYTES);
        }
        assert!(budget.patterns.compiled.len() < 100);
    }

    /// What is remembered is counted in estimated bytes, so that the estimate must not be too low.
    #[test]
    fn patterns_compile_to_at_most_the_estimate() {
        for pattern in [
            r"\w{1,12}",
            r"[\w.-]{1,8}@[\w.-]+",
            r"\pL{40}",
            r"(-?[a-z0-9\p{S}\p{L}]{0,62})?",
            "(a{10}){100}",
            "x{1000}",
        ] {
            let parsed = ParsedPattern::new(pattern).unwrap();
            let most = usize::try_from(parsed.bytes).unwrap();
            let compiled = regex::RegexBuilder::new(&parsed.text).size_limit(most).build();
            assert!(compiled.is_ok(), "{pattern}: more than {most} bytes");
        }
    }

    #[test]
    fn patterns_of_a_definition_count_once_and_together() {
        let mut budget = PatternBudget::default();
        for _ in 0..3 {
            assert!(budget.takes(r"\pL{400}"));
        }
        assert!(budget.takes("(") && budget.takes(r"\pL{1000}"), "refused by themselves");
        assert!(budget.takes(r"a\pL{400}"));
        assert!(!budget.takes(r"b\pL{400}"));
        assert!(!budget.takes("a"));
    }
}
