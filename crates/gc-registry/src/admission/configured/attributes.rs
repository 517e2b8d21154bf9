//! Attributes of a request for admission, and the rules that match it.

use serde_json::{Value, json};

use super::{Operation, Options};
use crate::error::ApiError;
use crate::freshness::Subject;
use crate::metadata::meta;
use crate::registry::call::Call;
use crate::resource::{BodyKind, ResourceDefinition};
use crate::{kinds, persist};

/// A request, as admission sees it.
pub(crate) struct Attributes {
    pub(crate) operation: Operation,
    pub(crate) resource: std::sync::Arc<ResourceDefinition>,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    dry_run: bool,
    options: Value,
    /// Kind of the body, if the body is not the object itself.
    kind: Option<BodyKind>,
    /// The namespace of the request, if it is in one.
    pub(crate) namespace_object: Option<Value>,
    pub(crate) user: Value,
    pub(crate) uid: String,
    /// Labels of the new and of the old object, if they exist.
    labels: [Option<Value>; 2],
    /// Forms in which the same object is served: group, version and resource, its own first.
    forms: Vec<(String, String, String)>,
}

fn labels_of(object: Option<&Value>) -> Option<Value> {
    object.map(|object| object.pointer("/metadata/labels").cloned().unwrap_or_default())
}

/// Form of an object that a rule selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
}

