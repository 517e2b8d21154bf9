//! DELETE of a collection (spec `api-deletion.md`, section 7).

use std::sync::Arc;

use super::deletion::Deletion;
use super::list;
use crate::api::{DeleteOptions, ListOptions, ObjectList, Response, ResponseBody, UNSAFE_DELETION};
use crate::error::{ApiError, CauseReason, FieldError};
use crate::persist;
use crate::registry::call::Call;

/// Number of objects per list if the client sets no limit.
const PAGE: i64 = 10_000;
/// Maximum number of times that the list of a collection is started while other writes exceed the history.
const LISTINGS: usize = 3;

impl Call<'_> {
    /// Deletes the objects that the list options select. Items are deleted under their listed UID, so that an object recreated in
    /// the meantime survives (S03); a resourceVersion in the query is only a list option (S05: the server passes it as such).
    pub(crate) fn delete_collection(
        &mut self,
        options: &ListOptions,
        delete_options: &DeleteOptions,
    ) -> Result<Response, ApiError> {
        let deletion = Deletion::validate(delete_options)?;
        if delete_options.is_unsafe() {
            let error = FieldError {
                field: UNSAFE_DELETION.into(),
                reason: CauseReason::Invalid,
                detail: "Invalid value: true: is not allowed with DELETECOLLECTION, try again after removing the option".into(),
            };
            return Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
        }
        // All pages are read before the first object is deleted: the deletions are changes, which would push the version of the
        // pages out of the history.
        let mut list = self.list_all(options)?;
        // Bad selectors are refused without this warning.
        self.warn_of_orphans(&deletion);
        let mut items = Vec::with_capacity(list.items.len());
        for object in std::mem::take(&mut list.items) {
            self.delete_listed(object.metadata()?, &deletion)?;
            items.push(match Arc::try_unwrap(object) {
                Ok(object) => Arc::new(object.forgetting_what_was_decoded()),
                Err(shared) => shared,
            });
        }
        list.items = items;
        Ok(Response {
            code: 200,
            body: ResponseBody::List(list),
            warnings: std::mem::take(&mut self.warnings),
        })
    }

    /// Lists the selected objects: one page if the options set a limit, all of them otherwise.
    fn list_all(&self, options: &ListOptions) -> Result<ObjectList, ApiError> {
        let is_expired = |error: &ApiError| error.code == 410;
        for _ in 1..LISTINGS {
            match self.list_pages(options) {
                // Other requests have written too much in the meantime. Nothing has been deleted yet.
                Err(error) if is_expired(&error) && options.continue_token.is_empty() => {}
                done => return done,
            }
        }
        self.list_pages(options)
    }

    fn list_pages(&self, options: &ListOptions) -> Result<ObjectList, ApiError> {
        let page = |options: &ListOptions| list::list(self.source(), self.target, options);
        if options.limit > 0 {
            return page(options);
        }
        let mut page_options = ListOptions { limit: PAGE, ..options.clone() };
        let mut all = page(&page_options)?;
        while !all.continue_token.is_empty() {
            page_options.continue_token = std::mem::take(&mut all.continue_token);
            page_options.resource_version.clear();
            page_options.resource_version_match = None;
            let next = page(&page_options)?;
            all.items.extend(next.items);
            all.continue_token = next.continue_token;
        }
        // S08: this answer contains all pages.
        all.remaining_item_count = None;
        Ok(all)
    }

    fn delete_listed(&self, metadata: &serde_json::Value, deletion: &Deletion) -> Result<(), ApiError> {
        let text = |field: &str| metadata.get(field).and_then(serde_json::Value::as_str).unwrap_or_default();
        let key = persist::object_key(self.resource(), text("namespace"), text("name"));
        let asked = deletion.uid.is_some();
        let mut deletion = deletion.clone();
        deletion.is_of_listed = !asked;
        deletion.uid.get_or_insert_with(|| text("uid").to_owned());
        match self.delete_object(text("name"), &key, &deletion) {
            Ok(_) => Ok(()),
            Err(error) if error.code == 404 => Ok(()),
            // Another object has the same name: the listed one is gone.
            Err(error) if error.code == 409 && !asked && !self.holds(&key, text("uid"))? => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn holds(&self, key: &str, uid: &str) -> Result<bool, ApiError> {
        match self.read(key)? {
            Some(stored) => Ok(crate::metadata::meta::uid(&self.decode(&stored)?) == uid),
            None => Ok(false),
        }
    }
}
