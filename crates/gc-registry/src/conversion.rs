//! Converts custom resources by webhooks.
//!
//! A custom resource is stored in the version that was its definition's storage version at its last write, and names that version.
//! If a request uses another version and the definition names a webhook, the webhook is called, with many objects at once if there
//! are many. Its answer is validated as in kube-apiserver ([`review`]) and pruned by the schema of the version.

mod changes;
mod review;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

pub(crate) use changes::{Changes, WaitingWatch};

use crate::error::ApiError;
use crate::metadata::meta;
use crate::metadata::object::{Object, TypeMeta};
use crate::persist::{self, PresentedObject, Read};
use crate::resource::ResourceDefinition;
use crate::schema;
use crate::storage::{KeyValue, Revision, Storage};
use crate::webhooks::answer::shown_kind;
use crate::webhooks::{Outside, WebhookCall, service};

use review::Review;

/// Time limit of a webhook for one review; upstream sends the same.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of objects per review.
const REVIEW_OBJECTS: usize = 250;
/// Maximum size of the objects in one review in bytes, unless a single object is larger.
const REVIEW_BYTES: usize = 1 << 20;
/// Maximum number of concurrent reviews of one request.
const CALLS_AT_ONCE: usize = 4;
/// Maximum number of requests and watches waiting for webhooks, including those of admission. Each occupies a thread of the pool
/// that also commits, which has 512.
const MAXIMUM_WAITING: usize = 256;

/// Function that returns the remaining time of a request.
pub(crate) type TimeLeft<'a> = &'a (dyn Fn() -> Duration + Send + Sync);
/// Remaining time for work that no request waits for.
pub(crate) const NO_HURRY: TimeLeft<'static> = &|| Duration::MAX;

/// Reads and writes objects in the version of a request.
pub(crate) struct Converter {
    storage: Arc<dyn Storage>,
    outside: OnceLock<Arc<dyn Outside>>,
    /// Counts the reviews.
    reviews: AtomicU64,
    waiting: AtomicUsize,
}

/// One of the places for waiting on webhooks.
pub(crate) struct Turn<'a>(&'a AtomicUsize);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Converter {
    pub(crate) fn new(storage: Arc<dyn Storage>) -> Self {
        Self {
            storage,
            outside: OnceLock::new(),
            reviews: AtomicU64::default(),
            waiting: AtomicUsize::default(),
        }
    }

    /// Sets the caller of webhooks.
    pub(crate) fn call_outside_by(&self, outside: Arc<dyn Outside>) {
        // The first caller stays.
        let _ = self.outside.set(outside);
    }

    pub(crate) fn outside(&self) -> Option<&dyn Outside> {
        self.outside.get().map(|outside| &**outside)
    }

    /// Decodes a stored object to a complete document in the version of the resource.
    pub(crate) fn decode(
        &self,
        resource: &ResourceDefinition,
        stored: &KeyValue,
        time_left: TimeLeft<'_>,
    ) -> Result<Value, ApiError> {
        match persist::read(resource, &stored.value, stored.mod_revision)? {
            Read::Wanted(object) => Ok(object),
            Read::Foreign(object) => self.convert_one(resource, object, &resource.api_version(), time_left),
        }
    }

    /// Encodes a document in its stored form.
    pub(crate) fn encode(
        &self,
        resource: &ResourceDefinition,
        object: &Value,
        time_left: TimeLeft<'_>,
    ) -> Result<Bytes, ApiError> {
        let custom = resource.custom.as_ref().filter(|custom| custom.webhook().is_some());
        let Some(custom) = custom.filter(|custom| custom.is_converted()) else {
            return persist::encode(resource, object);
        };
        let storage = custom.storage_api_version();
        let mut converted = self.convert_one(resource, object.clone(), storage, time_left)?;
        custom.read_stored(storage, &mut converted);
        persist::encode(resource, &converted)
    }

    /// Converts an object that is about to be returned.
    pub(crate) fn present(
        &self,
        resource: &ResourceDefinition,
        type_meta: &Arc<TypeMeta>,
        (stored, revision): (Bytes, Revision),
        time_left: TimeLeft<'_>,
    ) -> Result<Object, ApiError> {
        match persist::present(resource, type_meta, stored, revision)? {
            PresentedObject::Wanted(object) => Ok(object),
            PresentedObject::Foreign(object) => {
                let object = self.convert_one(resource, object, &type_meta.api_version, time_left)?;
                Ok(Object::from_value(Arc::clone(type_meta), object))
            }
        }
    }

