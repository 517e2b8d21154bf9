//! Retries of transactions that must not be performed twice.
//!
//! A creation is conditional on the absence of its key, which holds again after a deletion. If the member that received it fails,
//! the creation may have been performed, or may be performed late and recreate a deleted object. Therefore it is also conditional
//! on a key that all processes share, the fence. Once the fence has been raised, a late attempt fails, and the stored keys reveal
//! the result of the first one.

use std::sync::atomic::Ordering;

use gc_store_api::{Committed, KeyValue, Revision, StorageError, Transaction};

use super::answers;
use super::attempt::{Earlier, Sent};
use super::convert::{self, Refusal};
use super::members::{Repeat, Trouble};
use super::protocol::{Compare, Operation, PutRequest, RequestOp, TxnRequest};
use super::{EtcdStorage, one, plain, present, refused, unknown};

/// Maximum number of attempts at one transaction.
const MAX_TURNS: usize = 4;

/// Result of one attempt.
enum Attempt {
    Committed(Committed),
    /// Another process has raised the fence; nothing was performed.
    Fenced,
    /// The transaction will be repeated without its signature, because etcd is full; nothing was performed.
    Unsigned,
    /// The member failed.
    Unknown,
}

impl EtcdStorage {
    pub(super) fn commit_once(&self, sent: &mut Sent<'_>) -> Result<Committed, StorageError> {
        for _ in 0..MAX_TURNS {
            sent.since = self.feed.reached();
            let fence = Revision(self.fence.load(Ordering::Acquire));
            match self.attempt(sent, fence)? {
                Attempt::Committed(committed) => return Ok(committed),
                Attempt::Fenced | Attempt::Unsigned => {}
                Attempt::Unknown => {
                    let raised = self.raise_fence(fence)?;
                    if let Some(committed) = self.result_of(sent, raised)? {
                        return Ok(committed);
                    }
                }
            }
        }
        Err(StorageError::Unavailable("members of etcd failed one after the other".to_owned()))
    }

    fn attempt(&self, sent: &mut Sent<'_>, fence: Revision) -> Result<Attempt, StorageError> {
        let operation = |request| RequestOp { request: Some(request) };
        let (transaction, mut request) = (sent.transaction, self.request(sent));
        let known = i64::try_from(fence.0).unwrap_or(i64::MAX);
        request.compare.push(Compare::mod_revision(self.names.fence.clone(), known));
        request.failure.push(operation(Operation::Range(one(self.names.fence.clone()))));
        let client = self.client.clone();
        let answer = match self.ask(async move { client.transaction(request, Repeat::Harmful).await })? {
            Ok((answer, _)) => answer,
            Err((_, error)) if Trouble::of(&error) == Some(Trouble::Unknown) => return Ok(Attempt::Unknown),
            Err((Refusal::Full, _)) if sent.leave_out_signature() => return Ok(Attempt::Unsigned),
            Err((refusal, error)) => return Err(refused(transaction, refusal, &error)),
        };
        if answer.succeeded {
            let revision = answers::made_at(convert::made_at(answer.header.as_ref()))?;
            return Ok(Attempt::Committed(Committed::Done(revision)));
        }
        let found = answer.range(transaction.conditions.len()).and_then(|found| found.kvs.first());
        // Not the maximum of both: an older etcd may have been restored.
        self.fence.store(found.map_or(0, |kv| convert::revision(kv.mod_revision).0), Ordering::Release);
        let present = present(transaction, &answer);
        let holds = are_met(transaction, &present);
        Ok(if holds { Attempt::Fenced } else { Attempt::Committed(Committed::Conflict(present)) })
    }

    /// Ensures that no attempt with this fence is performed from now on. Returns a revision from which that holds.
    fn raise_fence(&self, fence: Revision) -> Result<Revision, StorageError> {
        let key = &self.names.fence;
        let put = PutRequest { key: key.clone().into(), ..PutRequest::default() };
        let request = TxnRequest::new(
            [Compare::mod_revision(key.clone(), i64::try_from(fence.0).unwrap_or(i64::MAX))],
            [Operation::Put(put)],
            [Operation::Range(one(key.clone()))],
        );
        let client = self.client.clone();
        // The fence is never removed, so raising it a second time does nothing.
        let asked = self.ask(async move { client.transaction(request, Repeat::Harmless).await })?;
        let (answer, _) = asked.map_err(|(refusal, error)| plain(refusal, &error))?;
        let revision = answers::made_at(convert::made_at(answer.header.as_ref()))?;
        let raised = if answer.succeeded {
            revision
        } else {
            let found = answer.range(0).and_then(|found| found.kvs.first());
            found.map_or(Revision(0), |kv| convert::revision(kv.mod_revision))
        };
        self.fence.store(raised.0, Ordering::Release);
        Ok(revision)
    }

    /// Returns the result of an attempt that a raised fence has ended; `None` if it was not performed and can be repeated.
    fn result_of(&self, sent: &Sent<'_>, raised: Revision) -> Result<Option<Committed>, StorageError> {
        let transaction = sent.transaction;
        let keys = transaction.conditions.iter();
        let reads = keys.map(|condition| Operation::Range(one(self.names.key(&condition.key))));
        let request = TxnRequest::new([], reads, []);
        let client = self.client.clone();
        let asked = self.ask(async move { client.transaction(request, Repeat::Harmless).await })?;
        let (answer, _) = asked.map_err(|(refusal, error)| plain(refusal, &error))?;
        let present = present(transaction, &answer);
        match self.earlier(sent, raised, &present)? {
            Earlier::Performed(revision) => Ok(Some(Committed::Done(revision))),
            Earlier::NotPerformed if are_met(transaction, &present) => Ok(None),
            Earlier::NotPerformed => Ok(Some(Committed::Conflict(present))),
            Earlier::Unknown => Err(unknown()),
        }
    }
}

/// Reports whether all conditions hold for these states of their keys.
fn are_met(transaction: &Transaction, present: &[Option<KeyValue>]) -> bool {
    transaction.conditions.iter().zip(present).all(|(condition, found)| {
        found.as_ref().map_or(Revision(0), |found| found.mod_revision) == condition.mod_revision
    })
}

#[cfg(test)]
mod tests;
