//! Objects as people name them on a command line: `TYPE NAME…`, `TYPE/NAME…`, manifests, or a selector.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use gc_answers::Resource;
use serde_json::Value;

use super::gather::Gatherer;
use crate::UsageError;

/// The largest manifest that is read, bytes.
const LARGEST_MANIFEST: u64 = 64 << 20;

/// Which objects.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Targets {
    /// TYPE NAME…, or TYPE/NAME…, such as `deploy web` or `deploy/web svc/web`
    #[arg(value_name = "OBJECT")]
    pub(super) objects: Vec<String>,
    /// Namespace [default: that of the kubeconfig's context]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(super) namespace: Option<String>,
    /// Objects of the type in all namespaces, selected by -l
    #[arg(short = 'A', long, requires = "selector")]
    pub(super) all_namespaces: bool,
    /// All objects of the type with these labels
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(super) selector: Option<String>,
    /// Objects in this manifest, YAML or JSON; - is standard input (repeatable)
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub(super) filenames: Vec<PathBuf>,
}

/// One object that was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) resource: Resource,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Words of a command line as pairs of type and name; a type alone has no name.
pub(super) fn pairs(words: &[String]) -> Result<Vec<(String, Option<String>)>, UsageError> {
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
        [kind] => Ok(vec![(kind.clone(), None)]),
        [kind, names @ ..] => Ok(names.iter().map(|name| (kind.clone(), Some(name.clone()))).collect()),
    }
}

impl Targets {
    /// The objects that are meant. Those of a selector are listed.
    pub(super) async fn resolve(&self, gatherer: &Gatherer) -> anyhow::Result<Vec<Named>> {
        let namespace = self.namespace.as_deref().unwrap_or_else(|| gatherer.default_namespace());
        let mut named = Vec::new();
        for (kind, name) in pairs(&self.objects)? {
            let found = gatherer.catalog.find(&kind).map_err(UsageError::new)?;
            for resource in &found {
                let scoped = if resource.is_namespaced() { namespace } else { "" };
                match (&name, &self.selector) {
                    (Some(name), _) => named.push(Named {
                        resource: (*resource).clone(),
                        namespace: scoped.to_owned(),
                        name: name.clone(),
                    }),
                    (None, Some(selector)) => {
                        let scoped = if self.all_namespaces { "" } else { scoped };
                        for (namespace, name) in gatherer.names(resource, scoped, selector).await? {
                            named.push(Named { resource: (*resource).clone(), namespace, name });
                        }
                    }
                    (None, None) => {
                        return Err(UsageError::new(format!(
                            "which {kind}? say {kind}/NAME, or -l SELECTOR"
                        ))
                        .into());
                    }
                }
            }
        }
        for file in &self.filenames {
            for object in manifests(file)? {
                named.push(of_manifest(&object, namespace, gatherer)?);
            }
        }
        if named.is_empty() && self.objects.is_empty() {
            let what = match &self.selector {
                Some(_) => "-l needs a type, such as `pods -l app=web`",
                None => "name an object, such as deploy/web, or give -f FILE",
            };
            return Err(UsageError::new(what).into());
        }
        if named.is_empty() {
            let place = if self.all_namespaces {
                "any namespace".to_owned()
            } else {
                format!("namespace {namespace:?}")
            };
            let selector = self.selector.as_deref().unwrap_or_default();
            bail!("no {} with labels {selector} in {place}", self.objects.join(" "));
        }
        Ok(named)
    }
}

fn of_manifest(object: &Value, namespace: &str, gatherer: &Gatherer) -> anyhow::Result<Named> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind, name) = (text("/apiVersion"), text("/kind"), text("/metadata/name"));
    if name.is_empty() {
        return Err(UsageError::new(format!("a manifest of kind {kind:?} has no metadata.name")).into());
    }
    let resource = gatherer
        .catalog
        .of_kind(api_version, kind)
        .with_context(|| format!("the server does not serve {kind} of {api_version}"))?;
    let own = text("/metadata/namespace");
    let namespace = match (resource.is_namespaced(), own) {
        (false, _) => "",
        (true, "") => namespace,
        (true, own) => own,
    };
    Ok(Named { resource: resource.clone(), namespace: namespace.to_owned(), name: name.to_owned() })
}

/// The objects of a manifest, lists taken apart.
fn manifests(file: &PathBuf) -> anyhow::Result<Vec<Value>> {
    let shown = file.display();
    let mut text = String::new();
    let source: Box<dyn std::io::Read> = if file.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(file).with_context(|| format!("cannot read {shown}"))?)
    };
    source
        .take(LARGEST_MANIFEST)
        .read_to_string(&mut text)
        .with_context(|| format!("cannot read {shown}"))?;
    let mut objects = Vec::new();
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| format!("{shown} is not YAML"))?;
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
            ("", vec![]),
        ] {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
        for wrong in ["deploy/", "/web", "a/b/c", "pod a b/c"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
