//! The last part of the path to a place in an object.

/// The last part of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'p> {
    /// Nothing: the object itself, or a value that is named like its parent.
    Here,
    Name(&'p str),
    Index(usize),
    Key(&'p str),
}
