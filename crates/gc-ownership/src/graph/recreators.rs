//! Controllers and tools that recreate objects. Most have no such tool and take no memory here; an object that has
//! one takes 10 to 17 bytes, and each distinct tool its name once.

use std::collections::BTreeMap;

use gc_types::Recreator;

use super::NodeId;
use super::intern::Interner;

#[derive(Clone, Debug)]
pub(super) struct Recreators {
    of_nodes: BTreeMap<NodeId, u32>,
    texts: Interner<Recreator>,
}

impl Recreators {
    pub(super) fn new() -> Self {
        Self { of_nodes: BTreeMap::new(), texts: Interner::new() }
    }

    pub(super) fn get(&self, node: NodeId) -> Option<&Recreator> {
        self.texts.get(*self.of_nodes.get(&node)?)
    }

    pub(super) fn set(&mut self, node: NodeId, recreator: Option<&Recreator>) {
        if self.get(node) == recreator {
            return;
        }
        let former = match recreator {
            Some(recreator) => self.of_nodes.insert(node, self.texts.intern(recreator)),
            None => self.of_nodes.remove(&node),
        };
        if let Some(former) = former {
            self.texts.release(former);
        }
    }

    /// Returns the nodes that have a recreator, and how many nodes the texts count.
    pub(super) fn census(&self) -> (impl Iterator<Item = NodeId> + '_, usize) {
        let users = self.texts.iter().map(|(_, _, users)| users as usize).sum();
        (self.of_nodes.keys().copied(), users)
    }
}