    /// Converts objects that are about to be returned, in order.
    pub(crate) fn present_all(
        &self,
        resource: &ResourceDefinition,
        type_meta: &Arc<TypeMeta>,
        stored: impl IntoIterator<Item = (Bytes, Revision)>,
        time_left: TimeLeft<'_>,
    ) -> Result<Vec<Object>, ApiError> {
        let (mut objects, mut foreign, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        for (bytes, revision) in stored {
            let size = bytes.len();
            match persist::present(resource, type_meta, bytes, revision)? {
                PresentedObject::Wanted(object) => objects.push(Some(object)),
                PresentedObject::Foreign(object) => {
                    foreign.push(object);
                    sizes.push(size);
                    objects.push(None);
                }
            }
        }
        let wanted = &type_meta.api_version;
        let mut converted = self.convert(resource, foreign, &sizes, wanted, time_left)?.into_iter();
        let place = |object: Option<Object>| {
            object.or_else(|| Some(Object::from_value(Arc::clone(type_meta), converted.next()?)))
        };
        let count = objects.len();
        let placed: Vec<Object> = objects.into_iter().filter_map(place).collect();
        if placed.len() != count {
            return Err(ApiError::internal("an object was not converted"));
        }
        Ok(placed)
    }

    /// Converts an object to another version of its kind.
    pub(crate) fn convert_one(
        &self,
        resource: &ResourceDefinition,
        object: Value,
        wanted: &str,
        time_left: TimeLeft<'_>,
    ) -> Result<Value, ApiError> {
        let mut converted = self.convert(resource, vec![object], &[0], wanted, time_left)?;
        converted.pop().ok_or_else(|| ApiError::internal("an object was not converted"))
    }

    /// Converts objects to the wanted version, in order.
    fn convert(
        &self,
        resource: &ResourceDefinition,
        objects: Vec<Value>,
        sizes: &[usize],
        wanted: &str,
        time_left: TimeLeft<'_>,
    ) -> Result<Vec<Value>, ApiError> {
        let webhook = resource.custom.as_ref().and_then(|custom| custom.webhook());
        let (Some(first), Some(webhook)) = (objects.first(), webhook) else { return Ok(objects) };
        let kind = shown_kind(first);
        let fail = |why: String| ApiError::new(500, "", format!("conversion webhook for {kind} {why}"));
        let Some(version) = review::version(&webhook["conversionReviewVersions"]) else {
            return Err(ApiError::new(500, "", "no supported conversion review versions"));
        };
        let _turn = self.turn()?;
        let client = &webhook["clientConfig"];
        let outside = self.outside().ok_or_else(|| fail("failed: this server calls no webhooks".into()))?;
        let (url, address) =
            service::place(&*self.storage, client, TIMEOUT).map_err(|why| fail(format!("failed: {why}")))?;
        let ca_bundle = service::ca_bundle(client).map_err(|why| fail(format!("failed: {why}")))?;
        let reviews: Vec<Review> = batches(objects, sizes)
            .into_iter()
            .map(|objects| Review { version, uid: self.uid(), wanted: wanted.to_owned(), objects })
            .collect();
        let mut converted = Vec::with_capacity(sizes.len());
        for reviews in reviews.chunks(CALLS_AT_ONCE) {
            let call = |review: &Review| WebhookCall {
                url: url.clone(),
                address: address.clone(),
                ca_bundle: ca_bundle.clone(),
                timeout: TIMEOUT,
                body: review.body(),
            };
            let calls: Vec<WebhookCall> = reviews.iter().map(call).collect();
            if time_left().is_zero() {
                return Err(ApiError::out_of_time());
            }
            for (review, answer) in reviews.iter().zip(outside.call(&calls, time_left)) {
                let answer = answer.result.map_err(|why| fail(format!("failed: {why}")))?;
                converted.extend(review.converted(answer).map_err(fail)?);
            }
        }
        if let Some(schema) = resource.custom.as_ref().and_then(|custom| custom.schema_of(wanted)) {
            for object in &mut converted {
                schema::prune(schema, object);
            }
        }
        Ok(converted)
    }

    /// Reserves a place for waiting on webhooks; fails with a 429 if too many wait already.
    pub(crate) fn turn(&self) -> Result<Turn<'_>, ApiError> {
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        let turn = Turn(&self.waiting);
        if before >= MAXIMUM_WAITING {
            let why = "Too many requests wait for webhooks, please try again later.";
            return Err(ApiError::new(429, "TooManyRequests", why));
        }
        Ok(turn)
    }

    fn uid(&self) -> String {
        /// Multiplier that spreads the numbers over all bits.
        const SPREAD: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;
        meta::new_uid(u128::from(self.reviews.fetch_add(1, Ordering::Relaxed)).wrapping_mul(SPREAD))
    }
}

/// Groups objects so that each group fits into one review.
fn batches(objects: Vec<Value>, sizes: &[usize]) -> Vec<Vec<Value>> {
    let mut batches: Vec<Vec<Value>> = Vec::new();
    let mut bytes = 0;
    for (object, size) in objects.into_iter().zip(sizes) {
        bytes += size;
        match batches.last_mut() {
            Some(last) if last.len() < REVIEW_OBJECTS && bytes <= REVIEW_BYTES => last.push(object),
            _ => {
                bytes = *size;
                batches.push(vec![object]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_is_bounded_in_objects_and_bytes() {
        let lengths = |sizes: &[usize]| -> Vec<usize> {
            batches(vec![Value::Null; sizes.len()], sizes).iter().map(Vec::len).collect()
        };
        assert_eq!(lengths(&[]), [0_usize; 0]);
        assert_eq!(lengths(&[1; 501]), [250, 250, 1]);
        assert_eq!(lengths(&[REVIEW_BYTES, 1, REVIEW_BYTES - 1, 1]), [1, 2, 1]);
        assert_eq!(lengths(&[2 * REVIEW_BYTES, 2 * REVIEW_BYTES]), [1, 1]);
    }

    /// Each waiter occupies a thread of the pool that also commits.
    #[test]
    fn few_wait_for_webhooks_at_a_time() {
        let converter = Converter::new(Arc::new(gc_store::MemoryStorage::default()));
        let mut turns = Vec::new();
        for _ in 0..MAXIMUM_WAITING {
            turns.extend(converter.turn().ok());
        }
        assert_eq!(turns.len(), MAXIMUM_WAITING);
        for _ in 0..2 {
            assert_eq!(converter.turn().err().map(|error| error.code), Some(429));
        }
        turns.pop();
        assert!(converter.turn().is_ok());
    }
}
