//! Errors in expressions, with their position.

use std::fmt;

/// One error in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Issue {
    /// Position of the error, as an offset in bytes.
    pub(crate) at: usize,
    pub(crate) message: String,
}

impl Issue {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }

    pub(crate) fn syntax(at: usize, message: impl fmt::Display) -> Self {
        Self { at, message: format!("Syntax error: {message}") }
    }
}

/// Maximum number of reported issues.
pub(crate) const MOST_ISSUES: usize = 100;

/// Maximum number of characters of a line that are shown below an issue.
const LONGEST_SNIPPET: usize = 16_384;

/// Prints issues in CEL's format: position, message, the line and a mark below the position.
pub(crate) fn printed(text: &str, issues: &[Issue]) -> String {
    let mut issues: Vec<&Issue> = issues.iter().take(MOST_ISSUES).collect();
    issues.sort_by_key(|issue| issue.at);
    issues.iter().map(|issue| printed_issue(text, issue)).collect::<Vec<_>>().join("\n")
}

fn printed_issue(text: &str, issue: &Issue) -> String {
    // An empty source has no line to show.
    if text.is_empty() {
        return format!("ERROR: <input>:1:0: {}", issue.message);
    }
    let before = text.get(..issue.at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let number = before.matches('\n').count() + 1;
    let column = before[line_start..].chars().count();
    let line = text[line_start..].lines().next().unwrap_or_default();
    let heading = format!("ERROR: <input>:{number}:{}: {}", column + 1, issue.message);
    if line.len() > LONGEST_SNIPPET {
        return heading;
    }
    let wide = |c: char, narrow: char, wide: char| if c.len_utf8() > 1 { wide } else { narrow };
    let mut characters = line.chars();
    let mut mark: String = characters.by_ref().take(column).map(|c| wide(c, '.', '\u{ff0e}')).collect();
    mark.push(characters.next().map_or('^', |c| wide(c, '^', '\u{ff3e}')));
    format!("{heading}\n | {}\n | {mark}", line.replace('\t', " "))
}
