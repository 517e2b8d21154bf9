//! Translates patterns of Go's package `regexp` to the syntax of the crate `regex`.

use std::fmt::Write as _;

/// Rewrites a pattern so that the crate reads it as Go does: classes such as `\w` and word boundaries are limited to ASCII, only
/// ranges and named classes are special in brackets, and a brace that does not begin a repetition is literal.
pub(crate) fn rewritten(pattern: &str) -> String {
    let mut rewriting =
        Rewriting { rest: pattern, out: String::with_capacity(pattern.len() * 2), class: None };
    while let Some(next) = rewriting.take() {
        rewriting.step(next);
    }
    rewriting.out
}

struct Rewriting<'a> {
    rest: &'a str,
    out: String,
    /// Set within brackets; true while they have no member.
    class: Option<bool>,
}

impl Rewriting<'_> {
    fn take(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    /// Consumes a text if it follows.
    fn takes(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn step(&mut self, next: char) {
        let Some(is_empty) = self.class else { return self.outside(next) };
        self.class = Some(false);
        match next {
            '\\' => self.escaped(),
            '[' => match self.rest.find(":]").filter(|_| self.rest.starts_with(':')) {
                Some(end) => {
                    self.out.push('[');
                    self.out.push_str(&self.rest[..end + 2]);
                    self.rest = &self.rest[end + 2..];
                }
                None => self.out.push_str("\\["),
            },
            ']' if is_empty => self.out.push_str("\\]"),
            ']' => {
                self.class = None;
                self.out.push(']');
            }
            // Doubled, these would be set operators.
            '&' | '~' => self.out.extend(['\\', next]),
            '-' if self.rest.starts_with('-') && is_empty => self.out.push_str("\\-"),
            '-' if self.takes("-") => self.out.push_str("-\\-"),
            other => self.out.push(other),
        }
    }

    fn outside(&mut self, next: char) {
        match next {
            '\\' => self.escaped(),
            '[' => {
                self.out.push('[');
                if self.takes("^") {
                    self.out.push('^');
                }
                self.class = Some(true);
            }
            '{' if !begins_repetition(self.rest) => self.out.push_str("\\{"),
            other => self.out.push(other),
        }
    }

    /// Rewrites an escape after its backslash.
    fn escaped(&mut self) {
        let Some(next) = self.take() else { return self.out.push('\\') };
        let is_outside = self.class.is_none();
        match next {
            'w' => self.out.push_str("[0-9A-Za-z_]"),
            'W' => self.out.push_str("[^0-9A-Za-z_]"),
            'd' => self.out.push_str("[0-9]"),
            'D' => self.out.push_str("[^0-9]"),
            's' => self.out.push_str("[\\t\\n\\f\\r ]"),
            'S' => self.out.push_str("[^\\t\\n\\f\\r ]"),
            'b' if is_outside => self.out.push_str("(?-u:\\b)"),
            'B' if is_outside => self.out.push_str("(?-u:\\B)"),
            'Q' if is_outside => {
                let (literal, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
                self.out.push_str(&regex_syntax::escape(literal));
                self.rest = rest;
            }
            // In the crate's syntax, these escapes would be word boundaries.
            '<' | '>' => self.out.push(next),
            // The braces of `\x{b5}` and `\p{Greek}` belong to the escape.
            'x' | 'p' | 'P' if self.rest.starts_with('{') => {
                let end = self.rest.find('}').map_or(self.rest.len(), |end| end + 1);
                self.out.extend(['\\', next]);
                self.out.push_str(&self.rest[..end]);
                self.rest = &self.rest[end..];
            }
            '0'..='7' => self.octal(next),
            other => self.out.extend(['\\', other]),
        }
    }

    /// Rewrites an octal escape; a single digit would be a back-reference, which Go does not support either.
    fn octal(&mut self, first: char) {
        /// Maximum number of digits after the first.
        const MORE: usize = 2;
        let more = self.rest.bytes().take(MORE).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
        if first != '0' && more == 0 {
            return self.out.extend(['\\', first]);
        }
        let digits = format!("{first}{}", &self.rest[..more]);
        self.rest = &self.rest[more..];
        let number = u32::from_str_radix(&digits, 8).unwrap_or_default();
        let _ = write!(self.out, "\\x{{{number:X}}}"); // writing to a String does not fail
    }
}

/// Reports whether the text after a brace is a repetition such as `3}`, `3,}` or `3,5}`.
fn begins_repetition(rest: &str) -> bool {
    let Some((inner, _)) = rest.split_once('}') else { return false };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match inner.split_once(',') {
        None => is_number(inner),
        Some((least, most)) => is_number(least) && (most.is_empty() || is_number(most)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use crate::compile_pattern;

    /// The expected matches are Go's.
    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        for (pattern, text, matches) in [
            (r"^\w+$", "aZ_9", true),
            (r"^\w$", "é", false),
            (r"^\W$", "é", true),
            (r"^\d$", "٣", false),
            (r"^\s$", "\u{a0}", false),
            (r"^\S$", "\u{a0}", true),
            (r"^[^\W]$", "a", true),
            (r"^[\w-.]+$", "a-.b", true),
            (r"\bé", " é", false),
            (r"\ba\B", " ab", true),
            ("^[[a]+$", "[a[", true),
            ("^[a&&b]+$", "&ab", true),
            ("^[]a]+$", "]a", true),
            ("^[^]a]$", "]", false),
            ("^[--/]+$", "-./", true),
            ("^[+--]+$", "+,-", true),
            ("^[[:alpha:]0]+$", "a0", true),
            (r"^[\]a]$", "]", true),
            ("^{.*}$", "{x}", true),
            ("^a{,2}$", "a{,2}", true),
            ("^a{1,2}$", "aa", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^\<\>$", "<>", true),
            (r"^\012\x41$", "\nA", true),
            (r"^.$", "é", true),
            (r"^\pL$", "é", true),
            (r"^\x{e9}\p{Greek}[\x{b5}\P{Latin}]$", "éα1", true),
        ] {
            let compiled = compile_pattern(pattern).unwrap();
            assert_eq!(compiled.is_match(text), matches, "{pattern} in {text:?}");
        }
        assert!(compile_pattern(r"(a)\1").is_err());
        assert!(compile_pattern("[a").is_err());
    }

    /// From a definition of OpenShift, which was refused: its `\w` covered all languages and became too large.
    #[test]
    fn patterns_of_images_are_small() {
        let tag = r".*:([\w][\w.-]{0,127})$";
        assert!(compile_pattern(tag).unwrap().is_match("quay.io/a/b:v1.2"));
        let scope = concat!(
            r"^((((?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])(?:\.(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]))+(?::[0-9]+)?)",
            r"|(localhost(?::[0-9]+)?))(?:(?:/[a-z0-9]+(?:(?:(?:[._]|__|[-]*)[a-z0-9]+)+)?)+)?)(?::([\w][\w.-]{0,127}))?",
            r"(?:@([A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*[:][[:xdigit:]]{32,}))?$",
        );
        assert!(compile_pattern(scope).unwrap().is_match("quay.io/a/b:v1.2"));
    }
}
