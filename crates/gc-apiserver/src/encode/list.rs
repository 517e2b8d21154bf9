//! Lists in answers, in every representation: encoded object by object while the client reads, so a list never exists as one text
//! or value.

use std::io::Write as _;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use gc_registry::api::{Object, ObjectList};
use gc_registry::error::ApiError;
use gc_registry::ordered::InOrder;
use serde_json::{Map, Value, json};

use crate::encode::list_items::ListItems;
use crate::encode::list_lengths::ListLengths;
use crate::encode::list_protobuf::{KnownLength, Measuring, ProtobufItems};
use crate::encode::negotiate::{Encoding, Representation};
use crate::encode::protobuf::ListMeta;
use crate::encode::table::{IncludeObject, Table, metadata_json};
use crate::encode::{render, yaml};

/// Size of one chunk of a list, in bytes.
const PIECE: usize = 64 * 1024;
/// Size above which answers are compressed if the client accepts gzip (upstream's threshold).
pub(crate) const GZIP_FROM: usize = 128 * 1024;
/// Compression level; upstream's.
const GZIP_LEVEL: u32 = 1;
/// Size above which a protobuf list is measured before it is written; a shorter one is kept whole.
const MEASURED_FROM: usize = 1 << 20;

/// Form in which the items of a list are written.
#[derive(Clone)]
pub(crate) enum ItemForm {
    /// Objects, with or without apiVersion and kind.
    Object {
        /// True if items include apiVersion and kind, as those of custom resources do.
        with_type: bool,
    },
    /// PartialObjectMetadata.
    Metadata,
    /// Rows of a table.
    Row(Arc<Table>, IncludeObject),
}

/// A list with the form in which it is sent.
pub(crate) struct ListAnswer<'a> {
    /// Kind of the list.
    pub(crate) kind: &'a str,
    /// Kind of its items.
    pub(crate) item_kind: &'a str,
    /// Version of both.
    pub(crate) api_version: &'a str,
    pub(crate) form: ItemForm,
    pub(crate) representation: Representation,
    /// Lengths of large collections.
    pub(crate) lengths: &'a Arc<ListLengths>,
}

/// Notation of the items of a list.
enum Notation {
    Compact,
    Indented,
    Yaml,
    Protobuf(ProtobufItems),
}

/// A list that is being written.
pub(crate) struct ListStream {
    /// Text before the first item, until it has been written.
    head: Option<Vec<u8>>,
    /// Text between two items.
    separator: &'static [u8],
    /// Text after the last item, until it has been written.
    tail: Option<Vec<u8>>,
    items: ListItems,
    form: ItemForm,
    notation: Notation,
    representation: Representation,
    first: bool,
    /// The protobuf list, while its length is unknown.
    measuring: Option<Measuring>,
    /// Length that the beginning of a list in protobuf says of the items that follow.
    due: Option<DueLength>,
    compressor: Option<GzEncoder<Vec<u8>>>,
    /// Chunks written before the length of the list was known.
    waiting: Option<Bytes>,
    /// True if the list ended prematurely.
    is_cut_off: bool,
}

/// Bytes that have yet to be written of a list which has said its length.
struct DueLength {
    bytes: usize,
    known: Option<KnownLength>,
}

/// Next chunk of a list.
enum NextPiece {
    Piece(Bytes),
    /// Another page of objects must be read first.
    Page,
    End,
}

/// Result of starting to write a list.
pub(crate) enum ListStart {
    /// A short list, complete.
    Whole(Bytes),
    /// A long list; the flag says whether it is compressed.
    Stream(Box<ListStream>, bool),
}

/// Builds the `metadata` of a list.
pub(crate) fn list_meta(list: &ObjectList, form: &ItemForm) -> Map<String, Value> {
    let mut meta = Map::new();
    if !list.resource_version.is_empty() {
        meta.insert("resourceVersion".into(), list.resource_version.clone().into());
    }
    // Lists of custom resources always include it.
    if !list.continue_token.is_empty() || matches!(form, ItemForm::Object { with_type: true }) {
        meta.insert("continue".into(), list.continue_token.clone().into());
    }
    if let Some(count) = list.remaining_item_count {
        meta.insert("remainingItemCount".into(), count.into());
    }
    meta
}

