//! The confirmation that a command asks for before it changes anything.

use std::io::{IsTerminal as _, Write as _};

use gc_process::UsageError;
use gc_process::screen::stdout;

/// Asks on the terminal, and reports whether the answer is yes. Fails without a terminal: silence is not consent.
pub(crate) fn is_agreed(question: &str) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(UsageError::new("this needs confirmation: use --yes, or run it on a terminal").into());
    }
    let mut out = stdout();
    write!(out, "\n{question} [y/N] ")?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}
