#![allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test

use std::io::Read as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use gc_registry::Registry;
use gc_registry::api::{ListPages, ListRest, ListedCollection};
use gc_registry::object::TypeMeta;
use gc_registry::resource::ResourceDefinition;
use gc_registry::storage::{KeyValue, Revision, Storage as _};
use gc_store::MemoryStorage;

use super::*;
use crate::encode::list_lengths::{CountedForm, Totals};
use crate::encode::negotiate::Form;
use crate::encode::{protobuf, protobuf_answer};

/// Texts that each notation escapes by its own rules.
const TEXTS: [&str; 8] = [
    "",
    "true",
    "one\ntwo\n\n  three\n",
    "\n  \"items\": []\n",
    "\nitems: []\n",
    "- a\n- b: |\n    c",
    "quoted \"text\" \\ with\ttabs, é and 🦀",
    "1.50",
];

/// Revision of an empty store.
const INITIAL: Revision = Revision(1);

/// Knows no length.
static NO_LENGTHS: LazyLock<Arc<ListLengths>> = LazyLock::new(Arc::default);

fn definition() -> Arc<ResourceDefinition> {
    let store = Arc::new(MemoryStorage::default());
    let registry = Registry::open(store, gc_registry::Config::default()).unwrap();
    registry.catalog().find("", "v1", "configmaps").unwrap().clone()
}

/// Returns the stored forms of `count` objects.
fn stored(count: usize) -> Vec<Bytes> {
    let object = |number: usize| {
        let text = TEXTS[number % TEXTS.len()];
        let labels = if number.is_multiple_of(3) { json!({}) } else { json!({"a": text.len().to_string()}) };
        let metadata = json!({
            "name": format!("map-{number}"), "namespace": "default", "uid": format!("uid-{number}"),
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels, "annotations": {"text": text, "filler": "x".repeat(64)},
        });
        format!("{{\"metadata\":{metadata},\"data\":{}}}", json!({"k": text})).into()
    };
    (0..count).map(object).collect()
}

fn list_of(stored: Vec<Bytes>) -> ObjectList {
    let types = Arc::new(TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() });
    let is_odd = stored.len() % 2 == 1;
    let object =
        |(text, revision)| Arc::new(Object::from_stored(Arc::clone(&types), text, Revision(revision)));
    ObjectList {
        items: stored.into_iter().zip(1..).map(object).collect(),
        resource_version: "77".into(),
        continue_token: if is_odd { "more".into() } else { String::new() },
        remaining_item_count: is_odd.then_some(3),
        rest: None,
    }
}

fn list(count: usize) -> ObjectList {
    list_of(stored(count))
}

fn answer(form: ItemForm, representation: Representation) -> ListAnswer<'static> {
    let (kind, item_kind) = ("ConfigMapList", "ConfigMap");
    ListAnswer { kind, item_kind, api_version: "v1", form, representation, lengths: &NO_LENGTHS }
}

/// Returns all chunks, none of which may be large, and whether the list was a stream.
fn pieces(start: ListStart) -> (Vec<u8>, bool) {
    let mut stream = match start {
        ListStart::Whole(bytes) => return (bytes.to_vec(), false),
        ListStart::Stream(stream, _) => stream,
    };
    let mut context = Context::from_waker(Waker::noop());
    let mut all = Vec::new();
    loop {
        match stream.poll_piece(&mut context) {
            Poll::Pending => {}
            Poll::Ready(None) => return (all, true),
            Poll::Ready(Some(piece)) => {
                let is_start = all.is_empty();
                assert!(
                    piece.len() < if is_start { MEASURED_FROM * 2 } else { PIECE * 2 },
                    "{}",
                    piece.len()
                );
                all.extend_from_slice(&piece);
            }
        }
    }
}

fn written(answer: &ListAnswer<'_>, list: ObjectList, gzip: bool) -> (Vec<u8>, bool) {
    pieces(answer.begin(list, gzip).unwrap())
}

const YAML: Representation = Representation { encoding: Encoding::Yaml, ..Representation::JSON };
const INDENTED: Representation = Representation { pretty: true, ..Representation::JSON };
const PROTOBUF: Representation = Representation { encoding: Encoding::Protobuf, ..Representation::JSON };

