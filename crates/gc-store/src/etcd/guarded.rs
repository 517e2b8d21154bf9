//! Transactions that can be repeated because their guards never hold twice, and the results of attempts without an answer.

use std::sync::Arc;

use gc_store_api::{Committed, KeyValue, Revision, StorageError, Write};

use super::answers;
use super::attempt::{Earlier, Sent, judge};
use super::convert::{self, Refusal};
use super::members::Repeat;
use super::protocol::{Compare, DeleteRangeRequest, Operation, PutRequest, TxnRequest};
use super::{EtcdStorage, ended, one, present, refused, unknown, wait};

/// Maximum number of deletions whose signatures are read to find this process's own.
const SIGNATURE_READS: usize = 16;

impl EtcdStorage {
    /// Commits a transaction that changes nothing when performed a second time.
    pub(super) fn commit_guarded(&self, sent: &mut Sent<'_>) -> Result<Committed, StorageError> {
        let mut was_full = false;
        loop {
            let (client, request) = (self.client.clone(), self.request(sent));
            let (answer, is_repeated) =
                match self.ask(async move { client.transaction(request, Repeat::Harmless).await })? {
                    Ok(answer) => answer,
                    Err((Refusal::Full, _)) if sent.leave_out_signature() => {
                        was_full = true;
                        continue;
                    }
                    Err((refusal, error)) => return Err(refused(sent.transaction, refusal, &error)),
                };
            let made_at = answers::made_at(convert::made_at(answer.header.as_ref()))?;
            if answer.succeeded {
                return Ok(Committed::Done(made_at));
            }
            let present = present(sent.transaction, &answer);
            // The attempt before etcd was full may have been repeated, too.
            if !is_repeated && !was_full {
                return Ok(Committed::Conflict(present));
            }
            return match self.earlier(sent, made_at, &present)? {
                Earlier::Performed(revision) => Ok(Committed::Done(revision)),
                Earlier::NotPerformed => Ok(Committed::Conflict(present)),
                Earlier::Unknown => Err(unknown()),
            };
        }
    }

    /// Converts a transaction to etcd's form. If a condition does not hold, the answer begins with the keys of all conditions.
    pub(super) fn request(&self, sent: &Sent<'_>) -> TxnRequest {
        let key = |key: &str| self.names.key(key);
        let conditions = sent.transaction.conditions.iter().map(|condition| {
            let modified = i64::try_from(condition.mod_revision.0).unwrap_or(i64::MAX);
            Compare::mod_revision(key(&condition.key), modified)
        });
        let writes = sent.transaction.writes.iter().map(|write| match write {
            Write::Put(name, value) => {
                Operation::Put(PutRequest { key: key(name).into(), value: value.clone() })
            }
            Write::Delete(name) => Operation::Delete(DeleteRangeRequest { key: key(name).into() }),
        });
        let signature = sent.signature.as_ref().filter(|_| sent.writes_signature).map(|signature| {
            let (key, value) = (self.names.signature.clone().into(), signature.clone().into());
            Operation::Put(PutRequest { key, value })
        });
        let keys = sent.transaction.conditions.iter();
        let reads = keys.map(|condition| Operation::Range(one(key(&condition.key))));
        TxnRequest::new(conditions, writes.chain(signature), reads)
    }

    /// Returns the result of earlier attempts, given that each was performed up to this revision or never will be, and the states
    /// of the keys of all conditions after them.
    pub(super) fn earlier(
        &self,
        sent: &Sent<'_>,
        until: Revision,
        present: &[Option<KeyValue>],
    ) -> Result<Earlier, StorageError> {
        if let Some(signature) = &sent.signature
            && let Some(at) = self.signed(signature, None)?
        {
            return Ok(Earlier::Performed(at));
        }
        let runtime = self.runtime.as_ref().ok_or_else(ended)?;
        let (feed, asked, since) = (Arc::clone(&self.feed), sent.transaction.clone(), sent.since);
        let searched = wait(runtime, self.timeout, async move { feed.search(&asked, since, until).await })?;
        match (searched, &sent.signature) {
            (Some(found), Some(signature)) => self.own(&found, signature, sent.writes_signature),
            (Some(found), None) => {
                Ok(found.first().map_or(Earlier::NotPerformed, |at| Earlier::Performed(*at)))
            }
            (None, Some(_)) => Ok(Earlier::Unknown),
            (None, None) => Ok(judge(sent.transaction, present)),
        }
    }

    /// Finds the deletion with this signature among deletions at these revisions.
    fn own(
        &self,
        found: &[Revision],
        signature: &str,
        all_are_signed: bool,
    ) -> Result<Earlier, StorageError> {
        for at in found.iter().take(SIGNATURE_READS) {
            match self.signed(signature, Some(*at)) {
                Ok(Some(signed)) if signed == *at => return Ok(Earlier::Performed(signed)),
                Ok(_) => {}
                Err(StorageError::Compacted { .. }) => return Ok(Earlier::Unknown),
                Err(error) => return Err(error),
            }
        }
        let is_certain = found.is_empty() || (all_are_signed && found.len() <= SIGNATURE_READS);
        Ok(if is_certain { Earlier::NotPerformed } else { Earlier::Unknown })
    }

    /// Returns the revision at which the signature was written, if it is the most recent signature, at this revision or the newest.
    fn signed(&self, signature: &str, at: Option<Revision>) -> Result<Option<Revision>, StorageError> {
        let request = super::RangeRequest {
            revision: at.map_or(0, convert::to_etcd),
            ..one(self.names.signature.clone())
        };
        let (client, asked) = (self.client.clone(), request.clone());
        let answer = self.read(at, async move { client.range(request).await })?;
        let found = answers::range(&self.names.all, &asked, answer, at)?.items.pop();
        Ok(found.filter(|found| found.value == signature.as_bytes()).map(|found| found.mod_revision))
    }
}

#[cfg(test)]
mod tests;
