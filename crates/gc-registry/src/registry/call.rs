//! A single request: the parts that operations share.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::api::{Object, RequestContext, RequestTarget, Response, ResponseBody, WriteOptions};
use crate::catalog::rules::{Rules, Strictness};
use crate::error::{ApiError, FieldError};
use crate::metadata::meta;
use crate::metadata::object::TypeMeta;
use crate::persist;
use crate::registry::Registry;
use crate::resource::ResourceDefinition;
use crate::schema::{self, json_type};
use crate::storage::{Committed, Condition, Key, KeyValue, Revision, Transaction, Write};

/// Maximum number of attempts of a read-modify-write loop before the request fails with a conflict.
pub(crate) const MAX_TURNS: usize = 128;

/// A request in progress.
pub(crate) struct Call<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) target: &'a RequestTarget,
    pub(crate) context: &'a RequestContext<'a>,
    pub(crate) warnings: Vec<String>,
    /// Warnings from code that only has shared access to the call.
    pub(crate) noted: std::cell::RefCell<Vec<String>>,
}

/// Result of a conditional write.
pub(crate) enum WriteResult {
    /// Stored with this revision.
    Done(Revision),
    /// Another write came first.
    Raced,
}

/// Additional write of the transaction: the usage of a quota, an allocation that a service takes or releases.
#[derive(Clone, Debug)]
pub(crate) struct Charge {
    pub(crate) key: Key,
    /// Version that was checked; 0 if there must be none.
    pub(crate) revision: Revision,
    /// New state; `None` removes the key.
    pub(crate) value: Option<bytes::Bytes>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(
        registry: &'a Registry,
        target: &'a RequestTarget,
        context: &'a RequestContext<'a>,
    ) -> Self {
        Self { registry, target, context, warnings: Vec::new(), noted: std::cell::RefCell::default() }
    }

