//! Objects as users name them on a command line: `TYPE NAME…`, `TYPE/NAME…`, manifests, or a selector.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use gc_explain::stuck::Place;
use gc_explain::{Catalog, CatalogError, Knowledge, Resource};
use gc_process::UsageError;
use serde_json::Value;

use super::gather::{self, Gatherer};
use super::unanswered::UnansweredReason;

/// Suffixes of the files in a directory that are manifests.
const MANIFEST_ENDS: [&str; 3] = ["json", "yaml", "yml"];
/// Maximum size of a manifest, in bytes.
const LARGEST_MANIFEST: u64 = 64 << 20;

/// Flags and arguments that select objects.
#[derive(Clone, Debug, Default, Args)]
pub struct Targets {
    /// TYPE NAME…, or TYPE/NAME…, such as `deploy web` or `deploy/web svc/web`
    #[arg(value_name = "OBJECT")]
    objects: Vec<String>,
    /// Namespace [default: that of the kubeconfig's context]
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Objects of the type in all namespaces, selected by -l
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// All objects of the type with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    #[command(flatten)]
    files: FileFlags,
}

/// Objects in files.
#[derive(Clone, Debug, Default, Args)]
pub struct FileFlags {
    /// Read objects from this manifest, YAML or JSON; - is standard input (repeatable)
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub filenames: Vec<PathBuf>,
}

impl FileFlags {
    /// Reports whether no file is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filenames.is_empty()
    }

    /// Returns the objects in the files; those without a namespace are in this one or, if it is empty, in that of the context.
    pub fn named(&self, gatherer: &Gatherer, namespace: &str) -> anyhow::Result<Partial<NamedObject>> {
        let namespace = if namespace.is_empty() { gatherer.default_namespace() } else { namespace };
        let mut named = Partial::default();
        for file in &self.filenames {
            for object in manifests(file)? {
                named.add(of_manifest(&object, namespace, &gatherer.catalog));
            }
        }
        Ok(named)
    }
}

/// Found objects, and the errors about the others. Like kubectl, commands answer for the objects that they find.
#[derive(Debug)]
pub struct Partial<T> {
    /// The part that was found.
    pub found: Vec<T>,
    /// An error for each part that was not found.
    pub failures: Vec<anyhow::Error>,
}

impl<T> Default for Partial<T> {
    fn default() -> Self {
        Self { found: Vec::new(), failures: Vec::new() }
    }
}

impl<T> Partial<T> {
    /// Adds a result.
    pub fn add(&mut self, one: anyhow::Result<T>) {
        match one {
            Ok(found) => self.found.push(found),
            Err(failure) => self.failures.push(failure),
        }
    }

    /// Returns all requested objects, or an error.
    pub fn complete(self) -> anyhow::Result<Vec<T>> {
        gather::fail(self.failures)?;
        Ok(self.found)
    }
}

/// One object that was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedObject {
    /// Resource of the object.
    pub resource: Resource,
    /// Namespace of the object; empty at cluster scope.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl NamedObject {
    /// Reads the object, which must exist. An object that may not be read is never reported as missing.
    pub async fn read(&self, gatherer: &Gatherer) -> anyhow::Result<Value> {
        let Self { resource, namespace, name } = self;
        match gatherer.object(&resource.name, namespace, name).await {
            Knowledge::Present(object) => Ok(object),
            Knowledge::Absent => Err(UnansweredReason::no_object(resource, namespace, name).into()),
            Knowledge::Unreadable(why) => Err(UnansweredReason::unreadable(resource, name, why).into()),
        }
    }

    /// Reports whether it is the object at this place.
    #[must_use]
    pub fn is_at(&self, place: &Place) -> bool {
        self.resource.name.to_string() == place.resource
            && self.namespace == place.namespace
            && self.name == place.name
    }
}

/// Requested objects: one, or all of a resource with the labels of `-l`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedObjects {
    /// The resource.
    pub resource: Resource,
    /// Namespace; empty at cluster scope and for all namespaces.
    pub namespace: String,
    /// Name; `None` for all objects with the labels.
    pub name: Option<String>,
}

