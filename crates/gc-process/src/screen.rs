//! Text for users: the only way in which text from other sources reaches the terminal. Names, reasons and messages come from
//! whoever writes objects; characters that would control the terminal or reorder the line are shown in escaped form.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Prints a line for users to standard error, like `eprintln!`.
#[doc(hidden)]
#[macro_export]
macro_rules! __complain {
    ($($argument:tt)*) => { $crate::screen::complain_line(format_args!($($argument)*)) };
}
pub use __complain as complain;

/// Reports whether a character is not displayed as itself: a control character, including those of C1, or one that changes the
/// direction or order of text.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn is_layout(c: char) -> bool {
    matches!(c, '\n' | '\t')
}

/// Escapes hidden characters as `\u{1b}`, except those that `keeps` allows.
fn escaped(text: &str, keeps: impl Fn(char) -> bool) -> Cow<'_, str> {
    let hidden = |c: char| is_hidden(c) && !keeps(c);
    if !text.contains(hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hidden(c) {
            let _ = write!(shown, "{}", c.escape_unicode()); // writing to a String cannot fail
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Returns a text of several lines with hidden characters escaped.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, is_layout)
}

/// Returns a text that is one line, or part of one, with hidden characters escaped, including line feeds.
#[must_use]
pub fn visible_line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Returns a document as JSON without any literal hidden character. Such a character can only be part of a string, where its number
/// stands for it, so the document keeps its meaning.
#[must_use]
pub fn visible_json(document: &str) -> String {
    let mut shown = String::with_capacity(document.len());
    for c in document.chars() {
        if is_hidden(c) && !is_layout(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(shown, "\\u{unit:04x}"); // writing to a String cannot fail
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Escapes the hidden characters in all texts of a document, for views that draw them.
fn make_visible(document: &mut Value) {
    match document {
        Value::String(text) => {
            if let Cow::Owned(shown) = visible_line(text) {
                *text = shown;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_visible),
        Value::Object(fields) => fields.values_mut().for_each(make_visible),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Reads a document with all of its texts made visible.
///
/// # Errors
/// Returns an error if it is not such a document.
pub fn decoded<T: DeserializeOwned>(document: &[u8]) -> serde_json::Result<T> {
    let mut document: Value = serde_json::from_slice(document)?;
    make_visible(&mut document);
    serde_json::from_value(document)
}

/// True once `--no-headers` was given: like the width of the terminal, it applies to everything that this process prints.
static WITHOUT_HEADINGS: AtomicBool = AtomicBool::new(false);

/// Omits the headings from all tables that this process prints from now on.
pub fn leave_out_headings() {
    WITHOUT_HEADINGS.store(true, Ordering::Relaxed);
}

/// Reports whether tables have their headings.
#[must_use]
pub fn has_headings() -> bool {
    !WITHOUT_HEADINGS.load(Ordering::Relaxed)
}

/// Reports whether a line from another process is the heading of a table: several columns and no lowercase letter, which every
/// object's kind and every verdict has.
#[must_use]
pub fn is_headings(line: &str) -> bool {
    line.trim().contains("  ")
        && line.contains(char::is_uppercase)
        && !line.contains(|c: char| c.is_lowercase() || c.is_ascii_digit())
}

/// Returns standard output for text that users read.
#[must_use]
pub fn stdout() -> Screen<io::Stdout> {
    Screen::new(io::stdout())
}

/// Prints a line for users to standard error.
pub fn complain_line(line: fmt::Arguments<'_>) {
    let text = line.to_string();
    // As with `eprintln!`, the reader may be gone; here that is not a reason to panic.
    let _ = writeln!(io::stderr(), "{}", visible(&text));
}

/// A writer that escapes hidden characters. Invalid UTF-8 is written as the replacement character.
#[derive(Debug)]
pub struct Screen<W> {
    out: W,
    /// Beginning of a character whose end was not written yet.
    begun: Vec<u8>,
}

impl<W: Write> Screen<W> {
    /// Creates a writer to `out`.
    pub const fn new(out: W) -> Self {
        Self { out, begun: Vec::new() }
    }
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        let mut shown = String::new();
        let mut chunks = all.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            shown.push_str(&visible(chunk.valid()));
            let invalid = chunk.invalid();
            // At the end, this may be a character that another write completes.
            let is_begun = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if chunks.peek().is_none() && is_begun {
                self.begun = invalid.to_vec();
            } else if !invalid.is_empty() {
                shown.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.out.write_all(shown.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::*;

    const HOSTILE: &str = "a\u{1b}[2Jb\u{9b}31mc\u{7f}d\u{202e}e\u{2066}f\u{200f}g\rh\u{85}i";

    fn written(parts: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out);
        for part in parts {
            screen.write_all(part).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn nothing_commands_the_terminal() {
        let shown = "a\\u{1b}[2Jb\\u{9b}31mc\\u{7f}d\\u{202e}e\\u{2066}f\\u{200f}g\\u{d}h\\u{85}i";
        assert_eq!(visible(HOSTILE), shown);
        assert_eq!(visible("häuser\n\t日本 🦀"), "häuser\n\t日本 🦀");
        assert_eq!(visible_line("a\nb"), "a\\u{a}b");
        assert_eq!(written(&[HOSTILE.as_bytes()]), shown);
        let bytes: Vec<&[u8]> = HOSTILE.as_bytes().chunks(1).collect();
        assert_eq!(written(&bytes), shown, "in whatever pieces it comes");
        assert_eq!(written(&[b"a\xffb\xc3", b"(", b"\xc3\xa4"]), "a\u{fffd}b\u{fffd}(ä");
    }

    #[test]
    fn headings_are_no_rows() {
        for (line, expected) in [
            ("AGE   NAMESPACE   OBJECT         CAUSE", true),
            ("#   IMAGE   ID   SIZE   FREES   AGE   LAST USED   WHY", true),
            ("5m    shop        ConfigMap/HELD   FinalizerHeld", false),
            ("-     -           1", false),
            ("", false),
            ("STUCK", false),
        ] {
            assert_eq!(is_headings(line), expected, "{line:?}");
        }
    }

    #[test]
    fn json_means_the_same() {
        let document = json!({"name": HOSTILE, "tag": "\u{e0041}", "list": ["ä\n"]});
        let text = visible_json(&serde_json::to_string_pretty(&document).unwrap());
        assert!(!text.contains(|c| is_hidden(c) && c != '\n'), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), document);
        let mut shown = document;
        make_visible(&mut shown);
        assert!(!shown.to_string().contains(is_hidden), "{shown}");
    }
}
