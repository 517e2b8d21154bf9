//! ConfigMaps, Secrets, claims and ServiceAccounts that an object refers to.
//!
//! Fields of built-in kinds are recognized by name. Fields of custom resources are recognized by the schema of their definition:
//! objects with a name and a key, objects whose field is called a reference, and texts that are called the name of something. Every
//! other text of a custom resource may be a name as well, and is therefore kept apart. The same holds for arguments and variables
//! of containers, and for annotations; those of well-known controllers are references.

use serde_json::Value;

use super::controllers;
use crate::catalog::GroupResource;

/// Maximum depth of documents.
const DEEPEST: usize = 64;

/// A kind of objects that others use by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Usable {
    /// ConfigMaps.
    ConfigMap,
    /// Secrets.
    Secret,
    /// PersistentVolumeClaims.
    Claim,
    /// ServiceAccounts.
    ServiceAccount,
}

impl Usable {
    /// All of these kinds.
    pub const ALL: [Self; 4] = [Self::ConfigMap, Self::Secret, Self::Claim, Self::ServiceAccount];

    /// Returns the `kind` of these objects.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Claim => "PersistentVolumeClaim",
            Self::ServiceAccount => "ServiceAccount",
        }
    }

    /// Returns the resource of these objects.
    #[must_use]
    pub fn resource(self) -> GroupResource {
        GroupResource::new(
            "",
            match self {
                Self::ConfigMap => "configmaps",
                Self::Secret => "secrets",
                Self::Claim => "persistentvolumeclaims",
                Self::ServiceAccount => "serviceaccounts",
            },
        )
    }

    fn of_kind(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|usable| usable.kind() == kind)
    }

    /// Guesses the referenced kind from the name of a field.
    fn of_field(field: &str) -> Option<Self> {
        let field = field.to_ascii_lowercase();
        let has = |part: &str| field.contains(part);
        if has("serviceaccount") {
            Some(Self::ServiceAccount)
        } else if has("secret") {
            Some(Self::Secret)
        } else if has("configmap") {
            Some(Self::ConfigMap)
        } else if has("claim") || has("pvc") {
            Some(Self::Claim)
        } else {
            None
        }
    }
}

/// One use of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Kinds that the name may refer to.
    pub kinds: Vec<Usable>,
    /// Namespace; empty if it may be any.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// True if the object works without it.
    pub is_optional: bool,
}

/// References of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// References in known fields.
    pub references: Vec<Reference>,
    /// Name prefixes of the claims that a StatefulSet creates; a number follows.
    pub claim_prefixes: Vec<(String, String)>,
    /// Texts of a custom resource that may be names.
    pub texts: Vec<String>,
    /// Names in references of a custom resource, whatever their kind.
    pub names: Vec<String>,
    /// Words of a built-in object that may be names in its own namespace.
    pub hints: Vec<String>,
}

/// Returns the references of a built-in object.
pub(super) fn of_builtin(kind: &str, object: &Value) -> Uses {
    let mut walk = Walk::of(object);
    if let Some(fields) = object.as_object() {
        for (name, value) in fields.iter().filter(|(name, _)| *name != "metadata" && *name != "status") {
            walk.builtin(name, value, 0);
        }
    }
    walk.annotations(&object["metadata"]["annotations"]);
    if kind == "StatefulSet" {
        let templates = object["spec"]["volumeClaimTemplates"].as_array().into_iter().flatten();
        for template in templates.filter_map(|template| template["metadata"]["name"].as_str()) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            walk.uses.claim_prefixes.push((walk.namespace.clone(), format!("{template}-{name}-")));
        }
    }
    walk.uses
}