impl std::fmt::Display for WantedObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}/{name}", self.resource.name)?,
            None => write!(f, "{}", self.resource.name)?,
        }
        if self.namespace.is_empty() { Ok(()) } else { write!(f, " in namespace {:?}", self.namespace) }
    }
}

/// Parses words of a command line as pairs of type and name; a type alone has no name.
pub fn pairs(words: &[String]) -> Result<Vec<(String, Option<String>)>, UsageError> {
    let is_pair = |word: &String| word.contains('/');
    match words {
        [] => Ok(Vec::new()),
        words if words.iter().all(is_pair) => words
            .iter()
            .map(|word| match word.split_once('/') {
                Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
                    Ok((kind.to_owned(), Some(name.to_owned())))
                }
                _ => Err(UsageError::new(format!("{word:?} is not TYPE/NAME, such as deploy/web"))),
            })
            .collect(),
        words if words.iter().any(is_pair) => {
            Err(UsageError::new("name objects either as TYPE NAME… or as TYPE/NAME…, not both"))
        }
        [kinds, names @ ..] => {
            let kinds: Vec<&str> = kinds.split(',').collect();
            if kinds.contains(&"") {
                return Err(UsageError::new(format!("{:?} has an empty type", kinds.join(","))));
            }
            let of = |name: Option<&String>| {
                kinds.iter().map(|kind| ((*kind).to_owned(), name.cloned())).collect::<Vec<_>>()
            };
            Ok(if names.is_empty() {
                of(None)
            } else {
                names.iter().flat_map(|name| of(Some(name))).collect()
            })
        }
    }
}

impl Targets {
    /// Selects one object by `TYPE/NAME`; without a namespace, in that of the kubeconfig's context.
    #[must_use]
    pub fn one(object: String, namespace: Option<String>) -> Self {
        Self { objects: vec![object], namespace, ..Self::default() }
    }

    /// Reports whether any object is named.
    #[must_use]
    pub fn is_given(&self) -> bool {
        !self.objects.is_empty() || self.selector.is_some() || !self.files.is_empty()
    }

    /// Returns the label selector.
    #[must_use]
    pub fn selector(&self) -> Option<&str> {
        self.selector.as_deref()
    }