impl ListAnswer<'_> {
    /// Begins to write; short lists are written completely.
    pub(crate) fn begin(&self, list: ObjectList, gzip: bool) -> Result<ListStart, ApiError> {
        if self.representation.encoding == Encoding::Protobuf {
            return self.begin_protobuf(list, gzip);
        }
        let is_yaml = self.representation.encoding == Encoding::Yaml;
        if !is_yaml && !self.representation.pretty {
            let (head, tail) = self.around_compact(&list);
            return self.stream(head, tail, list, Notation::Compact).begin(gzip);
        }
        let whole = render::value(&self.skeleton(&list), self.representation);
        if list.items.is_empty() {
            return Ok(ListStart::Whole(whole.into()));
        }
        let (head, tail) = self.around(&whole)?;
        let stream = if is_yaml {
            self.stream([head, b":\n"].concat(), tail.to_vec(), list, Notation::Yaml)
        } else {
            self.stream([head, b"\": ["].concat(), [b"\n  ]", tail].concat(), list, Notation::Indented)
        };
        stream.begin(gzip)
    }

    fn stream(&self, head: Vec<u8>, tail: Vec<u8>, list: ObjectList, notation: Notation) -> ListStream {
        ListStream {
            head: Some(head),
            tail: Some(tail),
            items: ListItems::new(list.items, list.rest),
            form: self.form.clone(),
            separator: if matches!(notation, Notation::Compact | Notation::Indented) { b"," } else { b"" },
            notation,
            representation: self.representation,
            first: true,
            measuring: None,
            due: None,
            compressor: None,
            waiting: None,
            is_cut_off: false,
        }
    }

    /// Returns the name of the field that holds the items.
    fn member(&self) -> &'static str {
        if matches!(self.form, ItemForm::Row(..)) { "rows" } else { "items" }
    }

    /// Reports whether the items are `null`: upstream allocates some lists only with their first item.
    fn is_null(&self, list: &ObjectList) -> bool {
        let null_without_items = match &self.form {
            ItemForm::Object { .. } => false,
            ItemForm::Metadata => true,
            ItemForm::Row(table, _) => table.is_plain(),
        };
        null_without_items && list.items.is_empty()
    }

    /// Returns the list without its items.
    fn skeleton(&self, list: &ObjectList) -> Value {
        let meta = list_meta(list, &self.form);
        let (kind, api_version) = match &self.form {
            ItemForm::Object { .. } => (self.kind, self.api_version),
            ItemForm::Metadata => ("PartialObjectMetadataList", self.representation.meta_version()),
            ItemForm::Row(..) => ("Table", self.representation.meta_version()),
        };
        let none = if self.is_null(list) { Value::Null } else { json!([]) };
        let mut skeleton = json!({"kind": kind, "apiVersion": api_version, "metadata": meta});
        skeleton[self.member()] = none;
        if let ItemForm::Row(table, _) = &self.form {
            skeleton["columnDefinitions"] = table.columns();
        }
        skeleton
    }

    /// Splits an encoded empty list at its items, excluding their brackets. In each notation, no other line begins like that of the
    /// items.
    fn around<'w>(&self, whole: &'w [u8]) -> Result<(&'w [u8], &'w [u8]), ApiError> {
        let member = self.member();
        let (line, opening) = match self.representation.encoding {
            Encoding::Yaml => (format!("\n{member}: []\n"), 1 + member.len()),
            Encoding::Json | Encoding::Protobuf => (format!("\n  \"{member}\": []"), 4 + member.len()),
        };
        let at = whole.windows(line.len()).position(|window| window == line.as_bytes());
        let at = at.ok_or_else(|| ApiError::internal("a list has no items to replace"))?;
        Ok((&whole[..at + opening], &whole[at + line.len()..]))
    }

    fn around_compact(&self, list: &ObjectList) -> (Vec<u8>, Vec<u8>) {
        let meta = Value::Object(list_meta(list, &self.form));
        let version = self.representation.meta_version();
        let head = match &self.form {
            ItemForm::Object { .. } => {
                let (kind, version) = (self.kind, self.api_version);
                format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{meta},\"items\":[")
            }
            ItemForm::Metadata => format!(
                "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"{version}\",\"metadata\":{meta},\"items\":["
            ),
            ItemForm::Row(table, _) => format!(
                "{{\"kind\":\"Table\",\"apiVersion\":\"{version}\",\"metadata\":{meta},\"columnDefinitions\":{},\"rows\":[",
                table.columns()
            ),
        };
        let mut head = head.into_bytes();
        if self.is_null(list) {
            head.pop();
            return (head, b"null}\n".to_vec());
        }
        (head, b"]}\n".to_vec())
    }

    fn begin_protobuf(&self, list: ObjectList, gzip: bool) -> Result<ListStart, ApiError> {
        let meta = ListMeta {
            resource_version: &list.resource_version,
            continue_token: &list.continue_token,
            remaining_item_count: list.remaining_item_count,
        };
        let (items, kind, api_version) = match &self.form {
            ItemForm::Object { .. } => {
                (ProtobufItems::of_kind(self.api_version, self.item_kind)?, self.kind, self.api_version)
            }
            ItemForm::Metadata | ItemForm::Row(..) => {
                (ProtobufItems::metadata(), "PartialObjectMetadataList", self.representation.meta_version())
            }
        };
        let collection = list.rest.as_ref().and_then(gc_registry::api::ListRest::collection);
        let known =
            collection.map(|collection| KnownLength { lengths: Arc::clone(self.lengths), collection });
        let due = Some(DueLength { bytes: 0, known: known.clone() });
        let measuring = Some(Measuring::new(kind, api_version, &meta, known));
        let stream = self.stream(Vec::new(), Vec::new(), list, Notation::Protobuf(items));
        ListStream { measuring, due, ..stream }.begin_measuring(gzip)
    }
}

