//! DELETE of a collection (spec `api-deletion.md`, section 7).

use crate::api::{DeleteOptions, ListOptions, ObjectList, Response, ResponseBody};
use crate::call::Call;
use crate::deletion::Deletion;
use crate::error::ApiError;
use crate::list;
use crate::persist;

/// Objects listed at once if the client sets no limit.
const PAGE: i64 = 10_000;

impl Call<'_> {
    /// Deletes what the list options select. Items are deleted under the UID that they were listed with, so that
    /// an object which was recreated in the meantime survives (S03); a resourceVersion in the query is a list option
    /// only (S05: the server passes it as such).
    pub(crate) fn delete_collection(
        &mut self,
        options: &ListOptions,
        delete_options: &DeleteOptions,
    ) -> Result<Response, ApiError> {
        let deletion = Deletion::validate(delete_options)?;
        let storage = &*self.registry.storage;
        let mut page_options = options.clone();
        let limited = options.limit > 0;
        if !limited {
            page_options.limit = PAGE;
        }
        let mut answer: Option<ObjectList> = None;
        loop {
            let page = list::list(&self.registry.converter, storage, self.target, &page_options)?;
            for object in &page.items {
                self.delete_listed(object.metadata()?, &deletion)?;
            }
            let next = page.continue_token.clone();
            match &mut answer {
                None => {
                    // Bad selectors are refused without it.
                    self.warn_of_orphans(&deletion);
                    answer = Some(page);
                }
                Some(all) => all.items.extend(page.items),
            }
            if limited || next.is_empty() {
                break;
            }
            page_options.continue_token = next;
            page_options.resource_version.clear();
            page_options.resource_version_match = None;
        }
        let mut list = answer.unwrap_or_else(|| ObjectList {
            items: Vec::new(),
            resource_version: String::new(),
            continue_token: String::new(),
            remaining_item_count: None,
        });
        if !limited {
            // S08: all pages are in this answer.
            list.continue_token.clear();
            list.remaining_item_count = None;
        }
        Ok(Response {
            code: 200,
            body: ResponseBody::List(list),
            warnings: std::mem::take(&mut self.warnings),
        })
    }

    fn delete_listed(&self, metadata: &serde_json::Value, deletion: &Deletion) -> Result<(), ApiError> {
        let text = |field: &str| metadata.get(field).and_then(serde_json::Value::as_str).unwrap_or_default();
        let key = persist::object_key(self.resource(), text("namespace"), text("name"));
        let asked = deletion.uid.is_some();
        let mut deletion = deletion.clone();
        deletion.uid.get_or_insert_with(|| text("uid").to_owned());
        match self.delete_object(text("name"), &key, &deletion) {
            Ok(_) => Ok(()),
            Err(error) if error.code == 404 => Ok(()),
            // Another object under the same name: the listed one is gone.
            Err(error) if error.code == 409 && !asked && !self.holds(&key, text("uid"))? => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn holds(&self, key: &str, uid: &str) -> Result<bool, ApiError> {
        match self.read(key)? {
            Some(stored) => Ok(crate::meta::uid(&self.decode(&stored)?) == uid),
            None => Ok(false),
        }
    }
}
