//! Aligned tables on standard output.

use std::io::Write;

use anyhow::Result;

/// Rows under headings, each column as wide as its widest cell.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these headings.
    #[must_use]
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(ToString::to_string).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        // A cell is one line, whatever name is in it.
        let visible = |cell: String| match crate::screen::visible_line(&cell) {
            std::borrow::Cow::Borrowed(_) => cell,
            std::borrow::Cow::Owned(shown) => shown,
        };
        self.rows.push(cells.into_iter().map(visible).collect());
    }

    /// Writes the table, with three blanks between columns and none at the end of a line, and without headings if the process was
    /// asked to omit them.
    pub fn write(&self, out: &mut impl Write) -> Result<()> {
        let rows = &self.rows[usize::from(!crate::screen::has_headings())..];
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for row in rows {
            let mut line = Vec::new();
            for (cell, width) in row.iter().zip(&widths) {
                write!(line, "{cell:<width$}   ")?;
            }
            writeln!(out, "{}", String::from_utf8_lossy(&line).trim_end())?;
        }
        Ok(())
    }
}
