//! A document while a JSON patch changes it: opened level by level as paths lead into it, with arrays in which an insertion or a
//! removal does not move all later items.

use std::collections::BTreeMap;

use serde_json::Value;

use super::DoesNotApply;
use crate::schema::MAX_DEPTH;

/// Number of items beyond which a chunk is divided. Finding an index adds up the lengths of the chunks, and an insertion moves the
/// rest of one: neither takes many more steps than this number, even for the largest array that a body can contain.
const CHUNK: usize = 1_024;

/// A part of a document.
#[derive(Debug)]
pub(super) enum Node {
    /// A part that no path has led into yet.
    Closed(Value),
    /// The fields of an object.
    Object(BTreeMap<String, Node>),
    /// The items of an array.
    Array(Chunks),
}

impl Node {
    /// Opens one level and returns the part below a key.
    pub(super) fn step(&mut self, key: &str) -> Result<&mut Self, DoesNotApply> {
        match self.opened() {
            Self::Object(fields) => fields.get_mut(key).ok_or(DoesNotApply),
            Self::Array(items) => {
                let index = index(key, items.len())?;
                items.get_mut(index).ok_or(DoesNotApply)
            }
            Self::Closed(_) => Err(DoesNotApply),
        }
    }

    /// Turns a closed object or array into an open one; closed nodes that remain are scalars.
    pub(super) fn opened(&mut self) -> &mut Self {
        if let Self::Closed(value) = self {
            *self = match value.take() {
                Value::Object(fields) => Self::Object(
                    fields.into_iter().map(|(name, value)| (name, Self::Closed(value))).collect(),
                ),
                Value::Array(items) => Self::Array(Chunks::new(items)),
                scalar => Self::Closed(scalar),
            };
        }
        self
    }

    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Closed(value) => value,
            Self::Object(fields) => {
                Value::Object(fields.into_iter().map(|(name, node)| (name, node.into_value())).collect())
            }
            Self::Array(items) => items.0.into_iter().flatten().map(Self::into_value).collect(),
        }
    }

    pub(super) fn to_value(&self) -> Value {
        match self {
            Self::Closed(value) => value.clone(),
            Self::Object(fields) => {
                Value::Object(fields.iter().map(|(name, node)| (name.clone(), node.to_value())).collect())
            }
            Self::Array(items) => items.iter().map(Self::to_value).collect(),
        }
    }

    /// Compares the node with a value, in time proportional to the smaller of the two.
    pub(super) fn equals(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Closed(own), value) => own == value,
            (Self::Object(fields), Value::Object(others)) => {
                fields.len() == others.len()
                    && fields
                        .iter()
                        .zip(others)
                        .all(|((name, node), (other, value))| name == other && node.equals(value))
            }
            (Self::Array(items), Value::Array(others)) => {
                items.len() == others.len()
                    && items.iter().zip(others).all(|(node, value)| node.equals(value))
            }
            _ => false,
        }
    }

    /// Returns the nesting depth, and adds the number of nodes to `visited`. Gives up below [`MAX_DEPTH`] levels.
    pub(super) fn depth(&self, visited: &mut usize) -> Option<usize> {
        fn of_value(value: &Value, left: usize, visited: &mut usize) -> Option<usize> {
            *visited += 1;
            match value {
                Value::Array(items) => {
                    deepest(items.iter(), left, |item, left| of_value(item, left, visited))
                }
                Value::Object(fields) => {
                    deepest(fields.values(), left, |item, left| of_value(item, left, visited))
                }
                _ => Some(0),
            }
        }
        fn of_node(node: &Node, left: usize, visited: &mut usize) -> Option<usize> {
            match node {
                Node::Closed(value) => of_value(value, left, visited),
                Node::Object(fields) => {
                    *visited += 1;
                    deepest(fields.values(), left, |item, left| of_node(item, left, visited))
                }
                Node::Array(items) => {
                    *visited += 1;
                    deepest(items.iter(), left, |item, left| of_node(item, left, visited))
                }
            }
        }
        of_node(self, MAX_DEPTH, visited)
    }
}