fn compressor() -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::with_capacity(PIECE), Compression::new(GZIP_LEVEL))
}

impl ListStream {
    /// Returns the number of bytes held until the list has been sent.
    pub(crate) fn held_bytes(&self) -> usize {
        self.items.held_bytes()
            + self.waiting.as_ref().map_or(0, Bytes::len)
            + self.measuring.as_ref().map_or(0, Measuring::held_bytes)
    }

    /// Writes the beginning. Fails if an object in it cannot be read.
    fn begin(mut self, gzip: bool) -> Result<ListStart, ApiError> {
        let mut start = Vec::new();
        while start.len() <= GZIP_FROM {
            self.items.read_now();
            match self.plain_piece()? {
                Some(piece) => start.extend_from_slice(&piece),
                None if self.is_written() => return Ok(ListStart::Whole(start.into())),
                // Reading the next page may block, so the list is treated as long.
                None => break,
            }
        }
        if gzip {
            let mut compressor = compressor();
            // Writing to memory does not fail.
            let _ = compressor.write_all(&start);
            self.compressor = Some(compressor);
        } else {
            self.waiting = Some(start.into());
        }
        Ok(ListStart::Stream(Box::new(self), gzip))
    }

    /// Begins a list whose length must be known first: keeps the first items until the list turns out to be long.
    fn begin_measuring(mut self, gzip: bool) -> Result<ListStart, ApiError> {
        let is_known = match (&mut self.measuring, &self.notation) {
            (Some(measuring), Notation::Protobuf(items)) => measuring.is_known(*items),
            _ => false,
        };
        let kept = if is_known { PIECE } else { MEASURED_FROM };
        while self.measuring.as_ref().is_some_and(|measuring| measuring.kept_bytes() <= kept) {
            self.items.read_now();
            let Some(item) = self.items.next() else {
                if !self.items.is_last_page() {
                    break;
                }
                let (whole, _) = self.measuring.take().map(Measuring::finish).unwrap_or_default();
                return Ok(ListStart::Whole(whole.into()));
            };
            if let (Some(measuring), Notation::Protobuf(items)) = (&mut self.measuring, &self.notation) {
                items.write(measuring.kept(), &item)?;
            }
        }
        if gzip {
            self.compressor = Some(compressor());
        }
        if let Some(measuring) = &mut self.measuring {
            measuring.follow(self.items.again());
        }
        Ok(ListStart::Stream(Box::new(self), gzip))
    }