    /// Returns the namespace given with -n.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        // As in kubectl, an empty namespace means that of the context.
        self.namespace.as_deref().filter(|namespace| !namespace.is_empty())
    }

    /// Returns types and names of the requested objects if the server serves none of the types.
    #[must_use]
    pub fn unserved(&self, catalog: &Catalog) -> Vec<(String, String)> {
        let named = pairs(&self.objects).unwrap_or_default().into_iter();
        let unserved =
            named.map(|(kind, name)| name.filter(|_| catalog.find(&kind).is_err()).map(|name| (kind, name)));
        unserved.collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    /// Resolves the types and namespaces of the requested objects.
    pub fn wanted(&self, gatherer: &Gatherer) -> anyhow::Result<Partial<WantedObjects>> {
        if self.all_namespaces && self.selector.is_none() {
            return Err(UsageError::new("-A selects objects by their labels: say -l SELECTOR").into());
        }
        let namespace = self.namespace().unwrap_or_else(|| gatherer.default_namespace());
        let mut wanted = Vec::new();
        for (kind, name) in pairs(&self.objects)? {
            if name.is_none() && self.selector.is_none() {
                return Err(UsageError::new(format!("which {kind}? say {kind}/NAME, or -l SELECTOR")).into());
            }
            let is_everywhere = self.all_namespaces && name.is_none();
            for resource in
                gatherer.catalog.find(&kind).map_err(|error| unknown(&gatherer.catalog, &error))?
            {
                let namespace = if is_everywhere || !resource.is_namespaced() { "" } else { namespace };
                let (namespace, name) = (namespace.to_owned(), name.clone());
                wanted.push(WantedObjects { resource: resource.clone(), namespace, name });
            }
        }
        let Partial { found, failures } = self.files.named(gatherer, namespace)?;
        wanted.extend(found.into_iter().map(|NamedObject { resource, namespace, name }| WantedObjects {
            resource,
            namespace,
            name: Some(name),
        }));
        if wanted.is_empty() && failures.is_empty() {
            let what = match &self.selector {
                Some(_) => "-l needs a type, such as `pods -l app=web`",
                None => "name an object, such as deploy/web, or give -f FILE",
            };
            return Err(UsageError::new(what).into());
        }
        Ok(Partial { found: wanted, failures })
    }

    /// Returns the requested objects, listing those of a selector.
    pub async fn resolve(&self, gatherer: &Gatherer) -> anyhow::Result<Partial<NamedObject>> {
        let Partial { found, failures } = self.wanted(gatherer)?;
        let mut named = Partial { found: Vec::new(), failures };
        let is_namespaced = found.iter().any(|wanted| wanted.resource.is_namespaced());
        for WantedObjects { resource, namespace, name } in found {
            let Some(name) = name else {
                let selector = self.selector().unwrap_or_default();
                match gatherer.names(&resource, &namespace, selector).await {
                    Ok(names) => named.found.extend(names.into_iter().map(|(namespace, name)| NamedObject {
                        resource: resource.clone(),
                        namespace,
                        name,
                    })),
                    Err(error) => named.failures.push(error),
                }
                continue;
            };
            let one = NamedObject { resource, namespace, name };
            if !named.found.contains(&one) {
                named.found.push(one);
            }
        }
        if named.found.is_empty() && named.failures.is_empty() {
            let labels = self.selector().unwrap_or_default();
            let place = if is_namespaced { self.place(gatherer) } else { "the cluster".to_owned() };
            bail!("no {} with labels {labels} in {place}", self.objects.join(" "));
        }
        Ok(named)
    }

    /// Describes where objects were searched for.
    fn place(&self, gatherer: &Gatherer) -> String {
        match (self.all_namespaces, self.namespace()) {
            (true, _) => "any namespace".to_owned(),
            (false, Some(namespace)) => format!("namespace {namespace:?}"),
            (false, None) => format!("namespace {:?}", gatherer.default_namespace()),
        }
    }
}

/// Maximum number of typing errors in a suggested type.
const MAX_MISSPELLING: usize = 2;

/// Returns an error about a word that names no type, with the most similar type.
fn unknown(catalog: &Catalog, error: &CatalogError) -> UsageError {
    let CatalogError::Unknown(word) = error else { return UsageError::new(error) };
    let names = catalog.all().iter().flat_map(|resource| {
        let kind = resource.kind.to_lowercase();
        [resource.name.resource.to_string(), resource.singular.to_string(), kind]
    });
    let distances = names.map(|name| (strsim::levenshtein(word, &name), name));
    // Short words resemble many others.
    let limit = MAX_MISSPELLING.min(word.chars().count() / 3);
    match distances.filter(|(distance, _)| *distance <= limit).min() {
        Some((_, name)) => UsageError::new(format!("{error}; did you mean {name}?")),
        None => UsageError::new(error),
    }
}

fn of_manifest(object: &Value, namespace: &str, catalog: &Catalog) -> anyhow::Result<NamedObject> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    if name.is_empty() {
        return Err(UsageError::new(format!("a manifest of kind {kind:?} has no metadata.name")).into());
    }
    let resource = catalog
        .of_kind(api_version, kind)
        .with_context(|| format!("the server does not serve {kind} of {api_version}"))?;
    let own = text("/metadata/namespace");
    let namespace = match (resource.is_namespaced(), own) {
        (false, _) => "",
        (true, "") => namespace,
        (true, own) => own,
    };
    Ok(NamedObject { resource: resource.clone(), namespace: namespace.to_owned(), name: name.to_owned() })
}

