//! Converts YAML to the JSON data model as kube-apiserver does: scalars by the rules of YAML 1.1, only the first document of a
//! stream, the last of several equal keys.
//!
//! Parsing is linear in the input and checks every bound as it proceeds: the nesting of a document, its number of nodes, and the
//! number of nodes and the amount of text that its aliases expand to.

mod scalar;

use std::borrow::Cow;
use std::collections::BTreeMap;

use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, ScanError, Tag};
use serde_json::{Map, Value};

use self::scalar::Scalar;

/// Maximum nesting of collections, the bound of the JSON parser.
const MAXIMUM_DEPTH: usize = 127;
/// Maximum number of nodes of a document, aliases expanded.
const MAXIMUM_NODES: usize = 1_000_000;
/// Maximum number of bytes of text that aliases in a document may expand to.
const MAXIMUM_TEXT_BYTES: usize = 8 * 1024 * 1024;
/// Maximum share of nodes that may come from aliases, in percent; upstream's bound...
const ALIAS_SHARE_PERCENT: usize = 99;
/// ...which applies once a document has this many nodes.
const ALIAS_SHARE_FROM: usize = 1000;
/// Maximum number of repeated keys that are reported individually.
const MAXIMUM_REPORTED: usize = 100;
/// Maximum number of characters of a document that an error repeats.
const MAXIMUM_SHOWN: usize = 60;

/// Error in a document, in upstream's wording where upstream has one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum YamlError {
    /// The document does not parse.
    #[error("yaml: line {line}: {problem}")]
    Syntax {
        /// Line, counted from 1.
        line: usize,
        /// Cause.
        problem: String,
    },
    /// The document nests deeper than [`MAXIMUM_DEPTH`].
    #[error("exceeded max depth")]
    Depth,
    /// The document has, or expands to, more than [`MAXIMUM_NODES`].
    #[error("yaml: the document has more than {MAXIMUM_NODES} nodes")]
    Nodes,
    /// The document's aliases expand to too much.
    #[error("yaml: document contains excessive aliasing")]
    Aliases,
    /// An anchor's own value refers to it.
    #[error("yaml: line {line}: anchor value contains itself")]
    Recursive {
        /// Line of the alias, counted from 1.
        line: usize,
    },
    /// A mapping or a sequence is the key of a mapping.
    #[error("yaml: line {line}: invalid map key: only scalars can be keys")]
    Key {
        /// Line, counted from 1.
        line: usize,
    },
    /// `<<` is given something that cannot be merged.
    #[error("yaml: map merge requires map or sequence of maps as the value")]
    Merge,
    /// A scalar does not match its tag, or JSON has no such value.
    #[error("yaml: line {line}: {problem}")]
    Scalar {
        /// Line, counted from 1.
        line: usize,
        /// Cause.
        problem: String,
    },
}

/// A parsed document.
#[derive(Debug, PartialEq)]
pub(crate) struct Document {
    /// Value of the document; of equal keys, the last one.
    pub(crate) value: Value,
    /// Keys that occur more than once, each as a line such as `line 3: key "a" already set in map`.
    pub(crate) repeated: Vec<String>,
}

/// Reads the first document of a stream; an empty stream is null.
pub(crate) fn parse(text: &str) -> Result<Document, YamlError> {
    let items = items(text)?;
    let mut decoder = Decoder { items: &items, ..Decoder::default() };
    let value = if items.is_empty() { Value::Null } else { decoder.value(0, 0)? };
    if decoder.unreported > 0 {
        decoder.repeated.push(format!("and {} more keys already set in map", decoder.unreported));
    }
    Ok(Document { value, repeated: decoder.repeated })
}

/// Writes a value as YAML for people: multi-line text over several lines, and quotes around text that YAML 1.1 would read as
/// another type.
pub(crate) fn written(value: &Value) -> String {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: true,
        folded_wrap_chars: usize::MAX,
    };
    serde_saphyr::to_string_with_options(value, options).unwrap_or_default()
}

/// Returns the beginning of a text from outside, for a message.
fn shown(text: &str) -> String {
    match text.char_indices().nth(MAXIMUM_SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// A node of the document. Nodes are in document order, so a collection is followed by its contents.
#[derive(Debug)]
struct Item<'a> {
    kind: Shape<'a>,
    line: usize,
    /// Index after the node and its contents; 0 while it is open.
    end: usize,
}

#[derive(Debug)]
enum Shape<'a> {
    Scalar {
        text: Cow<'a, str>,
        plain: bool,
        tag: Option<Box<str>>,
    },
    Sequence,
    Mapping,
    /// Index of the node that the alias stands for.
    Alias(usize),
}

