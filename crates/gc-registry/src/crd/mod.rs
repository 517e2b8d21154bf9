//! Custom resource definitions (under construction).

/// One served version of a definition, compiled.
#[derive(Debug)]
pub struct CustomVersion {}