/// Returns the objects in a manifest, including the items of lists. For a directory, returns those in its manifests but not below
/// it, like kubectl.
pub fn manifests(file: &Path) -> Result<Vec<Value>, UsageError> {
    if !file.is_dir() {
        return objects(file);
    }
    let wrong = |why: &dyn std::fmt::Display| UsageError::new(format!("{}: {why}", file.display()));
    let entries = std::fs::read_dir(file).map_err(|error| wrong(&error))?;
    let paths: Result<Vec<PathBuf>, std::io::Error> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut files = paths.map_err(|error| wrong(&error))?;
    files.retain(|path| path.extension().is_some_and(|end| MANIFEST_ENDS.iter().any(|known| end == *known)));
    files.sort();
    if files.is_empty() {
        return Err(wrong(&"no file in it ends with .json, .yaml or .yml"));
    }
    let objects: Result<Vec<Vec<Value>>, UsageError> = files.iter().map(|file| objects(file)).collect();
    Ok(objects?.into_iter().flatten().collect())
}

fn objects(file: &Path) -> Result<Vec<Value>, UsageError> {
    let shown = file.display().to_string();
    if file.as_os_str() == "-" {
        return objects_in(std::io::stdin(), &shown);
    }
    let opened = std::fs::File::open(file).map_err(|error| UsageError::new(format!("{shown}: {error}")))?;
    objects_in(opened, &shown)
}

/// Reads the objects in a manifest, including the items of lists.
pub fn objects_in(input: impl std::io::Read, shown: &str) -> Result<Vec<Value>, UsageError> {
    let mut text = String::new();
    let read = input.take(LARGEST_MANIFEST).read_to_string(&mut text);
    read.map_err(|error| UsageError::new(format!("{shown}: {error}")))?;
    let documents: Vec<Value> = gc_process::yaml::from_multiple(&text)
        .map_err(|error| UsageError::new(format!("{shown}: {error}")))?;
    let mut objects = Vec::new();
    for value in documents {
        match value["items"].as_array() {
            Some(items) => objects.extend(items.iter().cloned()),
            None if value.is_null() => {}
            None => objects.push(value),
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_directory_is_its_manifests() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert!(manifests(folder.path()).unwrap_err().to_string().ends_with(".json, .yaml or .yml"));
        write("b.json", r#"{"kind": "List", "items": [{"kind": "C"}]}"#);
        write("a.yaml", "kind: A\n---\nkind: B\n");
        write("notes.txt", "no manifest");
        let kinds: Vec<Value> =
            manifests(folder.path()).unwrap().into_iter().map(|object| object["kind"].clone()).collect();
        assert_eq!(kinds, ["A", "B", "C"]);
    }

    #[test]
    fn a_mistyped_type_has_a_suggestion() {
        let core = br#"{"items":[{"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"deployments",
            "singularResource":"deployment","responseKind":{"kind":"Deployment"},"scope":"Namespaced","verbs":["list"]}]}]}]}"#;
        let catalog = Catalog::read(core, br#"{"items":[]}"#).unwrap();
        let said = |word: &str| unknown(&catalog, &catalog.find(word).unwrap_err()).to_string();
        assert!(said("deploymnt").ends_with("; did you mean deployment?"), "{}", said("deploymnt"));
        assert!(said("deploymets").ends_with("; did you mean deployments?"), "{}", said("deploymets"));
        assert!(!said("widget").contains("did you mean"), "{}", said("widget"));
    }

    #[test]
    fn objects_are_named_as_for_kubectl() {
        let read = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            pairs(&words).map(|pairs| {
                pairs
                    .into_iter()
                    .map(|(kind, name)| format!("{kind}:{}", name.unwrap_or_default()))
                    .collect::<Vec<_>>()
            })
        };
        for (text, expected) in [
            ("deploy web", vec!["deploy:web"]),
            ("deploy/web svc/web", vec!["deploy:web", "svc:web"]),
            ("pod a b", vec!["pod:a", "pod:b"]),
            ("pods", vec!["pods:"]),
            ("pods,svc", vec!["pods:", "svc:"]),
            ("cm,secret a b", vec!["cm:a", "secret:a", "cm:b", "secret:b"]),
            ("", vec![]),
        ] {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
        for wrong in ["deploy/", "/web", "a/b/c", "pod a b/c", "pods,", ","] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