    pub(crate) fn resource(&self) -> &'a Arc<ResourceDefinition> {
        &self.target.resource
    }

    pub(crate) fn rules(&self) -> Rules<'a> {
        Rules::new(self.target, self.context)
    }

    pub(crate) fn now(&self) -> String {
        meta::time(self.context.now)
    }

    pub(crate) fn key(&self) -> Key {
        persist::object_key(self.resource(), &self.target.namespace, &self.target.name)
    }

    /// Fails if the deadline of the request has passed, or its client has disconnected.
    pub(crate) fn check_time(&self) -> Result<(), ApiError> {
        if (self.context.time_left)().is_zero() {
            return Err(ApiError::out_of_time());
        }
        Ok(())
    }

    pub(crate) fn read(&self, key: &str) -> Result<Option<KeyValue>, ApiError> {
        // Every iteration of a loop begins with a read.
        self.check_time()?;
        self.registry.storage.get(key, None).map(|answer| answer.item).map_err(persist::storage_error)
    }

    pub(crate) fn decode(&self, stored: &KeyValue) -> Result<Value, ApiError> {
        self.registry.converter.decode(self.resource(), stored, self.context.time_left)
    }

    /// Encodes a document of the resource for storage.
    pub(crate) fn encode(&self, object: &Value) -> Result<bytes::Bytes, ApiError> {
        self.registry.converter.encode(self.resource(), object, self.context.time_left)
    }

    /// Returns a document as if it had been stored and read again, for dry runs: upstream calls the webhook in that case, too.
    pub(crate) fn as_if_stored(&self, object: Value) -> Result<Value, ApiError> {
        if !self.resource().asks_webhook() {
            return Ok(object);
        }
        let value = self.encode(&object)?;
        let stored = KeyValue {
            key: self.key(),
            value,
            create_revision: Revision(u64::MAX),
            mod_revision: Revision(u64::MAX),
        };
        let mut read = self.decode(&stored)?;
        let version = meta::metadata(&object).get("resourceVersion").cloned().unwrap_or_default();
        meta::set_or_remove(meta::metadata_mut(&mut read), "resourceVersion", version);
        Ok(read)
    }

    /// Writes if the key's last write still has the given revision (0: absent); `None` removes the key.
    pub(crate) fn commit(
        &self,
        key: &Key,
        expected: Revision,
        value: Option<bytes::Bytes>,
    ) -> Result<WriteResult, ApiError> {
        self.commit_charged(key, expected, value, &[])
    }

    /// Writes like [`Self::commit`], with additional writes in the same transaction.
    pub(crate) fn commit_charged(
        &self,
        key: &Key,
        expected: Revision,
        value: Option<bytes::Bytes>,
        charges: &[Charge],
    ) -> Result<WriteResult, ApiError> {
        let write = match value {
            Some(value) => Write::Put(Arc::clone(key), value),
            None => Write::Delete(Arc::clone(key)),
        };
        let mut transaction = Transaction {
            conditions: vec![Condition { key: Arc::clone(key), mod_revision: expected }],
            writes: vec![write],
        };
        for charge in charges {
            let condition = Condition { key: Arc::clone(&charge.key), mod_revision: charge.revision };
            transaction.conditions.push(condition);
            let key = Arc::clone(&charge.key);
            transaction.writes.push(match &charge.value {
                Some(value) => Write::Put(key, value.clone()),
                None => Write::Delete(key),
            });
        }
        self.commit_transaction(transaction)
    }

    /// Commits a transaction about the resource.
    pub(crate) fn commit_transaction(&self, transaction: Transaction) -> Result<WriteResult, ApiError> {
        // Webhooks may have been called since the last read.
        self.check_time()?;
        match self.registry.storage.commit(transaction).map_err(persist::storage_error)? {
            Committed::Done(revision) => {
                self.registry.after_write(self.resource())?;
                Ok(WriteResult::Done(revision))
            }
            Committed::Conflict(_) => Ok(WriteResult::Raced),
        }
    }

    pub(crate) fn type_meta(&self) -> Arc<TypeMeta> {
        persist::type_meta(self.resource())
    }

    pub(crate) fn present(&self, stored: bytes::Bytes, revision: Revision) -> Result<Arc<Object>, ApiError> {
        let converter = &self.registry.converter;
        let time_left = self.context.time_left;
        converter.present(self.resource(), &self.type_meta(), (stored, revision), time_left).map(Arc::new)
    }

    pub(crate) fn answer(&mut self, code: u16, object: Arc<Object>) -> Response {
        Response { code, body: ResponseBody::Object(object), warnings: std::mem::take(&mut self.warnings) }
    }

    pub(crate) fn answer_stored(
        &mut self,
        code: u16,
        stored: bytes::Bytes,
        revision: Revision,
    ) -> Result<Response, ApiError> {
        let object = self.present(stored, revision)?;
        Ok(self.answer(code, object))
    }

    /// Answers with a document that was never stored (dry run, subresources with a separate kind).
    pub(crate) fn answer_value(&mut self, code: u16, value: Value) -> Response {
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default().into();
        let type_meta = Arc::new(TypeMeta { api_version: text("apiVersion"), kind: text("kind") });
        self.answer(code, Arc::new(Object::from_value(type_meta, value)))
    }

    pub(crate) fn answer_success(&mut self, code: u16, details: Option<Value>) -> Response {
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        match details {
            Some(details) => status["details"] = details,
            None => status["code"] = code.into(),
        }
        Response { code, body: ResponseBody::Status(status), warnings: std::mem::take(&mut self.warnings) }
    }

    pub(crate) fn not_found(&self, name: &str) -> ApiError {
        // Upstream names only this kind in the singular.
        let resource = match &*self.resource().resource {
            "componentstatuses" => "componentstatus",
            resource => resource,
        };
        ApiError::not_found(&self.resource().group, resource, name)
    }

    pub(crate) fn conflict(&self, name: &str, why: &str) -> ApiError {
        ApiError::conflict(&self.resource().group, &self.resource().resource, name, why)
    }

    pub(crate) fn modified(&self, name: &str) -> ApiError {
        self.conflict(
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub(crate) fn invalid(&self, name: &str, errors: &[FieldError]) -> ApiError {
        // Upstream checks the events of both groups as those of the core group.
        let group = if &*self.resource().group == "events.k8s.io" { "" } else { &*self.resource().group };
        ApiError::invalid(group, &self.resource().kind, name, errors)
    }

    /// Decodes the body of a POST or PUT to a document of the resource: checks kind and types, and sets defaults.
    pub(crate) fn take_body(
        &mut self,
        body: crate::api::RequestBody,
        options: &WriteOptions,
    ) -> Result<Value, ApiError> {
        let mut object = body.value;
        self.check_kind(&mut object)?;
        match self.rules().decode(&mut object, (&body.duplicates, &body.text), options.validation()) {
            Ok(warnings) => self.warnings.extend(warnings),
            Err(Strictness::Undecodable(why)) => return Err(self.rules().bad_body(&why)),
            Err(Strictness::TooLarge) => return Err(Strictness::too_large()),
            Err(Strictness::Strict(problems)) => {
                return Err(self
                    .rules()
                    .bad_body(&format!("strict decoding error: {}", problems.join(", "))));
            }
        }
        Ok(object)
    }

    /// Checks that apiVersion and kind are those of the resource; sets missing ones.
    pub(crate) fn check_kind(&self, object: &mut Value) -> Result<(), ApiError> {
        let resource = self.resource();
        let (kind, wanted) = (&*resource.kind, resource.api_version());
        let Value::Object(map) = object else {
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
                 error: json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                json_type(object)
            )));
        };
        let wrong = |name: &&str| map.get(*name).is_some_and(|value| !value.is_string() && !value.is_null());
        if let Some(name) = ["apiVersion", "kind"].into_iter().find(wrong) {
            let found = json_type(map.get(name).unwrap_or(&Value::Null));
            return Err(ApiError::bad_request(format!(
                "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
                 error: json: cannot unmarshal {found} into Go struct field .{name} of type string"
            )));
        }
        let given_version = text_member(map, "apiVersion");
        let given_kind = text_member(map, "kind");
        if given_kind.as_deref().is_some_and(|given| given != kind) {
            let kind = given_kind.unwrap_or_default();
            return Err(self.wrong_kind(object, given_version.as_deref(), &kind));
        }
        if let Some(given) = given_version.as_deref().filter(|given| *given != wanted) {
            let same_group = group_of(given) == &*resource.group;
            return Err(if same_group || resource.custom.is_some() {
                ApiError::bad_request(format!(
                    "the API version in the data ({given}) does not match the expected API version ({wanted})"
                ))
            } else {
                self.wrong_kind(object, Some(given), kind)
            });
        }
        map.insert("apiVersion".into(), wanted.into());
        map.insert("kind".into(), kind.into());
        Ok(())
    }

    /// Checks apiVersion and kind after admission, and sets missing ones. The server decodes what admission has changed and
    /// discovers the wrong kind itself, because the client did nothing wrong.
    pub(crate) fn check_changed_kind(&self, object: &mut Value) -> Result<(), ApiError> {
        let resource = self.resource();
        let text = |key: &str| object.as_object().and_then(|map| text_member(map, key));
        let (version, kind) = (text("apiVersion"), text("kind"));
        let wanted = resource.api_version();
        let is_other = |given: &Option<String>, own: &str| given.as_deref().is_some_and(|given| given != own);
        if resource.custom.is_none() && (is_other(&version, &wanted) || is_other(&kind, &resource.kind)) {
            let kind = kind.unwrap_or_else(|| resource.kind.to_string());
            let why = self.other_kind_problem(object, version.as_deref().unwrap_or(&wanted), &kind);
            return Err(ApiError::internal(why));
        }
        self.check_kind(object)
    }

    fn wrong_kind(&self, object: &Value, version: Option<&str>, kind: &str) -> ApiError {
        let resource = self.resource();
        let wanted = resource.api_version();
        let version = version.unwrap_or(&wanted);
        let why = self.other_kind_problem(object, version, kind);
        let short = version.split_once('/').map_or(version, |(_, short)| short);
        ApiError::bad_request(format!(
            "{kind} in version {short:?} cannot be handled as a {}: {why}",
            resource.kind
        ))
    }

    /// Explains why a document of another kind does not belong to the resource, in upstream's wording.
    fn other_kind_problem(&self, object: &Value, version: &str, kind: &str) -> String {
        let resource = self.resource();
        schema::problem_of_other_kind((&resource.group, &resource.kind), (version, kind), object)
    }

    /// Checks that `metadata.namespace` is missing or that of the path.
    pub(crate) fn check_namespace(&self, object: &Value) -> Result<(), ApiError> {
        let (given, wanted) = (meta::text(object, "namespace"), &self.target.namespace);
        if wanted.is_empty() || given.is_empty() || given == wanted {
            return Ok(());
        }
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        Err(ApiError::bad_request(why))
    }

    /// Checks `metadata.namespace`, and sets a missing one.
    pub(crate) fn settle_namespace(&self, object: &mut Value) -> Result<(), ApiError> {
        if self.resource().namespaced() {
            self.check_namespace(object)?;
            meta::metadata_mut(object).insert("namespace".into(), self.target.namespace.as_str().into());
        } else {
            // Upstream considers it a mistake and drops it.
            meta::metadata_mut(object).remove("namespace");
        }
        Ok(())
    }
}

fn text_member(map: &Map<String, Value>, name: &str) -> Option<String> {
    map.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