/// Returns the nodes of the first document.
fn items(text: &str) -> Result<Vec<Item<'_>>, YamlError> {
    let mut options: Options = granit_parser::options! {
        flow_nesting_limit: MAXIMUM_DEPTH,
        block_nesting_limit: MAXIMUM_DEPTH,
    };
    options.set_emit_comments(false);
    let mut items = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut anchors: BTreeMap<usize, usize> = BTreeMap::new();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| syntax(text, &error))?;
        let line = span.start.line();
        let (kind, anchor) = match event {
            Event::DocumentEnd | Event::StreamEnd => break,
            Event::SequenceEnd | Event::MappingEnd => {
                let end = items.len();
                if let Some(item) = open.pop().and_then(|at: usize| items.get_mut(at)) {
                    let item: &mut Item<'_> = item;
                    item.end = end;
                }
                continue;
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                (Shape::Scalar { text, plain, tag: tag.map(|tag| full_tag(&tag)) }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => (Shape::Sequence, anchor),
            Event::MappingStart(_, anchor, _) => (Shape::Mapping, anchor),
            Event::Alias(anchor) => {
                let unknown = || YamlError::Syntax { line, problem: "unknown anchor referenced".to_owned() };
                (Shape::Alias(*anchors.get(&anchor).ok_or_else(unknown)?), 0)
            }
            _ => continue,
        };
        if items.len() >= MAXIMUM_NODES {
            return Err(YamlError::Nodes);
        }
        if anchor != 0 {
            anchors.insert(anchor, items.len());
        }
        let collection = matches!(kind, Shape::Sequence | Shape::Mapping);
        if collection {
            if open.len() >= MAXIMUM_DEPTH {
                return Err(YamlError::Depth);
            }
            open.push(items.len());
        }
        let end = if collection { 0 } else { items.len() + 1 };
        items.push(Item { kind, line, end });
    }
    Ok(items)
}

fn full_tag(tag: &Tag) -> Box<str> {
    let (handle, suffix) = tag.parts();
    format!("{handle}{suffix}").into()
}

/// Translates the most common parser errors to upstream's wording.
fn syntax(text: &str, error: &ScanError) -> YamlError {
    let unclosed = |close: &str| {
        let node_missing = text.trim_end().ends_with(['[', ',', '{', ':']) && close == "]";
        if node_missing {
            "did not find expected node content".to_owned()
        } else {
            format!("did not find expected ',' or '{close}'")
        }
    };
    let problem = match error.kind() {
        ErrorKind::RecursionLimitExceeded => return YamlError::Depth,
        ErrorKind::UnclosedFlowCollection { open: '[' } | ErrorKind::UnexpectedEofFlowSequence => {
            unclosed("]")
        }
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping
        | ErrorKind::ExpectedFlowMappingSeparator => unclosed("}"),
        ErrorKind::ExpectedFlowSequenceSeparator => "did not find expected ',' or ']'".to_owned(),
        ErrorKind::ExpectedNodeContent => "did not find expected node content".to_owned(),
        ErrorKind::ExpectedBlockMappingKey => "did not find expected key".to_owned(),
        ErrorKind::ExpectedBlockSequenceEntry => "did not find expected '-' indicator".to_owned(),
        ErrorKind::SimpleKeyExpected => "could not find expected ':'".to_owned(),
        ErrorKind::UnclosedQuotedScalar => "found unexpected end of stream".to_owned(),
        ErrorKind::TabInBlockIndentation | ErrorKind::TabInIndentation | ErrorKind::TabNotAllowed => {
            "found character that cannot start any token".to_owned()
        }
        other => shown(&other.to_string()),
    };
    YamlError::Syntax { line: error.marker().line().max(1), problem }
}

/// Converts nodes to values, and counts them.
#[derive(Default)]
struct Decoder<'a> {
    items: &'a [Item<'a>],
    nodes: usize,
    nodes_by_alias: usize,
    text_bytes: usize,
    aliases_open: usize,
    repeated: Vec<String>,
    unreported: usize,
}