/// Returns each form of the items, with the form that a client requests.
fn forms() -> Vec<(ItemForm, Form)> {
    let table = Arc::new(Table::of(&definition(), "2026-01-01T00:01:00Z".parse().unwrap()));
    vec![
        (ItemForm::Object { with_type: false }, Form::Object),
        (ItemForm::Object { with_type: true }, Form::Object),
        (ItemForm::Metadata, Form::Metadata),
        (ItemForm::Row(Arc::clone(&table), IncludeObject::None), Form::Table),
        (ItemForm::Row(Arc::clone(&table), IncludeObject::Metadata), Form::Table),
        (ItemForm::Row(table, IncludeObject::Object), Form::Table),
    ]
}

/// The chunks together must equal the encoding of the whole list.
#[test]
fn each_notation_is_that_of_the_whole() {
    for (item_form, form) in forms() {
        for count in [0, 1, 2, 7, 1500] {
            let compact = Representation { form, ..Representation::JSON };
            let (text, _) = written(&answer(item_form.clone(), compact), list(count), false);
            let value: Value = serde_json::from_slice(&text).unwrap();
            for representation in [YAML, INDENTED] {
                let representation = Representation { form, ..representation };
                let (streamed, is_stream) =
                    written(&answer(item_form.clone(), representation), list(count), false);
                let is_long = streamed.len() > GZIP_FROM;
                let whole = render::value(&value, representation);
                assert_eq!(
                    String::from_utf8(streamed).unwrap(),
                    String::from_utf8(whole).unwrap(),
                    "{count} in {representation:?}"
                );
                assert_eq!(is_stream, is_long, "{count} in {representation:?}");
            }
        }
    }
}

#[test]
fn protobuf_is_that_of_the_whole() {
    for (item_form, form) in &forms()[..3] {
        for count in [0, 1, 7, 9000] {
            let representation = Representation { form: *form, ..PROTOBUF };
            let all = list(count);
            let (kind, version) = match form {
                Form::Object => ("ConfigMapList", "v1"),
                _ => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
            };
            let mut whole = Vec::new();
            protobuf::envelope(&mut whole, version, kind, |raw| {
                let meta = ListMeta {
                    resource_version: &all.resource_version,
                    continue_token: &all.continue_token,
                    remaining_item_count: all.remaining_item_count,
                };
                protobuf::list_meta(raw, &meta);
                for item in &all.items {
                    raw.message(2, |writer| match form {
                        Form::Object => {
                            let value = item.value().unwrap();
                            let fields = protobuf_answer::fields("v1", "ConfigMap").unwrap();
                            protobuf_answer::members(writer, fields, value.as_object().unwrap());
                        }
                        _ => protobuf::partial_object(writer, item).unwrap(),
                    });
                }
            });
            let answer = answer(item_form.clone(), representation);
            let (streamed, is_stream) = written(&answer, list(count), false);
            assert!(streamed == whole, "{count} in {form:?}: {} for {} bytes", streamed.len(), whole.len());
            assert_eq!(is_stream, count == 9000);
        }
    }
}

