//! Quoted texts as Go writes them.

use std::fmt::Write as _;

/// Quotes a text like Go's `%q`.
///
/// ```
/// assert_eq!(gc_types::quoted("a\"b\n"), r#""a\"b\n""#);
/// ```
#[must_use]
pub fn quoted(text: &str) -> String {
    quoted_with(text, |c, out| {
        // Writing to a String cannot fail.
        let _ = match c {
            c if c.is_ascii_control() => write!(out, "\\x{:02x}", u32::from(c)),
            c if is_printed(c) => out.write_char(c),
            c if u32::from(c) <= 0xffff => write!(out, "\\u{:04x}", u32::from(c)),
            c => write!(out, "\\U{:08x}", u32::from(c)),
        };
    })
}

/// Reports whether Go prints a character (other than ASCII control characters) as it is: letters, marks, numbers, punctuation,
/// symbols and the space. Rust's debug format prints the same characters, except for marks at the beginning of a text.
fn is_printed(c: char) -> bool {
    c.is_ascii() || String::from_iter(['a', c]).escape_debug().count() == 2
}

/// Quotes a text with Go's named escapes; `other` writes all other characters.
pub fn quoted_with(text: &str, other: impl Fn(char, &mut String)) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let escape = match c {
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\u{c}' => 'f',
            '\n' => 'n',
            '\r' => 'r',
            '\t' => 't',
            '\u{b}' => 'v',
            '\\' | '"' => c,
            _ => {
                other(c, &mut out);
                continue;
            }
        };
        out.extend(['\\', escape]);
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn texts_are_quoted_as_go_quotes_them() {
        for (text, wanted) in [
            ("a\"b\\", r#""a\"b\\""#),
            ("\0\n\u{7f}", r#""\x00\n\x7f""#),
            ("jürgen 😀\u{a0}\u{85}", "\"jürgen 😀\\u00a0\\u0085\""),
            ("a\u{200b}\u{ad}\u{feff}\u{3000}\u{2028}", r#""a\u200b\u00ad\ufeff\u3000\u2028""#),
            ("\u{e000}\u{e0001}\u{10ffff}", r#""\ue000\U000e0001\U0010ffff""#),
            ("e\u{301}'´", "\"e\u{301}'´\""),
        ] {
            assert_eq!(quoted(text), wanted);
        }
    }
}