/// Returns the references of a custom resource, given the schema of its version if it is known.
pub(super) fn of_custom(object: &Value, schema: Option<&Value>) -> Uses {
    let mut walk = Walk::of(object);
    if let Some(fields) = object.as_object() {
        let metadata = ["apiVersion", "kind", "metadata"];
        for (name, value) in fields.iter().filter(|(name, _)| !metadata.contains(&name.as_str())) {
            walk.custom(name, value, schema.and_then(|schema| property(schema, name)), 0);
        }
    }
    // Tools pass objects in annotations as well.
    for value in object["metadata"]["annotations"].as_object().into_iter().flat_map(|all| all.values()) {
        walk.texts(value, 0);
    }
    walk.uses
}

fn property<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema["properties"]
        .get(name)
        .or_else(|| schema.get("additionalProperties").filter(|more| more.is_object()))
}

struct Walk {
    namespace: String,
    uses: Uses,
}

impl Walk {
    fn of(object: &Value) -> Self {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        Self { namespace, uses: Uses::default() }
    }

    fn refer(&mut self, kinds: &[Usable], namespace: Option<&str>, name: &str, is_optional: bool) {
        if name.is_empty() {
            return;
        }
        let namespace = namespace.filter(|text| !text.is_empty()).unwrap_or(&self.namespace).to_owned();
        let reference = Reference { kinds: kinds.to_vec(), namespace, name: name.to_owned(), is_optional };
        self.uses.references.push(reference);
    }

    /// Reads a field of a built-in kind.
    fn builtin(&mut self, field: &str, value: &Value, depth: usize) {
        if depth > DEEPEST {
            return;
        }
        match value {
            Value::String(text) => self.builtin_text(field, text),
            Value::Array(items) => items.iter().for_each(|item| self.builtin(field, item, depth + 1)),
            Value::Object(fields) => {
                self.builtin_object(field, value);
                for (name, value) in fields {
                    // The namespace is in the field next to it.
                    if name == "secretName" && fields.contains_key("secretNamespace") {
                        let namespace = fields["secretNamespace"].as_str();
                        self.refer(&[Usable::Secret], namespace, value.as_str().unwrap_or_default(), false);
                    } else if !(field == "secret" && name == "secretName") {
                        self.builtin(name, value, depth + 1);
                    }
                }
                self.storage_class(field, value);
            }
            _ => {}
        }
    }

    fn builtin_text(&mut self, field: &str, text: &str) {
        match field {
            "secretName" => self.refer(&[Usable::Secret], None, text, false),
            "claimName" => self.refer(&[Usable::Claim], None, text, false),
            "serviceAccountName" | "serviceAccount" => {
                self.refer(&[Usable::ServiceAccount], None, text, false);
            }
            // Fields of containers.
            "args" | "command" | "value" => self.words(text),
            _ => {}
        }
    }

    /// Adds the words of a text that may be names.
    fn words(&mut self, text: &str) {
        let ends = |character: char| character.is_whitespace() || "=,:;\"'{}[]@".contains(character);
        // `$(POD_NAMESPACE)/name` refers to an object in its own namespace.
        let own = |word: &'_ str| word.rsplit_once(")/").map_or(word, |(_, name)| name).to_owned();
        let words = text.split(ends).map(|word| word.trim_start_matches('-')).filter(|word| !word.is_empty());
        self.uses.hints.extend(words.map(own));
    }

    /// Reads annotations of built-in objects in which controllers expect names.
    fn annotations(&mut self, annotations: &Value) {
        for (annotation, value) in annotations.as_object().into_iter().flatten() {
            let Some(text) = value.as_str() else { continue };
            let document = serde_json::from_str::<Value>(text).ok();
            let document = document.filter(|document| document.is_object() || document.is_array());
            match (controllers::named_by(annotation), document) {
                (Some(_), Some(document)) => self.builtin("", &document, 1),
                (Some(kinds), None) => {
                    for name in text.split(',').map(str::trim) {
                        let (namespace, name) = match name.split_once('/') {
                            Some((namespace, name)) => (Some(namespace), name),
                            None => (None, name),
                        };
                        self.refer(kinds, namespace, name, true);
                    }
                }
                (None, _) if controllers::is_repetition(annotation) => {}
                (None, _) => self.words(text),
            }
        }
    }