impl Attributes {
    /// Returns the attributes of a request; `None` if no configured admission can apply to it.
    pub(crate) fn of(
        call: &Call<'_>,
        (operation, options): (Operation, &Options<'_>),
        kind: Option<BodyKind>,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Option<Self>, ApiError> {
        let resource = call.resource();
        // Otherwise, an admission configuration could lock everybody out permanently.
        if call.context.is_server || *resource.group == *"admissionregistration.k8s.io" {
            return Ok(None);
        }
        call.registry.freshness.check(Subject::Admission)?;
        let object = new.or(old);
        let name = match (call.target.name.as_str(), new) {
            ("", Some(new)) => meta::name(new).to_owned(),
            // A deletion of a collection has no name.
            (name, _) => name.to_owned(),
        };
        // A namespace is inside itself.
        let is_namespace = resource.is("", "namespaces");
        let namespace = if is_namespace { name.clone() } else { call.target.namespace.clone() };
        let namespace_object = match call.target.namespace.as_str() {
            "" if is_namespace => object.cloned(),
            "" => None,
            namespace => {
                let stored = call.read(&persist::namespace_key(namespace))?;
                stored.and_then(|stored| {
                    let mut object: Value = serde_json::from_slice(&stored.value).ok()?;
                    object["metadata"]["resourceVersion"] = stored.mod_revision.to_string().into();
                    Some(object)
                })
            }
        };
        let user = call.context.user;
        let extra: serde_json::Map<String, Value> =
            user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        let mut user_info = json!({"username": user.name, "groups": user.groups});
        if !user.uid.is_empty() {
            user_info["uid"] = user.uid.as_str().into();
        }
        if !extra.is_empty() {
            user_info["extra"] = extra.into();
        }
        Ok(Some(Self {
            operation,
            resource: std::sync::Arc::clone(resource),
            subresource: call.target.subresource.clone(),
            namespace,
            name,
            dry_run: options.is_dry_run(),
            options: options.shown(operation),
            kind,
            namespace_object,
            user: user_info,
            uid: meta::new_uid((call.context.entropy)()),
            labels: [labels_of(new), labels_of(old)],
            forms: forms(call, resource),
        }))
    }

    /// Updates the object after a webhook has changed it: selectors of later webhooks apply to its labels.
    pub(crate) fn see(&mut self, new: &Value) {
        self.labels[0] = labels_of(Some(new));
        if self.resource.is("", "namespaces") {
            self.namespace_object = Some(new.clone());
        }
    }

    /// Returns the form that a rule selects, if a rule matches the request. With `equivalent`, other versions of the same objects
    /// match as well, those of earlier rules first.
    pub(crate) fn matched(&self, rules: &Value, equivalent: bool) -> Option<Form> {
        let rules = rules.as_array().map(Vec::as_slice).unwrap_or_default();
        let (own, others) = self.forms.split_first()?;
        let of_rule = |rule| others.iter().find(|form| self.rule_matches(rule, form));
        let found = match rules.iter().any(|rule| self.rule_matches(rule, own)) {
            true => Some(own),
            false if equivalent => rules.iter().find_map(of_rule),
            false => None,
        };
        found.map(|(group, version, resource)| Form {
            group: group.clone(),
            version: version.clone(),
            resource: resource.clone(),
        })
    }

    fn rule_matches(&self, rule: &Value, (group, version, resource): &(String, String, String)) -> bool {
        let listed = |key: &str, wanted: &str| {
            rule[key].as_array().into_iter().flatten().any(|item| *item == "*" || *item == wanted)
        };
        let in_scope = match rule["scope"].as_str().unwrap_or("*") {
            "Namespaced" => self.resource.namespaced(),
            "Cluster" => !self.resource.namespaced(),
            _ => true,
        };
        let names = rule["resourceNames"].as_array().map(Vec::as_slice).unwrap_or_default();
        let resources = rule["resources"].as_array().into_iter().flatten().filter_map(Value::as_str);
        in_scope
            && listed("operations", self.operation.as_str())
            && listed("apiGroups", group)
            && listed("apiVersions", version)
            && resources.into_iter().any(|pattern| self.resource_matches(pattern, resource))
            && (names.is_empty() || names.iter().any(|name| *name == *self.name))
    }

    fn resource_matches(&self, pattern: &str, resource: &str) -> bool {
        let (wanted, part) = pattern.split_once('/').unwrap_or((pattern, ""));
        (wanted == "*" || wanted == resource)
            && (part == self.subresource || part == "*" && pattern.contains('/'))
    }

    /// Reports whether a namespace selector matches the request. Requests outside namespaces always match.
    pub(crate) fn in_selected_namespace(&self, selector: &Value) -> bool {
        if selector.is_null() || kinds::selects_everything(selector) {
            return true;
        }
        if self.namespace.is_empty() {
            return true;
        }
        let labels =
            self.namespace_object.as_ref().and_then(|namespace| namespace.pointer("/metadata/labels"));
        kinds::selects(selector, labels.unwrap_or(&Value::Null))
    }

    /// Reports whether an object selector matches the old or the new object.
    pub(crate) fn is_selected_object(&self, selector: &Value) -> bool {
        selector.is_null()
            || kinds::selects_everything(selector)
            || self.labels.iter().flatten().any(|labels| kinds::selects(selector, labels))
    }

    /// Returns the form that `matchConstraints` or `matchResources` of a policy select, if they match the request.
    pub(crate) fn matches_resources(&self, constraints: &Value) -> Option<Form> {
        let own = || {
            self.forms.first().map(|(group, version, resource)| Form {
                group: group.clone(),
                version: version.clone(),
                resource: resource.clone(),
            })
        };
        if constraints.is_null() {
            return own();
        }
        if !self.in_selected_namespace(&constraints["namespaceSelector"])
            || !self.is_selected_object(&constraints["objectSelector"])
        {
            return None;
        }
        let equivalent = constraints["matchPolicy"] != "Exact";
        if self.matched(&constraints["excludeResourceRules"], equivalent).is_some() {
            return None;
        }
        match constraints["resourceRules"].as_array() {
            Some(rules) if !rules.is_empty() => self.matched(&constraints["resourceRules"], equivalent),
            _ => own(),
        }
    }

    /// Reports whether the form that a rule selects is in the version of the request. A body that is not one of the resource's
    /// objects has no versions.
    fn is_own(&self, form: &Form) -> bool {
        self.kind.is_some() || *form.group == *self.resource.group && *form.version == *self.resource.version
    }

    /// Converts the object to the version that a rule selects, as the definition of its kind specifies.
    pub(crate) fn converted(&self, call: &Call<'_>, form: &Form, object: &Value) -> Result<Value, ApiError> {
        if self.is_own(form) {
            return Ok(object.clone());
        }
        self.convert(call, (&form.group, &form.version), object)
    }

    /// Converts an object, changed in the version that a rule selects, back to the version of the request.
    pub(crate) fn converted_back(
        &self,
        call: &Call<'_>,
        form: &Form,
        changed: Value,
    ) -> Result<Value, ApiError> {
        if self.is_own(form) {
            return Ok(changed);
        }
        self.convert(call, (&self.resource.group, &self.resource.version), &changed)
    }

    fn convert(
        &self,
        call: &Call<'_>,
        (group, version): (&str, &str),
        object: &Value,
    ) -> Result<Value, ApiError> {
        let own = &self.resource;
        let relabelled = || kinds::convert::convert(group, version, &own.kind, object);
        let Some(custom) = &own.custom else { return Ok(relabelled()) };
        let wanted = gc_types::api_version(group, version);
        let mut converted = if custom.webhook().is_some() {
            let (converter, time_left) = (&call.registry.converter, call.context.time_left);
            converter.convert_one(own, object.clone(), &wanted, time_left).map_err(|error| {
                match error.code {
                    // Too many requests wait, or the deadline has passed.
                    429 | 504 => error,
                    _ => ApiError::internal(error.message),
                }
            })?
        } else {
            relabelled()
        };
        custom.read_stored(&wanted, &mut converted);
        Ok(converted)
    }

    /// Returns the schema of the object in the version that a rule selects.
    pub(crate) fn schema(&self, call: &Call<'_>, form: &Form) -> std::sync::Arc<crate::schema::Schema> {
        match self.kind {
            Some(BodyKind { group, version, kind }) => {
                crate::schema::builtin(group, version, kind).unwrap_or_default()
            }
            None if self.is_own(form) => crate::catalog::rules::schema(call.resource()),
            None => {
                let catalog = call.registry.catalog();
                let found = catalog.find(&form.group, &form.version, &form.resource);
                found.map(|row| crate::catalog::rules::schema(row)).unwrap_or_default()
            }
        }
    }

    /// Builds the `request` of an AdmissionReview, without the objects.
    pub(crate) fn request(&self, form: &Form) -> Value {
        let own = &self.resource;
        let kind = |group: &str, version: &str| match self.kind {
            Some(BodyKind { group, version, kind }) => {
                json!({"group": group, "version": version, "kind": kind})
            }
            None => json!({"group": group, "version": version, "kind": &*own.kind}),
        };
        let resource = |group: &str, version: &str, resource: &str| json!({"group": group, "version": version, "resource": resource});
        let mut request = json!({
            "uid": self.uid,
            "kind": kind(&form.group, &form.version),
            "resource": resource(&form.group, &form.version, &form.resource),
            "requestKind": kind(&own.group, &own.version),
            "requestResource": resource(&own.group, &own.version, &own.resource),
            "operation": self.operation.as_str(),
            "userInfo": self.user,
            "dryRun": self.dry_run,
            "options": self.options,
        });
        for (key, value) in [
            ("name", &self.name),
            ("namespace", &self.namespace),
            ("subResource", &self.subresource),
            ("requestSubResource", &self.subresource),
        ] {
            if !value.is_empty() {
                request[key] = value.as_str().into();
            }
        }
        request
    }
}

/// Returns the forms of a resource's objects: its own, other versions of a custom resource, and the second forms of events and
/// autoscalers.
fn forms(call: &Call<'_>, resource: &ResourceDefinition) -> Vec<(String, String, String)> {
    let form =
        |group: &str, version: &str| (group.to_owned(), version.to_owned(), resource.resource.to_string());
    let mut forms = vec![form(&resource.group, &resource.version)];
    let others: Vec<(String, String, String)> = match (&*resource.group, &*resource.resource) {
        ("", "events") => vec![form("events.k8s.io", "v1")],
        ("events.k8s.io", "events") => vec![form("", "v1")],
        ("autoscaling", "horizontalpodautoscalers") => {
            vec![form("autoscaling", if *resource.version == *"v1" { "v2" } else { "v1" })]
        }
        (group, name) if resource.custom.is_some() => {
            let catalog = call.registry.catalog();
            let versions = catalog.group(group).map(|group| group.versions.iter());
            versions
                .into_iter()
                .flatten()
                .flat_map(|version| &version.resources)
                .filter(|other| *other.resource == *name && other.version != resource.version)
                .map(|other| form(group, &other.version))
                .collect()
        }
        _ => Vec::new(),
    };
    forms.extend(others);
    forms
}
