//! Splits the body of a watch into frames.

use bytes::{Buf, Bytes, BytesMut};

use super::metadata::Encoding;
use super::protobuf::DecodeError;

/// Maximum size of a frame; a larger one ends the watch. No object of a Kubernetes API reaches it (etcd accepts 1.5 MiB, and only
/// metadata is requested).
pub const MAX_FRAME_BYTES: usize = 16 << 20;

/// Collects the chunks of a body and returns complete frames, each preceded by its length in four bytes (protobuf) or ended by a
/// line feed (JSON).
#[derive(Debug)]
pub struct Frames {
    encoding: Encoding,
    buffer: BytesMut,
    /// Number of bytes at the start of the buffer known to contain no line feed.
    searched: usize,
}

impl Frames {
    /// Creates a splitter for bodies in this encoding.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        Self { encoding, buffer: BytesMut::new(), searched: 0 }
    }

    /// Appends the next chunk.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// Returns the next complete frame, if there is one.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, DecodeError> {
        match self.encoding {
            Encoding::Protobuf => self.next_delimited(),
            Encoding::Json => self.next_line(),
        }
    }

    fn next_delimited(&mut self) -> Result<Option<Bytes>, DecodeError> {
        let Some(header) = self.buffer.first_chunk::<4>() else {
            return Ok(None);
        };
        let size = u32::from_be_bytes(*header) as usize;
        check_size(size)?;
        if self.buffer.len() < 4 + size {
            return Ok(None);
        }
        self.buffer.advance(4);
        Ok(Some(self.buffer.split_to(size).freeze()))
    }

    fn next_line(&mut self) -> Result<Option<Bytes>, DecodeError> {
        loop {
            let Some(offset) = self.buffer[self.searched..].iter().position(|&byte| byte == b'\n') else {
                self.searched = self.buffer.len();
                check_size(self.searched)?;
                return Ok(None);
            };
            check_size(self.searched + offset)?;
            let line = self.buffer.split_to(self.searched + offset).freeze();
            self.buffer.advance(1);
            self.searched = 0;
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }
}

fn check_size(size: usize) -> Result<(), DecodeError> {
    if size > MAX_FRAME_BYTES {
        return Err(DecodeError::FrameTooLarge { size, limit: MAX_FRAME_BYTES });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(
            frames in prop::collection::vec(prop::collection::vec(1_u8..=9, 1..40), 0..20),
            cut in 1_usize..17,
            json in any::<bool>(),
        ) {
            let mut body = Vec::new();
            for frame in &frames {
                if json {
                    body.extend_from_slice(frame);
                    body.push(b'\n');
                } else {
                    body.extend_from_slice(&u32::try_from(frame.len()).unwrap().to_be_bytes());
                    body.extend_from_slice(frame);
                }
            }
            // A byte of 9 is whitespace in a JSON line, so lines of nothing else are skipped.
            let expected: Vec<&[u8]> = frames
                .iter()
                .map(Vec::as_slice)
                .filter(|frame| !json || !frame.trim_ascii().is_empty())
                .collect();
            let mut splitter = Frames::new(if json { Encoding::Json } else { Encoding::Protobuf });
            let mut found = Vec::new();
            for chunk in body.chunks(cut) {
                splitter.push(chunk);
                while let Some(frame) = splitter.next_frame().unwrap() {
                    found.push(frame);
                }
            }
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_frame_beyond_the_limit_is_refused() {
        let mut splitter = Frames::new(Encoding::Protobuf);
        splitter.push(&[0xff, 0xff, 0xff, 0xff]);
        assert_eq!(
            splitter.next_frame(),
            Err(DecodeError::FrameTooLarge { size: 0xffff_ffff, limit: MAX_FRAME_BYTES })
        );
        // The complete line arrived in one chunk.
        let mut splitter = Frames::new(Encoding::Json);
        let size = MAX_FRAME_BYTES + 1;
        splitter.push(&[vec![b'1'; size], b"\n".to_vec()].concat());
        assert_eq!(splitter.next_frame(), Err(DecodeError::FrameTooLarge { size, limit: MAX_FRAME_BYTES }));
    }
}
