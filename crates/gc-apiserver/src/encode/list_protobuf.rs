//! Lists in protobuf. A list begins with its length. Where [`ListLengths`] does not know it, each item is encoded twice; in return, the
//! items never exist all at once.

use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use gc_registry::api::{ListedCollection, Object};
use gc_registry::error::ApiError;

use super::list_items::ListItems;
use super::list_lengths::ListLengths;
use super::protobuf::{self, ListMeta};
use super::protobuf_answer;
use super::protobuf_request::Fields;
use super::protobuf_writer::Writer;

/// Field number of the items of a list.
pub(super) const ITEMS: u32 = 2;

/// Encoding of the items of a list.
#[derive(Clone, Copy)]
pub(crate) struct ProtobufItems(Option<&'static Fields>);

impl ProtobufItems {
    /// Returns the encoding for objects of a built-in kind.
    pub(crate) fn of_kind(api_version: &str, kind: &str) -> Result<Self, ApiError> {
        let fields = protobuf_answer::fields(api_version, kind);
        let missing = || ApiError::internal(format!("{api_version} {kind} has no protobuf form"));
        fields.map(|fields| Self(Some(fields))).ok_or_else(missing)
    }

    /// Returns the encoding for PartialObjectMetadata.
    pub(crate) fn metadata() -> Self {
        Self(None)
    }

    /// Returns the fields of a built-in kind; `None` for metadata.
    pub(super) fn fields(self) -> Option<&'static Fields> {
        self.0
    }

    /// Appends an item with its field number and length.
    pub(crate) fn write(self, out: &mut Vec<u8>, item: &Object) -> Result<(), ApiError> {
        let mut written = Ok(());
        match self.0 {
            None => Writer(out).message(ITEMS, |writer| written = protobuf::partial_object(writer, item)),
            Some(fields) => {
                let value = item.to_value()?;
                let Some(members) = value.as_object() else {
                    return Err(ApiError::internal("stored object is corrupt: not an object"));
                };
                Writer(out).message(ITEMS, |writer| protobuf_answer::members(writer, fields, members));
            }
        }
        written
    }
}

/// A list whose length may be known without a reading of its items.
#[derive(Clone)]
pub(crate) struct KnownLength {
    pub(crate) lengths: Arc<ListLengths>,
    pub(crate) collection: ListedCollection,
}

/// A list whose length is not yet known.
pub(crate) struct Measuring {
    kind: String,
    api_version: String,
    /// Encoded metadata of the list and its first items.
    kept: Vec<u8>,
    /// Length of the metadata alone.
    meta_bytes: usize,
    known: Option<KnownLength>,
    /// Length of all items, if it is known.
    total: Option<usize>,
    /// Further items that have not been measured yet.
    items: Option<ListItems>,
    length: usize,
    scratch: Vec<u8>,
}

impl Measuring {
    /// Begins a list without items.
    pub(crate) fn new(
        kind: &str,
        api_version: &str,
        meta: &ListMeta<'_>,
        known: Option<KnownLength>,
    ) -> Self {
        let mut kept = Vec::new();
        protobuf::list_meta(&mut Writer(&mut kept), meta);
        let (kind, api_version) = (kind.to_owned(), api_version.to_owned());
        let meta_bytes = kept.len();
        Self {
            kind,
            api_version,
            kept,
            meta_bytes,
            known,
            total: None,
            items: None,
            length: 0,
            scratch: Vec::new(),
        }
    }

    /// Returns the buffer of the first items, which are not measured.
    pub(crate) fn kept(&mut self) -> &mut Vec<u8> {
        &mut self.kept
    }

    /// Returns the length of the first items.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    /// Returns the size of the buffers.
    pub(crate) fn held_bytes(&self) -> usize {
        self.kept.capacity() + self.scratch.capacity() + self.items.as_ref().map_or(0, ListItems::held_bytes)
    }

    /// Sets the items that follow the kept ones.
    pub(super) fn follow(&mut self, items: ListItems) {
        self.items = Some(items);
    }

    /// Reports whether the length of the list is known at this moment.
    pub(super) fn is_known(&mut self, form: ProtobufItems) -> bool {
        // If changes have to be counted first, the list waits for that once it is sent.
        let _ = self.poll_known(&mut Context::from_waker(Waker::noop()), form);
        self.total.is_some()
    }

    fn poll_known(&mut self, context: &mut Context<'_>, form: ProtobufItems) -> Poll<()> {
        if let Some(KnownLength { lengths, collection }) = &self.known {
            self.total = ready!(lengths.poll_length(context, collection, form));
            self.known = None;
        }
        Poll::Ready(())
    }

    /// Measures further items, about `bytes` of them per call. Ready once all have been measured.
    pub(crate) fn poll(
        &mut self,
        context: &mut Context<'_>,
        form: ProtobufItems,
        bytes: usize,
    ) -> Poll<Result<(), ApiError>> {
        ready!(self.poll_known(context, form));
        // The first items are known besides.
        if let Some(length) =
            self.total.and_then(|total| (total + self.meta_bytes).checked_sub(self.kept.len()))
        {
            self.length = length;
            return Poll::Ready(Ok(()));
        }
        let Some(items) = &mut self.items else { return Poll::Ready(Ok(())) };
        let before = self.length;
        loop {
            ready!(items.poll_page(context))?;
            let Some(item) = items.next() else { return Poll::Ready(Ok(())) };
            self.scratch.clear();
            form.write(&mut self.scratch, &item)?;
            self.length += self.scratch.len();
            if self.length - before >= bytes {
                // Yields to other tasks before continuing.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Returns the beginning of the list, up to the first measured item, and the length of the measured items.
    pub(crate) fn finish(self) -> (Vec<u8>, usize) {
        let mut out = Vec::with_capacity(self.kept.len() + 128);
        protobuf::open_envelope(&mut out, &self.api_version, &self.kind, self.kept.len() + self.length);
        out.extend_from_slice(&self.kept);
        (out, self.length)
    }
}