/// Returns one more than the maximum depth of some items.
fn deepest<T>(
    mut items: impl Iterator<Item = T>,
    left: usize,
    mut depth: impl FnMut(T, usize) -> Option<usize>,
) -> Option<usize> {
    let left = left.checked_sub(1)?;
    Some(items.try_fold(0, |deepest, item| Some(depth(item, left)?.max(deepest)))? + 1)
}

/// Parses an index below `bound`; a negative one counts from the end.
pub(super) fn index(key: &str, bound: usize) -> Result<usize, DoesNotApply> {
    let number: i64 = key.parse().map_err(|_| DoesNotApply)?;
    let bound = i64::try_from(bound).map_err(|_| DoesNotApply)?;
    let index = if number < 0 { number + bound } else { number };
    if (0..bound).contains(&index) {
        usize::try_from(index).map_err(|_| DoesNotApply)
    } else {
        Err(DoesNotApply)
    }
}

/// Items of an array, in chunks of up to twice [`CHUNK`] items. No chunk is empty.
#[derive(Debug)]
pub(super) struct Chunks(Vec<Vec<Node>>);

impl Chunks {
    fn new(items: Vec<Value>) -> Self {
        let mut chunks = Vec::with_capacity(items.len().div_ceil(CHUNK));
        let mut items = items.into_iter().map(Node::Closed).peekable();
        while items.peek().is_some() {
            chunks.push(items.by_ref().take(CHUNK).collect());
        }
        Self(chunks)
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    fn iter(&self) -> impl Iterator<Item = &Node> {
        self.0.iter().flatten()
    }

    /// Returns the chunk that contains an index, and the index within the chunk.
    fn find(&self, mut index: usize) -> Option<(usize, usize)> {
        for (number, chunk) in self.0.iter().enumerate() {
            if index < chunk.len() {
                return Some((number, index));
            }
            index -= chunk.len();
        }
        None
    }

    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Node> {
        let (chunk, at) = self.find(index)?;
        self.0.get_mut(chunk)?.get_mut(at)
    }

    /// Inserts before an index, or after the last item for any other.
    pub(super) fn insert(&mut self, index: usize, node: Node) {
        let (number, at) = match (self.find(index), self.0.last()) {
            (Some(found), _) => found,
            (None, Some(last)) => (self.0.len() - 1, last.len()),
            (None, None) => return self.0.push(vec![node]),
        };
        let chunk = &mut self.0[number];
        chunk.insert(at, node);
        if chunk.len() > 2 * CHUNK {
            let rest = chunk.split_off(CHUNK);
            self.0.insert(number + 1, rest);
        }
    }

    pub(super) fn remove(&mut self, index: usize) -> Option<Node> {
        let (number, at) = self.find(index)?;
        let node = self.0[number].remove(at);
        if self.0[number].is_empty() {
            self.0.remove(number);
        }
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        /// Chunks must behave like an array, even when they are divided or become empty.
        #[test]
        fn chunks_are_an_array(
            length in 0..5_000_usize,
            changes in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..3_000),
        ) {
            let mut plain: Vec<Value> = (0..length).map(Value::from).collect();
            let mut chunks = Chunks::new(plain.clone());
            for (number, (inserts, at)) in changes.into_iter().enumerate() {
                if inserts {
                    let at = at.index(plain.len() + 1);
                    plain.insert(at, json!(["new", number]));
                    chunks.insert(at, Node::Closed(json!(["new", number])));
                } else if !plain.is_empty() {
                    let at = at.index(plain.len());
                    prop_assert_eq!(plain.remove(at), chunks.remove(at).unwrap().into_value());
                }
            }
            prop_assert_eq!(chunks.len(), plain.len());
            let node = Node::Array(chunks);
            prop_assert!(node.equals(&Value::Array(plain.clone())));
            prop_assert_eq!(node.into_value(), Value::Array(plain));
        }
    }

    #[test]
    fn removing_everything_leaves_an_empty_array() {
        let mut chunks = Chunks::new((0..3_000).map(Value::from).collect());
        while chunks.remove(0).is_some() {}
        chunks.insert(0, Node::Closed(json!(1)));
        assert_eq!(Node::Array(chunks).into_value(), json!([1]));
    }
}