    /// Returns the next chunk; `None` at the end.
    pub(crate) fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let (Some(measuring), Notation::Protobuf(items)) = (&mut self.measuring, &self.notation) {
            if let Err(error) = ready!(measuring.poll(context, *items, PIECE)) {
                return Poll::Ready(self.cut_off(&error));
            }
            if let (Some((head, length)), Some(due)) =
                (self.measuring.take().map(Measuring::finish), &mut self.due)
            {
                self.head = Some(head);
                due.bytes = length;
            }
        }
        loop {
            let piece = match self.next_piece() {
                Ok(piece) => piece,
                Err(error) => return Poll::Ready(self.cut_off(&error)),
            };
            if self.has_other_length(matches!(piece, NextPiece::End)) {
                return Poll::Ready(None);
            }
            match piece {
                NextPiece::Piece(piece) => return Poll::Ready(Some(piece)),
                NextPiece::End => return Poll::Ready(None),
                NextPiece::Page => {
                    if let Err(error) = ready!(self.items.poll_page(context)) {
                        return Poll::Ready(self.cut_off(&error));
                    }
                }
            }
        }
    }

    /// Cuts off a list that has not the length which its beginning says: its client could not read it.
    fn has_other_length(&mut self, is_end: bool) -> bool {
        if is_end && !self.is_cut_off && self.due.as_ref().is_some_and(|due| due.bytes > 0) {
            self.break_off();
        }
        self.is_cut_off
    }

    fn break_off(&mut self) {
        tracing::error!("a list was cut off, because it has not the length that it began with");
        if let Some(KnownLength { lengths, collection }) = self.due.take().and_then(|due| due.known) {
            lengths.distrust(&collection.prefix);
        }
        self.is_cut_off = true;
    }

    /// Ends a list prematurely because further objects cannot be read. The answer has begun and can no longer become an error.
    fn cut_off(&mut self, error: &ApiError) -> Option<Bytes> {
        tracing::warn!(
            error = error.message,
            "a list was cut off, because its further objects cannot be read"
        );
        self.is_cut_off = true;
        None
    }

    /// Reports whether the list ended prematurely, which the client must be able to notice.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// Reports whether all of the list was written.
    fn is_written(&self) -> bool {
        self.tail.is_none()
    }

    fn next_piece(&mut self) -> Result<NextPiece, ApiError> {
        if let Some(waiting) = self.waiting.take() {
            return Ok(NextPiece::Piece(waiting));
        }
        let Some(mut compressor) = self.compressor.take() else {
            return Ok(match self.plain_piece()? {
                Some(piece) => NextPiece::Piece(piece.into()),
                None if self.is_written() => NextPiece::End,
                None => NextPiece::Page,
            });
        };
        loop {
            if compressor.get_ref().len() >= PIECE {
                let piece = std::mem::take(compressor.get_mut());
                self.compressor = Some(compressor);
                return Ok(NextPiece::Piece(piece.into()));
            }
            match self.plain_piece()? {
                Some(piece) => {
                    let _ = compressor.write_all(&piece);
                }
                None if self.is_written() => {
                    let rest = compressor.finish().ok().filter(|rest| !rest.is_empty());
                    return Ok(rest.map_or(NextPiece::End, |rest| NextPiece::Piece(rest.into())));
                }
                None => {
                    self.compressor = Some(compressor);
                    return Ok(NextPiece::Page);
                }
            }
        }
    }

    /// Returns a chunk of the objects at hand, without reading another page; `None` if there are none. Fails at an object that cannot be
    /// read: a list without it would say that it does not exist.
    fn plain_piece(&mut self) -> Result<Option<Vec<u8>>, ApiError> {
        let mut out = Vec::with_capacity(PIECE + PIECE / 4);
        if let Some(head) = self.head.take() {
            out.extend_from_slice(&head);
        }
        while out.len() < PIECE {
            let Some(item) = self.items.next() else {
                if self.items.is_last_page() {
                    out.extend(self.tail.take().into_iter().flatten());
                }
                break;
            };
            let before = out.len();
            if !self.first {
                out.extend_from_slice(self.separator);
            }
            self.write(&mut out, &item)?;
            self.first = false;
            if let Some(due) = &mut self.due {
                match due.bytes.checked_sub(out.len() - before) {
                    Some(rest) => due.bytes = rest,
                    None => {
                        self.break_off();
                        break;
                    }
                }
            }
        }
        Ok((!out.is_empty()).then_some(out))
    }

    fn write(&self, out: &mut Vec<u8>, item: &Object) -> Result<(), ApiError> {
        match (&self.notation, &self.form) {
            (Notation::Protobuf(items), _) => items.write(out, item),
            (Notation::Compact, _) => self.write_compact(out, item),
            (Notation::Indented, _) => {
                let text = serde_json::to_vec_pretty(&InOrder::of(&self.value(item)?));
                // JSON strings contain no newlines.
                for line in text.map_err(ApiError::internal)?.split(|byte| *byte == b'\n') {
                    out.extend_from_slice(b"\n    ");
                    out.extend_from_slice(line);
                }
                Ok(())
            }
            (Notation::Yaml, _) => {
                out.extend_from_slice(yaml::written(&Value::Array(vec![self.value(item)?])).as_bytes());
                Ok(())
            }
        }
    }

    fn write_compact(&self, out: &mut Vec<u8>, item: &Object) -> Result<(), ApiError> {
        match &self.form {
            ItemForm::Object { with_type } => item.write_json(out, *with_type),
            ItemForm::Metadata => metadata_json(out, item, self.representation),
            ItemForm::Row(table, include) => table.row(out, item, *include, self.representation),
        }
    }

    /// Returns an item as a value, for indented JSON and YAML.
    fn value(&self, item: &Object) -> Result<Value, ApiError> {
        let ItemForm::Object { with_type } = self.form else {
            let mut text = Vec::new();
            self.write_compact(&mut text, item)?;
            return serde_json::from_slice(&text).map_err(ApiError::internal);
        };
        let mut value = item.to_value()?;
        if let Some(members) = value.as_object_mut().filter(|_| !with_type) {
            members.remove("apiVersion");
            members.remove("kind");
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
