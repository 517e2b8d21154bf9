//! Lists on their way out: written piece by piece from the objects' stored form, so that a list of 100,000
//! objects never exists as one text.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use gc_registry::api::{Object, ObjectList};
use serde_json::{Map, Value};

use crate::encode::negotiate::Representation;
use crate::encode::table::{IncludeObject, Table, metadata_json};

/// Size of one piece of a list, in bytes.
const PIECE: usize = 64 * 1024;
/// Answers that exceed this are compressed if the client takes gzip (upstream's threshold).
pub(crate) const GZIP_FROM: usize = 128 * 1024;
/// Compression level; upstream's.
const GZIP_LEVEL: u32 = 1;

/// Form in which the items of a list are written.
#[derive(Clone)]
pub(crate) enum ItemForm {
    /// JSON objects, with or without apiVersion and kind.
    Object {
        /// True if items say what they are (those of custom resources do).
        with_type: bool,
    },
    /// PartialObjectMetadata in JSON.
    Metadata,
    /// Rows of a table.
    Row(Arc<Table>, IncludeObject),
}

/// A list that is being written.
pub(crate) struct ListStream {
    head: Option<Vec<u8>>,
    items: std::vec::IntoIter<Arc<Object>>,
    form: ItemForm,
    representation: Representation,
    first: bool,
    done: bool,
    compressor: Option<GzEncoder<Vec<u8>>>,
    /// End of an empty list.
    nothing: &'static [u8],
    /// Pieces that were written before it was known how long the list would be.
    waiting: Option<Bytes>,
}

/// Bytes of an item that waits to be written, besides its stored form, which the store may share.
const ITEM_BYTES: usize = 256;

/// Result of starting to write a list.
pub(crate) enum ListStart {
    /// It is short: here it is.
    Whole(Bytes),
    /// It is long; the flag says whether it is compressed.
    Stream(Box<ListStream>, bool),
}

/// `metadata` of a list.
pub(crate) fn list_meta(list: &ObjectList, form: &ItemForm) -> Map<String, Value> {
    let mut meta = Map::new();
    if !list.resource_version.is_empty() {
        meta.insert("resourceVersion".into(), list.resource_version.clone().into());
    }
    // Lists of custom resources have it always.
    if !list.continue_token.is_empty() || matches!(form, ItemForm::Object { with_type: true }) {
        meta.insert("continue".into(), list.continue_token.clone().into());
    }
    if let Some(count) = list.remaining_item_count {
        meta.insert("remainingItemCount".into(), count.into());
    }
    meta
}

impl ListStream {
    /// A stream of the list: `head` is everything up to and without the opening bracket's first item.
    fn new(head: Vec<u8>, items: Vec<Arc<Object>>, form: ItemForm, representation: Representation) -> Self {
        Self {
            head: Some(head),
            items: items.into_iter(),
            form,
            representation,
            first: true,
            done: false,
            compressor: None,
            nothing: b"]}\n",
            waiting: None,
        }
    }

    /// Bytes that are held until the list has been sent.
    pub(crate) fn held_bytes(&self) -> usize {
        self.items.len() * ITEM_BYTES + self.waiting.as_ref().map_or(0, Bytes::len)
    }

    /// Begins to write; short lists are written whole.
    pub(crate) fn begin(
        kind: &str,
        api_version: &str,
        list: ObjectList,
        form: ItemForm,
        representation: Representation,
        gzip: bool,
    ) -> ListStart {
        let meta = Value::Object(list_meta(&list, &form));
        let head = match &form {
            ItemForm::Object { .. } => {
                format!(
                    "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{meta},\"items\":["
                )
            }
            ItemForm::Metadata => format!(
                "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"items\":[",
                representation.meta_version()
            ),
            ItemForm::Row(table, _) => format!(
                "{{\"kind\":\"Table\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"columnDefinitions\":{},\"rows\":[",
                representation.meta_version(),
                table.columns()
            ),
        };
        let mut head = head.into_bytes();
        // Upstream begins some lists only with their first item.
        let null_without_items = match &form {
            ItemForm::Object { .. } => false,
            ItemForm::Metadata => true,
            ItemForm::Row(table, _) => table.is_plain(),
        };
        let is_null = null_without_items && list.items.is_empty();
        if is_null {
            head.pop();
        }
        let mut stream = Self::new(head, list.items, form, representation);
        if is_null {
            stream.nothing = b"null}\n";
        }
        let mut start = Vec::new();
        while start.len() <= GZIP_FROM {
            match stream.plain_piece() {
                Some(piece) => start.extend_from_slice(&piece),
                None => return ListStart::Whole(start.into()),
            }
        }
        if gzip {
            let mut compressor = GzEncoder::new(Vec::with_capacity(PIECE), Compression::new(GZIP_LEVEL));
            // Writing to memory does not fail.
            let _ = compressor.write_all(&start);
            stream.compressor = Some(compressor);
        } else {
            stream.waiting = Some(start.into());
        }
        ListStart::Stream(Box::new(stream), gzip)
    }

    /// The next piece; `None` at the end.
    pub(crate) fn next_piece(&mut self) -> Option<Bytes> {
        if let Some(waiting) = self.waiting.take() {
            return Some(waiting);
        }
        let Some(mut compressor) = self.compressor.take() else { return self.plain_piece().map(Bytes::from) };
        loop {
            if compressor.get_ref().len() >= PIECE {
                let piece = std::mem::take(compressor.get_mut());
                self.compressor = Some(compressor);
                return Some(piece.into());
            }
            match self.plain_piece() {
                Some(piece) => {
                    let _ = compressor.write_all(&piece);
                }
                None => return compressor.finish().ok().filter(|rest| !rest.is_empty()).map(Bytes::from),
            }
        }
    }

    fn plain_piece(&mut self) -> Option<Vec<u8>> {
        if self.done {
            return None;
        }
        let mut out = Vec::with_capacity(PIECE + PIECE / 4);
        if let Some(head) = self.head.take() {
            out.extend_from_slice(&head);
        }
        while out.len() < PIECE {
            let Some(item) = self.items.next() else {
                out.extend_from_slice(self.nothing);
                self.done = true;
                break;
            };
            let before = out.len();
            if !self.first {
                out.push(b',');
            }
            let written = match &self.form {
                ItemForm::Object { with_type } => item.write_json(&mut out, *with_type),
                ItemForm::Metadata => metadata_json(&mut out, &item, self.representation),
                ItemForm::Row(table, include) => table.row(&mut out, &item, *include, self.representation),
            };
            match written {
                Ok(()) => self.first = false,
                Err(error) => {
                    // The answer has begun, so that it cannot become an error any more; a corrupt object is
                    // left out and said.
                    tracing::error!(%error, "an object that cannot be read was left out of a list");
                    out.truncate(before);
                }
            }
        }
        Some(out)
    }
}