/// A list without it would say that it does not exist: it is refused, or cut off once it has begun.
#[tokio::test]
async fn an_object_that_cannot_be_read_fails_its_list_in_each_notation() {
    let garbage: &[u8] = b"\x00garbage";
    let cut: &[u8] = b"{\"metadata\":{\"name\":";
    let forms = forms();
    for (item_form, form) in [&forms[0], &forms[2], &forms[5]] {
        for (encoding, text) in
            [(Representation::JSON, garbage), (INDENTED, cut), (YAML, cut), (PROTOBUF, cut), (YAML, garbage)]
        {
            if encoding.encoding == Encoding::Protobuf && *form == Form::Table {
                continue;
            }
            let representation = Representation { form: *form, ..encoding };
            for (count, broken, is_begun) in [(7, 2, false), (9000, 2, false), (9000, 8990, true)] {
                let mut stored = stored(count);
                stored[broken] = Bytes::from_static(text);
                for gzip in [false, true] {
                    let begun =
                        answer(item_form.clone(), representation).begin(list_of(stored.clone()), gzip);
                    match begun {
                        Err(error) => assert_eq!((error.code, is_begun), (500, false), "{representation:?}"),
                        Ok(start) => {
                            let (_, is_cut_off) = awaited(start).await;
                            assert!(is_begun && is_cut_off, "{broken} of {count} in {representation:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn each_notation_is_compressed_where_that_is_taken() {
    for representation in [Representation::JSON, INDENTED, YAML, PROTOBUF] {
        let answer = answer(ItemForm::Object { with_type: false }, representation);
        let (plain, _) = written(&answer, list(9000), false);
        let (packed, is_stream) = written(&answer, list(9000), true);
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&*packed).read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == plain && packed.len() * 4 < plain.len() && is_stream, "{representation:?}");
    }
}

/// Stored forms that only the list holds are charged to its client.
#[test]
fn a_list_is_charged_what_it_holds() {
    let held = |list: ObjectList| {
        let answer = answer(ItemForm::Object { with_type: false }, INDENTED);
        match answer.begin(list, false).unwrap() {
            ListStart::Stream(stream, _) => stream.held_bytes(),
            ListStart::Whole(_) => panic!("it is long"),
        }
    };
    let texts = stored(2000);
    let bytes: usize = texts.iter().map(Bytes::len).sum();
    let alone = held(list(2000));
    let shared = held(list_of(texts.clone()));
    assert!(alone - shared > bytes / 2, "{alone} and {shared}: the texts have {bytes}");
    drop(texts);
}

/// Pages of this many objects each.
struct Pages {
    objects: Vec<Arc<Object>>,
    length: usize,
    blocks: bool,
    /// Number of pages before an unreadable one.
    readable: usize,
    /// Collection that the list is of.
    listed: Option<ListedCollection>,
    /// Number of objects that were read.
    read: Arc<AtomicUsize>,
}

impl ListPages for Pages {
    fn read(&mut self) -> Result<Vec<Arc<Object>>, ApiError> {
        let readable = self.readable.checked_sub(1).ok_or_else(|| ApiError::new(410, "Expired", "gone"))?;
        self.readable = readable;
        let rest = self.objects.split_off(self.length.min(self.objects.len()));
        self.read.fetch_add(self.objects.len(), Ordering::Relaxed);
        Ok(std::mem::replace(&mut self.objects, rest))
    }

    fn blocks(&self) -> bool {
        self.blocks
    }

    fn again(&self) -> Box<dyn ListPages> {
        let (objects, listed, read) = (self.objects.clone(), self.listed.clone(), Arc::clone(&self.read));
        Box::new(Self { objects, listed, read, ..*self })
    }

    fn collection(&self) -> Option<ListedCollection> {
        self.listed.clone()
    }
}

/// Returns the same list with only its first page read.
fn in_pages(list: ObjectList, length: usize, blocks: bool, readable: usize) -> ObjectList {
    let mut items = list.items;
    let objects = items.split_off(length.min(items.len()));
    let pages = Pages { objects, length, blocks, readable, listed: None, read: Arc::default() };
    ObjectList { items, rest: Some(ListRest::new(Box::new(pages))), ..list }
}

/// Returns all chunks of a list whose pages may be read on other threads.
async fn awaited(start: ListStart) -> (Vec<u8>, bool) {
    let mut stream = match start {
        ListStart::Whole(bytes) => return (bytes.to_vec(), false),
        ListStart::Stream(stream, _) => stream,
    };
    let mut all = Vec::new();
    while let Some(piece) = std::future::poll_fn(|context| stream.poll_piece(context)).await {
        assert!(piece.len() < MEASURED_FROM * 2, "{}", piece.len());
        all.extend_from_slice(&piece);
    }
    (all, stream.is_cut_off())
}

#[tokio::test]
async fn a_list_in_pages_is_that_of_the_whole() {
    let forms = forms();
    for (item_form, form) in [&forms[0], &forms[2], &forms[5]] {
        for representation in [Representation::JSON, INDENTED, YAML, PROTOBUF] {
            if representation.encoding == Encoding::Protobuf && *form == Form::Table {
                continue;
            }
            let representation = Representation { form: *form, ..representation };
            let answer = answer(item_form.clone(), representation);
            for (count, length, gzip) in [(3, 2, false), (600, 100, false), (901, 500, true)] {
                let (whole, _) = written(&answer, list(count), gzip);
                for blocks in [false, true] {
                    let paged = in_pages(list(count), length, blocks, usize::MAX);
                    let (paged, is_cut_off) = awaited(answer.begin(paged, gzip).unwrap()).await;
                    let unpacked = |text: Vec<u8>| {
                        let mut unpacked = Vec::new();
                        match flate2::read::GzDecoder::new(&*text).read_to_end(&mut unpacked) {
                            Ok(_) => unpacked,
                            Err(_) => text,
                        }
                    };
                    let is_same = unpacked(paged) == unpacked(whole.clone());
                    assert!(is_same && !is_cut_off, "{count} in pages of {length}, {representation:?}");
                }
            }
        }
    }
}

/// An answer that has begun cannot become an error, but its client must not take it for complete.
#[tokio::test]
async fn a_list_whose_pages_end_too_early_is_cut_off() {
    for representation in [Representation::JSON, INDENTED, YAML, PROTOBUF] {
        for (blocks, gzip) in [(false, false), (true, true)] {
            let answer = answer(ItemForm::Object { with_type: false }, representation);
            let paged = in_pages(list(9000), 500, blocks, 9);
            let (_, is_cut_off) = awaited(answer.begin(paged, gzip).unwrap()).await;
            assert!(is_cut_off, "{representation:?}");
        }
    }
}

/// Lengths of a collection with this number of objects.
fn counted(count: usize) -> Arc<ListLengths> {
    let store = MemoryStorage::default();
    let (lengths, revision) = (ListLengths::default(), store.revision().unwrap());
    lengths.open(store.watch("/", revision).unwrap(), revision, ["/core/configmaps/".to_owned()].into_iter());
    let type_meta = Arc::new(TypeMeta { api_version: "v1".into(), kind: "ConfigMap".into() });
    let form = |items| CountedForm::new(items, Arc::clone(&type_meta));
    let object = ProtobufItems::of_kind("v1", "ConfigMap").unwrap();
    let forms: Arc<[CountedForm]> = [form(ProtobufItems::metadata()), form(object)].into();
    assert_eq!(lengths.begin("/core/configmaps/", Arc::clone(&forms)), Some(revision));
    let mut totals = Totals::new(forms);
    for (value, revision) in stored(count).into_iter().zip(1..) {
        let key = format!("/core/configmaps/default/m{revision}").into();
        let revision = Revision(revision);
        let stored = KeyValue { key, value, create_revision: revision, mod_revision: revision };
        totals.add_objects("/core/configmaps/", &[stored]);
    }
    lengths.complete("/core/configmaps/", Some(totals));
    Arc::new(lengths)
}

/// Begins a list of a collection in pages of 500. Returns the number of objects that are read of them, too.
fn begun(answer: &ListAnswer<'_>, count: usize, is_known: bool) -> (ListStart, Arc<AtomicUsize>) {
    let mut list = list_of(stored(count));
    let objects = list.items.split_off(500);
    let (prefix, namespace) = ("/core/configmaps/".into(), "default".into());
    let listed = is_known.then_some(ListedCollection { prefix, namespace, revision: INITIAL });
    let read = Arc::new(AtomicUsize::new(0));
    let (blocks, readable) = (false, usize::MAX);
    let pages = Pages { objects, length: 500, blocks, readable, listed, read: Arc::clone(&read) };
    list.rest = Some(ListRest::new(Box::new(pages)));
    list.continue_token = String::new();
    list.remaining_item_count = None;
    (answer.begin(list, false).unwrap(), read)
}

/// A list whose length is known is the same, and its objects are read once.
#[tokio::test]
async fn a_list_of_known_length_begins_at_once() {
    const COUNT: usize = 10_000;
    let lengths = counted(COUNT);
    for form in [ItemForm::Object { with_type: false }, ItemForm::Metadata] {
        let answer = ListAnswer { lengths: &lengths, ..answer(form, PROTOBUF) };
        let (start, read) = begun(&answer, COUNT, true);
        let known = awaited(start).await;
        assert!(read.load(Ordering::Relaxed) < COUNT, "they were read once");
        let (start, read) = begun(&answer, COUNT, false);
        assert!(known == awaited(start).await && !known.1);
        assert!(read.load(Ordering::Relaxed) > COUNT, "they were read twice");
    }
}

/// A list must not have another length than it says: its client would take the wrong bytes for it.
#[tokio::test]
async fn a_list_of_another_length_is_cut_off_and_measured_from_then_on() {
    const COUNT: usize = 10_000;
    for count in [COUNT - 1, COUNT + 1] {
        let lengths = counted(COUNT);
        let answer = ListAnswer { lengths: &lengths, ..answer(ItemForm::Metadata, PROTOBUF) };
        for is_cut_off in [true, false] {
            let (start, _) = begun(&answer, count, true);
            assert_eq!(awaited(start).await.1, is_cut_off, "{count}");
        }
    }
}

/// The memory that a list holds must not depend on its length.
#[tokio::test]
async fn a_list_in_pages_holds_one_of_them() {
    for representation in [Representation::JSON, INDENTED, YAML, PROTOBUF] {
        let held = |count: usize| {
            let answer = answer(ItemForm::Object { with_type: false }, representation);
            match answer.begin(in_pages(list(count), 4000, true, usize::MAX), false).unwrap() {
                ListStart::Stream(stream, _) => stream.held_bytes(),
                ListStart::Whole(_) => panic!("it is long"),
            }
        };
        assert_eq!(held(8001), held(24_001), "{representation:?}");
    }
}
