//! The last step of the path to a position in an object.

/// The last step of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'p> {
    /// None: the object itself, or a value that is named like its parent.
    Here,
    Name(&'p str),
    Index(usize),
    Key(&'p str),
}