impl Decoder<'_> {
    fn count(&mut self, text_bytes: usize) -> Result<(), YamlError> {
        self.nodes += 1;
        if self.nodes > MAXIMUM_NODES {
            return Err(YamlError::Nodes);
        }
        if self.aliases_open > 0 {
            self.nodes_by_alias += 1;
            self.text_bytes += text_bytes;
            let most = self.nodes * ALIAS_SHARE_PERCENT / 100;
            let too_many = self.nodes > ALIAS_SHARE_FROM && self.nodes_by_alias > most;
            if too_many || self.text_bytes > MAXIMUM_TEXT_BYTES {
                return Err(YamlError::Aliases);
            }
        }
        Ok(())
    }

    /// Returns the value of the node at an index. Recursion is limited to [`MAXIMUM_DEPTH`], through aliases too.
    fn value(&mut self, at: usize, depth: usize) -> Result<Value, YamlError> {
        let items = self.items;
        let item = &items[at];
        match &item.kind {
            Shape::Alias(_) => self.through_alias(at, |decoder, target| decoder.value(target, depth)),
            Shape::Scalar { text, plain, tag } => {
                self.count(text.len())?;
                let scalar = scalar::resolve(text, *plain, tag.as_deref());
                scalar
                    .and_then(Scalar::into_json)
                    .map_err(|problem| YamlError::Scalar { line: item.line, problem })
            }
            Shape::Sequence => {
                self.count(0)?;
                let inside = deeper(depth)?;
                let values = children(items, at).map(|child| self.value(child, inside));
                values.collect::<Result<_, _>>().map(Value::Array)
            }
            Shape::Mapping => {
                let mut map = Map::new();
                self.mapping(at, depth, &mut map)?;
                Ok(Value::Object(map))
            }
        }
    }

    /// Continues with the node that an alias stands for.
    fn through_alias<T>(
        &mut self,
        at: usize,
        then: impl FnOnce(&mut Self, usize) -> Result<T, YamlError>,
    ) -> Result<T, YamlError> {
        let items = self.items;
        let item = &items[at];
        let Shape::Alias(target) = item.kind else { return then(self, at) };
        // The alias is inside the node that it stands for.
        if items[target].end > at {
            return Err(YamlError::Recursive { line: item.line });
        }
        self.aliases_open += 1;
        let done = then(self, target);
        self.aliases_open -= 1;
        done
    }

    /// Inserts the entries of a mapping into a map; later ones replace earlier ones.
    fn mapping(&mut self, at: usize, depth: usize, map: &mut Map<String, Value>) -> Result<(), YamlError> {
        self.count(0)?;
        let inside = deeper(depth)?;
        let items = self.items;
        let mut entries = children(items, at);
        while let (Some(key), Some(value)) = (entries.next(), entries.next()) {
            if is_merge(&items[key]) {
                self.merge(value, depth, map)?;
                continue;
            }
            let (name, written) = self.through_alias(key, Self::key)?;
            let found = self.value(value, inside)?;
            if map.insert(name, found).is_some() {
                self.report(items[value].line, &written);
            }
        }
        Ok(())
    }

    fn report(&mut self, line: usize, key: &str) {
        if self.repeated.len() < MAXIMUM_REPORTED {
            self.repeated.push(format!("line {line}: key {key} already set in map"));
        } else {
            self.unreported += 1;
        }
    }

    /// Returns a key in its JSON form, and in the form that messages show.
    fn key(&mut self, at: usize) -> Result<(String, String), YamlError> {
        let item = &self.items[at];
        let Shape::Scalar { text, plain, tag } = &item.kind else {
            return Err(YamlError::Key { line: item.line });
        };
        self.count(text.len())?;
        let wrong = |problem| YamlError::Scalar { line: item.line, problem };
        let scalar = scalar::resolve(text, *plain, tag.as_deref()).map_err(wrong)?;
        let name = scalar.into_key().map_err(wrong)?;
        let written = match scalar::resolve(text, *plain, tag.as_deref()) {
            Ok(Scalar::Text(_)) => format!("{:?}", shown(&name)),
            _ => shown(&name),
        };
        Ok((name, written))
    }

    /// Merges a mapping, or several of which the first takes precedence.
    fn merge(&mut self, at: usize, depth: usize, map: &mut Map<String, Value>) -> Result<(), YamlError> {
        let items = self.items;
        let sources: Vec<usize> = match &items[at].kind {
            Shape::Sequence => children(items, at).collect(),
            _ => vec![at],
        };
        for source in sources.into_iter().rev() {
            self.through_alias(source, |decoder, target| match items[target].kind {
                Shape::Mapping => decoder.mapping(target, depth, map),
                _ => Err(YamlError::Merge),
            })?;
        }
        Ok(())
    }
}

fn deeper(depth: usize) -> Result<usize, YamlError> {
    if depth < MAXIMUM_DEPTH { Ok(depth + 1) } else { Err(YamlError::Depth) }
}

/// Returns the indexes of the nodes directly in a collection.
fn children<'a>(items: &'a [Item<'a>], at: usize) -> impl Iterator<Item = usize> + use<'a> {
    let end = items[at].end;
    std::iter::successors(Some(at + 1), |child| items.get(*child).map(|item| item.end))
        .take_while(move |child| *child < end)
}

fn is_merge(item: &Item<'_>) -> bool {
    let Shape::Scalar { text, plain, tag } = &item.kind else { return false };
    text == "<<" && (*plain && tag.is_none() || tag.as_deref() == Some(scalar::MERGE_TAG))
}

#[cfg(test)]
mod tests;
