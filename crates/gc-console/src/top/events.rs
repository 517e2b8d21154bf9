//! Server-sent events, parsed as they arrive.

use anyhow::bail;
use gc_process::screen;

use super::model::{Change, Line, SkippedChanges};

/// Maximum size of an event.
const LONGEST_EVENT: usize = 1 << 20;

/// Events of one stream.
#[derive(Debug, Default)]
pub(crate) struct Events {
    buffer: Vec<u8>,
    name: String,
    data: String,
    /// Identifier of the event that is being read, if it has one.
    id: Option<String>,
    /// Identifier of the last complete event.
    last: Option<String>,
}

impl Events {
    /// Returns the lines of the feed that these bytes complete. Events of other kinds are ignored.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> anyhow::Result<Vec<Line>> {
        let mut lines = Vec::new();
        for &byte in bytes {
            if byte != b'\n' {
                if self.buffer.len() + self.data.len() >= LONGEST_EVENT {
                    bail!("an event of the feed is longer than {LONGEST_EVENT} bytes");
                }
                self.buffer.push(byte);
                continue;
            }
            let line = std::mem::take(&mut self.buffer);
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end_matches('\r');
            if line.is_empty() {
                lines.extend(self.event()?);
            } else if let Some(id) = line.strip_prefix("id:") {
                self.id = Some(id.trim_start().to_owned());
            } else if let Some(name) = line.strip_prefix("event:") {
                name.trim_start().clone_into(&mut self.name);
            } else if let Some(data) = line.strip_prefix("data:") {
                self.data.push_str(data.trim_start());
            }
        }
        Ok(lines)
    }

    /// Returns the identifier after which another stream continues.
    pub(crate) fn last(&self) -> Option<&str> {
        self.last.as_deref()
    }

    fn event(&mut self) -> anyhow::Result<Vec<Line>> {
        self.last = self.id.take().or_else(|| self.last.take());
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        Ok(match &*name {
            "change" => vec![Line::Change(Box::new(screen::decoded::<Change>(data.as_bytes())?))],
            "skipped" => {
                let SkippedChanges { count, unknown } = serde_json::from_str(&data)?;
                let skipped = (count > 0).then_some(Line::Skipped(count));
                skipped.into_iter().chain((unknown > 0).then_some(Line::Unsearched(unknown))).collect()
            }
            _ => Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::top::model::ObjectPlace;

    const STREAM: &str = "retry: 2000\n\nevent: skipped\ndata: {\"count\":7,\"resources\":{},\"unknown\":3}\n\n: nothing new\n\n\
        id: 9\nevent: change\ndata: {\"time\":\"2026-01-02T03:04:05.678Z\",\"controller\":\"c\",\"verb\":\"delete\",\
        \"verdict\":\"OwnersAbsent\",\"message\":\"m\",\"outcome\":\"applied\",\"resource\":\"pods\",\"kind\":\"Pod\",\
        \"namespace\":\"shop\",\"name\":\"web\",\"uid\":\"u\"}\n\nid: 9\nevent: caught-up\ndata: {}\n\n";

    #[test]
    fn events_are_the_same_however_the_stream_is_cut() {
        let place = ObjectPlace {
            kind: "Pod".into(),
            resource: "pods".into(),
            namespace: "shop".into(),
            name: "web".into(),
        };
        let change = Change {
            time: "2026-01-02T03:04:05.678Z".into(),
            controller: "c".into(),
            verb: "delete".into(),
            verdict: "OwnersAbsent".into(),
            message: "m".into(),
            outcome: "applied".into(),
            place,
            ..Change::default()
        };
        let expected = [Line::Skipped(7), Line::Unsearched(3), Line::Change(Box::new(change))];
        for size in [1, 2, 7, 64, STREAM.len()] {
            let mut events = Events::default();
            let pieces = STREAM.as_bytes().chunks(size);
            let lines: Vec<Line> = pieces.flat_map(|piece| events.read(piece).unwrap()).collect();
            assert_eq!(lines, expected, "pieces of {size} bytes");
            assert_eq!(events.last(), Some("9"));
        }
    }

    #[test]
    fn a_stream_that_is_cut_continues_after_the_last_whole_event() {
        let mut events = Events::default();
        events.read(b"retry: 2000\n\n").unwrap();
        assert_eq!(events.last(), None);
        events.read(b"id: 7\nevent: caught-up\ndata: {}\n\n: nothing new\n\nid: 8\nevent: change\n").unwrap();
        assert_eq!(events.last(), Some("7"));
    }

    #[test]
    fn what_never_ends_is_refused() {
        let mut events = Events::default();
        let endless = vec![b'x'; LONGEST_EVENT + 1];
        assert!(events.read(&endless).is_err());
        let mut events = Events::default();
        let line = format!("data:{}\n", "x".repeat(1000));
        assert!(events.read(line.repeat(1100).as_bytes()).is_err());
    }
}