    fn builtin_object(&mut self, field: &str, value: &Value) {
        let name = value["name"].as_str().unwrap_or_default();
        let (namespace, is_optional) = (value["namespace"].as_str(), value["optional"] == true);
        let kind = value["kind"].as_str().and_then(Usable::of_kind);
        match field {
            "annotations" => self.annotations(value),
            // A role that grants access to objects by name is meant for a program that reads them.
            "rules" => {
                let names = value["resourceNames"].as_array().into_iter().flatten();
                self.uses.hints.extend(names.filter_map(Value::as_str).map(str::to_owned));
            }
            "configMapKeyRef" | "configMapRef" | "configMap" => {
                self.refer(&[Usable::ConfigMap], namespace, name, is_optional);
            }
            // A Secret volume has a `secretName`, the source of a projected volume a `name`.
            "secret" => {
                let name = value["secretName"].as_str().unwrap_or(name);
                self.refer(&[Usable::Secret], namespace, name, is_optional);
            }
            "imagePullSecrets" | "secrets" => self.refer(&[Usable::Secret], namespace, name, true),
            "paramRef" => self.refer(&Usable::ALL, namespace, name, true),
            "subjects" | "dataSource" | "dataSourceRef" | "parameters" => {
                if let Some(kind) = kind {
                    self.refer(&[kind], namespace, name, true);
                }
            }
            field if field.ends_with("ecretRef") || field == "secretKeyRef" => {
                self.refer(&[Usable::Secret], namespace, name, is_optional);
            }
            _ => {}
        }
    }

    /// Reads the parameters of a StorageClass, which name the Secrets of its driver.
    fn storage_class(&mut self, field: &str, value: &Value) {
        if field != "parameters" {
            return;
        }
        for (key, name) in value.as_object().into_iter().flatten() {
            if let (Some(stem), Some(name)) = (key.strip_suffix("secret-name"), name.as_str()) {
                let namespace = value[format!("{stem}secret-namespace")].as_str();
                self.refer(&[Usable::Secret], namespace, name, true);
            }
        }
    }

    /// Reads a field of a custom resource.
    fn custom(&mut self, field: &str, value: &Value, schema: Option<&Value>, depth: usize) {
        if depth > DEEPEST {
            return;
        }
        let Some(schema) = schema else { return self.texts(value, depth) };
        match value {
            Value::String(text) => match named_by(field) {
                Some(kind) => self.refer(&[kind], None, text, true),
                None if schema["format"] == "date-time" || schema["enum"].is_array() => {}
                None => self.uses.texts.push(text.clone()),
            },
            Value::Array(items) => {
                let item_schema = schema.get("items");
                for item in items {
                    self.custom(field, item, item_schema, depth + 1);
                }
            }
            Value::Object(fields) => {
                let is_reference = self.custom_reference(field, value, schema);
                for (name, value) in fields {
                    if !(is_reference && matches!(name.as_str(), "name" | "namespace" | "key" | "kind")) {
                        self.custom(name, value, property(schema, name), depth + 1);
                    }
                }
            }
            _ => {}
        }
    }

    /// Reads an object whose schema is that of a reference, and reports whether it is one.
    fn custom_reference(&mut self, field: &str, value: &Value, schema: &Value) -> bool {
        let has = |name: &str| schema["properties"].get(name).is_some_and(|field| field["type"] == "string");
        let is_called_one = ["Ref", "Reference", "Refs", "References"].iter().any(|end| field.ends_with(end));
        if !has("name") || !(has("key") || is_called_one || Usable::of_field(field).is_some()) {
            return false;
        }
        let Some(name) = value["name"].as_str() else { return false };
        self.uses.names.push(name.to_owned());
        let kind = value["kind"].as_str();
        let kinds = match (kind, kind.and_then(Usable::of_kind), Usable::of_field(field)) {
            (_, Some(kind), _) | (None, None, Some(kind)) => vec![kind],
            // The reference is to an object of another kind.
            (Some(_), None, _) => return true,
            (None, None, None) => Usable::ALL.to_vec(),
        };
        self.refer(&kinds, value["namespace"].as_str(), name, true);
        true
    }

