//! Reads protobuf by hand: only the fields that metadata needs, borrowed from the input; everything else is skipped.

/// Reason why bytes could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The input ends inside a value.
    #[error("the message ends inside {0}")]
    Truncated(&'static str),
    /// A varint of more than ten bytes.
    #[error("a varint is longer than ten bytes")]
    VarintTooLong,
    /// A wire type that proto2 and proto3 messages of Kubernetes never use.
    #[error("wire type {0} is not known")]
    WireType(u8),
    /// A field whose wire type does not match its number.
    #[error("{0} has the wrong wire type")]
    UnexpectedType(&'static str),
    /// Text that is not UTF-8.
    #[error("{0} is not valid UTF-8")]
    NotUtf8(&'static str),
    /// JSON that is malformed or has a member of an unexpected type.
    #[error("{0}")]
    Json(String),
    /// A document other than the requested one.
    #[error(transparent)]
    NotTheList(#[from] gc_types::NotTheList),
    /// A frame of a watch stream that is too large.
    #[error("a frame of {size} bytes exceeds the limit of {limit} bytes")]
    FrameTooLarge {
        /// Announced size in bytes.
        size: usize,
        /// Accepted size in bytes.
        limit: usize,
    },
}

/// The value of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// Integers and booleans.
    Varint(u64),
    /// Text, bytes and messages.
    Bytes(&'a [u8]),
    /// Fixed-width numbers, which no field read here has.
    Fixed,
}

impl<'a> Value<'a> {
    pub(crate) fn bytes(self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(DecodeError::UnexpectedType(what)),
        }
    }

    pub(crate) fn text(self, what: &'static str) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(what)?).map_err(|_| DecodeError::NotUtf8(what))
    }

    pub(crate) fn number(self, what: &'static str) -> Result<u64, DecodeError> {
        match self {
            Self::Varint(number) => Ok(number),
            _ => Err(DecodeError::UnexpectedType(what)),
        }
    }
}

/// Iterator over the fields of one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// Returns the next field's number and value; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint("a tag")?;
        let value = match (tag & 7) as u8 {
            0 => Value::Varint(self.varint("a number")?),
            1 => {
                self.take(8, "a fixed64")?;
                Value::Fixed
            }
            2 => {
                let length = usize::try_from(self.varint("a length")?)
                    .map_err(|_| DecodeError::Truncated("a length-delimited field"))?;
                Value::Bytes(self.take(length, "a length-delimited field")?)
            }
            5 => {
                self.take(4, "a fixed32")?;
                Value::Fixed
            }
            other => return Err(DecodeError::WireType(other)),
        };
        Ok(Some((tag >> 3, value)))
    }

    fn take(&mut self, length: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        if length > self.rest.len() {
            return Err(DecodeError::Truncated(what));
        }
        let (head, tail) = self.rest.split_at(length);
        self.rest = tail;
        Ok(head)
    }

    fn varint(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let mut number = 0_u64;
        for (index, &byte) in self.rest.iter().take(10).enumerate() {
            number |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(number);
            }
        }
        if self.rest.len() >= 10 {
            Err(DecodeError::VarintTooLong)
        } else {
            Err(DecodeError::Truncated(what))
        }
    }
}
