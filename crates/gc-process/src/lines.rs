//! Bounded reading of lines that others have written.

use std::io::{BufRead, Read as _, Result};

/// A line.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Complete, with its newline.
    Whole(&'a [u8]),
    /// The last line, without a newline: its writer may be in the middle of it, or was killed there.
    Torn(&'a [u8]),
    /// Skipped because it exceeds the bound.
    TooLong,
}

impl<'a> Line<'a> {
    /// Returns the text of the line, unless it is too long.
    #[must_use]
    pub const fn text(&self) -> Option<&'a [u8]> {
        match self {
            Self::Whole(text) | Self::Torn(text) => Some(text),
            Self::TooLong => None,
        }
    }
}

/// Reads line by line, with one line in memory.
pub struct Lines<R> {
    input: R,
    longest_bytes: usize,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// Reads lines of at most this many bytes, including the newline.
    pub const fn new(input: R, longest_bytes: usize) -> Self {
        Self { input, longest_bytes, line: Vec::new() }
    }

    /// Reads the next line; `None` at the end. A line borrows from the reader, so this is not an iterator.
    #[expect(clippy::should_implement_trait, reason = "a line borrows from the reader")]
    pub fn next(&mut self) -> Result<Option<Line<'_>>> {
        self.line.clear();
        let read = self.input.by_ref().take(self.longest_bytes as u64).read_until(b'\n', &mut self.line)?;
        Ok(match () {
            () if read == 0 => None,
            () if self.line.ends_with(b"\n") => Some(Line::Whole(&self.line)),
            () if read < self.longest_bytes => Some(Line::Torn(&self.line)),
            () => {
                self.line = Vec::new();
                self.input.skip_until(b'\n')?;
                Some(Line::TooLong)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_one_line() {
        let cases: [(&str, &[Line<'_>]); 7] = [
            ("", &[]),
            ("\n", &[Line::Whole(b"\n")]),
            ("abc\nd", &[Line::Whole(b"abc\n"), Line::Torn(b"d")]),
            ("abcd\nef\n", &[Line::TooLong, Line::Whole(b"ef\n")]),
            ("abcdefghijklmnop\nef", &[Line::TooLong, Line::Torn(b"ef")]),
            ("abcd", &[Line::TooLong]),
            ("abcdefghi", &[Line::TooLong]),
        ];
        for (text, expected) in cases {
            let mut lines = Lines::new(text.as_bytes(), 4);
            for line in expected {
                assert_eq!(lines.next().unwrap().as_ref(), Some(line), "{text:?}");
            }
            assert_eq!(lines.next().unwrap(), None, "{text:?}");
        }
    }
}
