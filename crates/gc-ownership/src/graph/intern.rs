//! Texts that many objects share, with a count of users, so that they are removed with the last one.

use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) struct Interner<K> {
    ids: BTreeMap<K, u32>,
    entries: Vec<Option<(K, u32)>>,
    free: Vec<u32>,
}

impl<K: Ord + Clone> Interner<K> {
    pub(crate) fn new() -> Self {
        Self { ids: BTreeMap::new(), entries: Vec::new(), free: Vec::new() }
    }

    /// Interns a text and returns its number, adding one user.
    pub(crate) fn intern<Q>(&mut self, text: &Q) -> u32
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + ?Sized,
        for<'a> K: From<&'a Q>,
    {
        if let Some(&id) = self.ids.get(text) {
            if let Some(Some((_, users))) = self.entries.get_mut(id as usize) {
                *users += 1;
            }
            return id;
        }
        let key = K::from(text);
        let id = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        });
        self.entries[id as usize] = Some((key.clone(), 1));
        self.ids.insert(key, id);
        id
    }

    pub(crate) fn find<Q>(&self, text: &Q) -> Option<u32>
    where
        K: std::borrow::Borrow<Q>,
        Q: Ord + ?Sized,
    {
        self.ids.get(text).copied()
    }

    /// Removes one user, and returns whether it was the last one.
    pub(crate) fn release(&mut self, id: u32) -> bool {
        let Some(entry) = self.entries.get_mut(id as usize) else { return false };
        let Some((text, users)) = entry else { return false };
        *users -= 1;
        if *users > 0 {
            return false;
        }
        self.ids.remove(text);
        *entry = None;
        self.free.push(id);
        true
    }

    pub(crate) fn get(&self, id: u32) -> Option<&K> {
        self.entries.get(id as usize).and_then(|entry| entry.as_ref().map(|(text, _)| text))
    }

    /// Returns the number of every text with its users.
    pub(crate) fn users(&self) -> impl Iterator<Item = (u32, u32)> {
        self.iter().map(|(id, _, users)| (id, users))
    }

    /// Returns every text with its number and users, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &K, u32)> {
        self.entries.iter().enumerate().filter_map(|(id, entry)| {
            let (text, users) = entry.as_ref()?;
            Some((u32::try_from(id).ok()?, text, *users))
        })
    }
}

/// `apiVersion` and `kind` as references spell them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KindText {
    pub(crate) api_version: Arc<str>,
    pub(crate) kind: Arc<str>,
}

impl From<&KindText> for KindText {
    fn from(text: &KindText) -> Self {
        text.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_for_its_users_and_its_number_is_reused() {
        let mut texts: Interner<Arc<str>> = Interner::new();
        assert_eq!(["a", "b", "a"].map(|text| texts.intern(text)), [0, 1, 0]);
        assert!(!texts.release(0), "it has another user");
        assert_eq!((texts.get(0).map(|text| &**text), texts.find("a")), (Some("a"), Some(0)));
        assert!(texts.release(0));
        assert_eq!((texts.get(0), texts.find("a")), (None, None));
        assert!(!texts.release(0) && !texts.release(9), "nothing is there");
        assert_eq!(["c", "d", "b"].map(|text| texts.intern(text)), [0, 2, 1]);
        let all: Vec<(u32, &str, u32)> = texts.iter().map(|(id, text, users)| (id, &**text, users)).collect();
        assert_eq!(all, [(0, "c", 1), (1, "b", 2), (2, "d", 1)]);
        assert_eq!(texts.users().collect::<Vec<_>>(), [(0, 1), (1, 2), (2, 1)]);
    }
}
