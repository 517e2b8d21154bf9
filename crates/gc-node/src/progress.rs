//! Progress of a pass, for a user who waits for it.

use std::io::IsTerminal as _;

/// One line on a terminal that shows the progress of a pass; silent elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// Returns the progress, which is shown if standard error is a terminal.
    #[must_use]
    pub fn on_a_terminal() -> Self {
        Self { shown: std::io::stderr().is_terminal() }
    }

    /// Overwrites the line. The cursor stays at its beginning, so a (longer) log line replaces it.
    pub(crate) fn show(self, what: &str, done: usize) {
        if self.shown {
            eprint!("\x1b[Kremoving {what}: {done}\r");
        }
    }

    /// Clears the line.
    pub(crate) fn end(self) {
        if self.shown {
            eprint!("\x1b[K");
        }
    }
}