    /// Collects texts whose meaning is not known.
    fn texts(&mut self, value: &Value, depth: usize) {
        if depth > DEEPEST {
            return;
        }
        match value {
            Value::String(text) => self.uses.texts.push(text.clone()),
            Value::Array(items) => items.iter().for_each(|item| self.texts(item, depth + 1)),
            Value::Object(fields) => fields.values().for_each(|value| self.texts(value, depth + 1)),
            _ => {}
        }
    }
}

/// Guesses the kind that a text field refers to, from its name: `secretName`, `configMapRef`, `serviceAccount`.
fn named_by(field: &str) -> Option<Usable> {
    let stem = ["Name", "Ref", ""].iter().find_map(|end| field.strip_suffix(end))?;
    let kind = Usable::of_field(stem)?;
    let is_whole = ["secret", "configmap", "serviceaccount", "claim", "pvc", "persistentvolumeclaim"]
        .iter()
        .any(|word| stem.to_ascii_lowercase().ends_with(word));
    is_whole.then_some(kind)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Formats uses as `kind/namespace/name`, with `?` for an optional one.
    fn shown(uses: &Uses) -> Vec<String> {
        let mut shown: Vec<String> = uses
            .references
            .iter()
            .map(|reference| {
                let kinds: Vec<&str> = reference.kinds.iter().map(|kind| kind.kind()).collect();
                let optional = if reference.is_optional { "?" } else { "" };
                format!("{} {}/{}{optional}", kinds.join("|"), reference.namespace, reference.name)
            })
            .collect();
        shown.sort();
        shown
    }

    #[test]
    fn built_in_kinds_use_objects_by_known_fields() {
        let pod = json!({
            "serviceAccountName": "sa", "imagePullSecrets": [{"name": "pull"}],
            "volumes": [
                {"name": "a", "configMap": {"name": "cm-volume"}},
                {"name": "b", "secret": {"secretName": "secret-volume", "optional": true}},
                {"name": "c", "projected": {"sources": [{"configMap": {"name": "cm-projected"}},
                    {"secret": {"name": "secret-projected"}}, {"serviceAccountToken": {"path": "token"}}]}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "claim"}},
                {"name": "e", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "csi"}}},
                {"name": "f", "azureFile": {"secretName": "azure", "shareName": "s"}},
            ],
            "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "cm-all"}}]}],
            "containers": [{"name": "c", "args": ["not-a-reference"], "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cm-key", "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "secret-key", "key": "k", "optional": true}}},
            ], "envFrom": [{"secretRef": {"name": "secret-all"}}]}],
        });
        let of_pod = [
            "ConfigMap n/cm-all",
            "ConfigMap n/cm-key",
            "ConfigMap n/cm-projected",
            "ConfigMap n/cm-volume",
            "PersistentVolumeClaim n/claim",
            "Secret n/azure",
            "Secret n/csi",
            "Secret n/pull?",
            "Secret n/secret-all",
            "Secret n/secret-key?",
            "Secret n/secret-projected",
            "Secret n/secret-volume?",
            "ServiceAccount n/sa",
        ];
        let metadata =
            json!({"namespace": "n", "name": "o", "annotations": {"secretName": "not-a-reference"}});
        for (kind, body, expected) in [
            ("Pod", json!({"spec": pod}), &of_pod[..]),
            ("Deployment", json!({"spec": {"template": {"spec": pod}}}), &of_pod),
            (
                "CronJob",
                json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": {"serviceAccountName": "sa"}}}}}}),
                &["ServiceAccount n/sa"],
            ),
            ("Ingress", json!({"spec": {"tls": [{"secretName": "tls"}]}}), &["Secret n/tls"]),
            (
                "ServiceAccount",
                json!({"secrets": [{"name": "token"}], "imagePullSecrets": [{"name": "pull"}]}),
                &["Secret n/pull?", "Secret n/token?"],
            ),
            (
                "PersistentVolume",
                json!({"spec": {"claimRef": {"kind": "PersistentVolumeClaim", "namespace": "m", "name": "c"},
                    "azureFile": {"secretName": "s", "secretNamespace": "k"},
                    "csi": {"controllerExpandSecretRef": {"name": "e", "namespace": "k"}}}}),
                &["Secret k/e", "Secret k/s"],
            ),
            (
                "StorageClass",
                json!({"parameters": {"csi.storage.k8s.io/provisioner-secret-name": "p",
                    "csi.storage.k8s.io/provisioner-secret-namespace": "k", "type": "ssd"}}),
                &["Secret k/p?"],
            ),
            (
                "RoleBinding",
                json!({"subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": "m"},
                    {"kind": "User", "name": "u"}], "roleRef": {"kind": "Role", "name": "r"}}),
                &["ServiceAccount m/sa?"],
            ),
            ("Pod", json!({"status": {"secretName": "x"}}), &[]),
        ] {
            let mut object = body;
            object["metadata"] = metadata.clone();
            assert_eq!(shown(&of_builtin(kind, &object)), expected, "{kind}");
        }
        let set = json!({"metadata": {"namespace": "n", "name": "db"},
            "spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]}});
        assert_eq!(of_builtin("StatefulSet", &set).claim_prefixes, [("n".to_owned(), "data-db-".to_owned())]);
    }

    #[test]
    fn custom_resources_use_objects_by_their_schema() {
        let text = json!({"type": "string"});
        let reference = json!({"type": "object", "properties": {"name": text, "key": text}});
        let named = json!({"type": "object", "properties": {"name": text, "namespace": text, "kind": text}});
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "password": reference, "issuerRef": named, "targetRef": named, "tlsSecret": named, "other": named,
            "secretName": text, "title": text, "secretKeyPrefix": text, "state": {"type": "string", "enum": ["a"]},
            "list": {"type": "array", "items": reference},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}}});
        for (spec, references, texts) in [
            (
                json!({"password": {"name": "p", "key": "k"}}),
                &["ConfigMap|Secret|PersistentVolumeClaim|ServiceAccount n/p?"][..],
                &[][..],
            ),
            (
                json!({"list": [{"name": "p", "key": "k"}]}),
                &["ConfigMap|Secret|PersistentVolumeClaim|ServiceAccount n/p?"],
                &[],
            ),
            (json!({"issuerRef": {"kind": "Issuer", "name": "i"}}), &[], &[]),
            (json!({"targetRef": {"kind": "Secret", "name": "s", "namespace": "m"}}), &["Secret m/s?"], &[]),
            (json!({"tlsSecret": {"name": "s"}}), &["Secret n/s?"], &[]),
            (json!({"other": {"name": "x"}}), &[], &["x"]),
            (json!({"secretName": "s"}), &["Secret n/s?"], &[]),
            (json!({"title": "t", "secretKeyPrefix": "u", "state": "a"}), &[], &["t", "u"]),
            (json!({"free": {"secretName": "deep"}}), &[], &["deep"]),
            (json!({"unknown": "pruned"}), &[], &["pruned"]),
        ] {
            let object = json!({"apiVersion": "example.com/v1", "kind": "Widget",
                "metadata": {"namespace": "n", "name": "w", "annotations": {"uses": "annotated"}}, "spec": spec});
            let uses = of_custom(&object, Some(&schema));
            let mut found = uses.texts.clone();
            found.retain(|text| text != "annotated");
            found.sort();
            assert_eq!((shown(&uses), found.len() + 1), (owned(references), uses.texts.len()), "{spec}");
            assert_eq!(found, texts, "{spec}");
            let blind = of_custom(&object, None);
            assert!(
                blind.references.is_empty() && blind.texts.len() > texts.len(),
                "{spec}: without a schema"
            );
        }
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }
}
