//! ComponentStatuses: the health of the store and of the other parts of the control plane in this process. Nothing is stored.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::{ObjectList, RequestTarget, Response, ResponseBody};
use crate::error::ApiError;
use crate::metadata::object::Object;
use crate::persist;
use crate::registry::Registry;
use crate::registry::call::Call;
use crate::resource::ResourceDefinition;

/// Name of the store, regardless of its type.
const STORE: &str = "etcd-0";

pub(crate) fn is_component_status(resource: &ResourceDefinition) -> bool {
    resource.is("", "componentstatuses")
}

impl Registry {
    fn components(&self) -> Vec<Value> {
        let status = |name: &str, problem: Option<String>| {
            let (status, message) = problem.map_or(("True", "ok".to_owned()), |problem| ("False", problem));
            json!({
                "apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": name},
                "conditions": [{"type": "Healthy", "status": status, "message": message}],
            })
        };
        let store = self.storage.health().err().map(|problem| problem.to_string());
        let others = self.config.components.iter().map(|name| status(name, None));
        others.chain([status(STORE, store)]).collect()
    }

    pub(crate) fn list_components(&self, target: &RequestTarget) -> Response {
        let type_meta = persist::type_meta(&target.resource);
        let object = |value: Value| Arc::new(Object::from_value(Arc::clone(&type_meta), value));
        let list = ObjectList {
            items: self.components().into_iter().map(object).collect(),
            resource_version: String::new(),
            continue_token: String::new(),
            remaining_item_count: None,
            rest: None,
        };
        Response { code: 200, body: ResponseBody::List(list), warnings: Vec::new() }
    }
}

impl Call<'_> {
    pub(crate) fn get_component(&mut self) -> Result<Response, ApiError> {
        let name = self.target.name.clone();
        let found = self.registry.components().into_iter().find(|known| known["metadata"]["name"] == *name);
        match found {
            Some(value) => Ok(self.answer_value(200, value)),
            None => Err(self.not_found(&name)),
        }
    }
}
