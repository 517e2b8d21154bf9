//! Writer of protobuf fields.

/// Writes protobuf fields to the end of a buffer.
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    pub(crate) fn number(&mut self, field: u32, value: i64) {
        self.varint(u64::from(field) << 3);
        self.varint(value.cast_unsigned());
    }

    pub(crate) fn double(&mut self, field: u32, value: f64) {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Writes the head of a nested message; `length` bytes must follow.
    pub(crate) fn open(&mut self, field: u32, length: usize) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(length as u64);
    }

    /// Writes a text, or nothing if it is empty, which reads back the same.
    pub(crate) fn text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    /// Writes a nested message in place, after reserving one byte for its length, which nearly always suffices; longer messages are
    /// moved.
    pub(crate) fn message(&mut self, field: u32, write: impl FnOnce(&mut Writer<'_>)) {
        self.varint(u64::from(field) << 3 | 2);
        let at = self.0.len();
        self.0.push(0);
        write(&mut Writer(self.0));
        let length = self.0.len() - at - 1;
        if let Some(short) = u8::try_from(length).ok().filter(|length| *length < 0x80) {
            self.0[at] = short;
        } else {
            let mut prefix = Vec::with_capacity(5);
            Writer(&mut prefix).varint(length as u64);
            self.0.splice(at..=at, prefix);
        }
    }
}

/// Writes a `Time` as seconds since the epoch (`metav1.Time` has no fractions). A text that is not a time is omitted.
pub(crate) fn time(writer: &mut Writer<'_>, field: u32, text: &str) {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        writer.message(field, |writer| writer.number(1, time.as_second()));
    }
}
