//! PEM blocks, found as by Go's `encoding/pem`: text between them, and incomplete blocks, are skipped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";
/// Whitespace that Go removes from the ends of lines.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// A PEM block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PemBlock<'a> {
    /// Label, such as `CERTIFICATE`.
    pub(crate) label: &'a str,
    /// True if lines such as `Proc-Type: 4,ENCRYPTED` precede the contents.
    pub(crate) has_headers: bool,
    /// Decoded contents.
    pub(crate) der: Vec<u8>,
}

/// Iterator over the blocks of a text, in order.
pub(crate) struct PemBlocks<'a> {
    rest: &'a str,
    /// False in the middle of a line of `rest`: a block must begin a line.
    at_line: bool,
}

impl<'a> PemBlocks<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        Self { rest: text, at_line: true }
    }

    /// Skips to the next line that begins a block, and returns the text after that beginning.
    fn skip_to_begin(&mut self) -> Option<&'a str> {
        loop {
            let place = self.rest.find(BEGIN)?;
            let begins_line = if place == 0 { self.at_line } else { self.rest[..place].ends_with('\n') };
            self.rest = &self.rest[place + BEGIN.len()..];
            self.at_line = false;
            if begins_line {
                return Some(self.rest);
            }
        }
    }
}

impl<'a> Iterator for PemBlocks<'a> {
    type Item = PemBlock<'a>;

    fn next(&mut self) -> Option<PemBlock<'a>> {
        loop {
            let text = self.skip_to_begin()?;
            if let Some((block, rest)) = block(text) {
                (self.rest, self.at_line) = (rest, true);
                return Some(block);
            }
        }
    }
}

/// Parses a block whose beginning has been read; also returns the text after the block.
fn block(text: &str) -> Option<(PemBlock<'_>, &str)> {
    let (line, mut body) = first_line(text);
    let label = line.strip_suffix(DASHES)?;
    let mut has_headers = false;
    loop {
        let (line, rest) = first_line(body);
        if rest.is_empty() || !line.contains(':') {
            break;
        }
        (has_headers, body) = (true, rest);
    }
    let (contents, after) = if body.starts_with(END) && !has_headers {
        ("", &body[END.len()..])
    } else {
        let end = body.find("\n-----END ")?;
        (&body[..end], &body[end + 1 + END.len()..])
    };
    let after = after.strip_prefix(label)?.strip_prefix(DASHES)?;
    let (remainder, rest) = first_line(after);
    let encoded: String = contents.chars().filter(|letter| !BLANKS.contains(letter)).collect();
    let der = BASE64.decode(encoded).ok().filter(|_| remainder.is_empty())?;
    Some((PemBlock { label, has_headers, der }, rest))
}

/// Splits off the first line of a text, without trailing whitespace.
fn first_line(text: &str) -> (&str, &str) {
    let (line, rest) = text.split_once('\n').unwrap_or((text, ""));
    (line.trim_end_matches(BLANKS), rest)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<(&str, bool, Vec<u8>)> {
        PemBlocks::of(text).map(|block| (block.label, block.has_headers, block.der)).collect()
    }

    #[test]
    fn blocks_are_found_between_other_text() {
        let a = "-----BEGIN A-----\nAQ\tI D\r\n-----END A-----\n";
        assert_eq!(labels(a), [("A", false, vec![1, 2, 3])]);
        let headers = "-----BEGIN B-----\nProc-Type: 4\nX: y\n\nAQID\n-----END B----- \nafter";
        let both = format!("before\n{a}between -----BEGIN C-----\n{headers}");
        assert_eq!(labels(&both), [("A", false, vec![1, 2, 3]), ("B", true, vec![1, 2, 3])]);
        let empty = "-----BEGIN A-----\n-----END A-----";
        assert_eq!(labels(empty), [("A", false, vec![])]);
    }

    #[test]
    fn what_only_looks_like_a_block_is_passed_over() {
        let good = "-----BEGIN A-----\nAQID\n-----END A-----\n";
        for broken in [
            "-----BEGIN A\nAQID\n-----END A-----\n",
            "-----BEGIN A-----\nAQ!D\n-----END A-----\n",
            "-----BEGIN A-----\nAQID\n-----END B-----\n",
            "-----BEGIN A-----\nAQID\n-----END A----- more\n",
            "x-----BEGIN A-----\nAQID\n-----END A-----\n",
        ] {
            assert_eq!(labels(broken), [], "{broken}");
            assert_eq!(labels(&format!("{broken}{good}")).len(), 1, "{broken}");
        }
        assert_eq!(labels("-----BEGIN A-----"), []);
        assert_eq!(labels("-----BEGIN A-----\nAQID"), []);
    }
}
