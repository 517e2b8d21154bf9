//! The progress of a pass, for a person who waits for it.

use std::io::IsTerminal as _;

/// One line on a terminal that shows the progress of a pass; silent elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// Shown if standard error is a terminal.
    #[must_use]
    pub fn on_a_terminal() -> Self {
        Self { shown: std::io::stderr().is_terminal() }
    }

    /// Writes over the line. The cursor is left at its beginning, so that a line of the log (which is longer) takes its
    /// place.
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
