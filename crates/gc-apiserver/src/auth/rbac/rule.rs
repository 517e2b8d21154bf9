//! A single rule of a role: which actions it allows, and which other rules it covers.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::auth::rbac::Question;

/// One rule of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    /// `verbs`
    pub(crate) verbs: Vec<String>,
    /// `apiGroups`
    pub(crate) groups: Vec<String>,
    /// `resources`, as `resource/subresource` where a subresource is meant.
    pub(crate) resources: Vec<String>,
    /// `resourceNames`; empty for any.
    pub(crate) names: Vec<String>,
    /// `nonResourceURLs`
    pub(crate) urls: Vec<String>,
}

fn any_or(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Rule {
    /// Reports whether this rule allows the action.
    pub(crate) fn allows(&self, question: &Question<'_>) -> bool {
        match question {
            Question::Resource(wanted) => {
                any_or(&self.verbs, wanted.verb)
                    && any_or(&self.groups, wanted.group)
                    && self.allows_resource(wanted.resource, wanted.subresource)
                    && (self.names.is_empty() || self.names.iter().any(|name| name == wanted.name))
            }
            Question::Path { verb, path } => {
                any_or(&self.verbs, verb) && self.urls.iter().any(|url| url_matches(url, path))
            }
        }
    }

    fn allows_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|item| match item.split_once('/') {
            _ if item == "*" => true,
            None => subresource.is_empty() && item == resource,
            Some(("*", sub)) => !subresource.is_empty() && sub == subresource,
            Some((main, sub)) => main == resource && !subresource.is_empty() && sub == subresource,
        })
    }

    /// Reads a rule from the form that a role stores.
    pub(crate) fn from_value(value: &Value) -> Self {
        let list = |name: &str| -> Vec<String> {
            value
                .get(name)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|item| item.as_str().map(str::to_owned))
                .collect()
        };
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            urls: list("nonResourceURLs"),
        }
    }

    /// Returns the number of single permissions that the rule names.
    pub(crate) fn count(&self) -> usize {
        let names = self.names.len().max(1);
        let resources = self.groups.len().saturating_mul(self.resources.len()).saturating_mul(names);
        self.verbs.len().saturating_mul(resources.saturating_add(self.urls.len()))
    }

    /// Splits a rule into rules of one verb, group, resource and name (or verb and URL) each.
    pub(crate) fn atoms(&self) -> impl Iterator<Item = Rule> {
        let one = |text: &String| vec![text.clone()];
        let resources = self.groups.iter().flat_map(move |group| {
            self.resources.iter().flat_map(move |resource| {
                self.verbs.iter().flat_map(move |verb| {
                    let base = Rule {
                        verbs: one(verb),
                        groups: one(group),
                        resources: one(resource),
                        ..Rule::default()
                    };
                    let any = self.names.is_empty().then(|| base.clone());
                    any.into_iter()
                        .chain(self.names.iter().map(move |name| Rule { names: one(name), ..base.clone() }))
                })
            })
        });
        let urls = self.urls.iter().flat_map(move |url| {
            self.verbs.iter().map(move |verb| Rule { verbs: one(verb), urls: one(url), ..Rule::default() })
        });
        resources.chain(urls)
    }

    /// Converts the rule to the form that a role stores.
    pub(crate) fn to_value(&self) -> Value {
        let mut value = Map::new();
        for (name, list) in [
            ("apiGroups", &self.groups),
            ("nonResourceURLs", &self.urls),
            ("resourceNames", &self.names),
            ("resources", &self.resources),
        ] {
            if !list.is_empty() {
                value.insert(name.into(), list.clone().into());
            }
        }
        value.insert("verbs".into(), self.verbs.clone().into());
        Value::Object(value)
    }
}

/// A rule that a user holds, indexed for comparison with many others.
pub(crate) struct HeldRule<'a> {
    verbs: HashSet<&'a str>,
    groups: HashSet<&'a str>,
    resources: HashSet<&'a str>,
    names: HashSet<&'a str>,
    urls: HashSet<&'a str>,
    /// URLs that end in a star, without the star.
    url_prefixes: Vec<&'a str>,
}

impl<'a> HeldRule<'a> {
    /// Indexes a rule.
    pub(crate) fn new(rule: &'a Rule) -> Self {
        let set = |list: &'a [String]| list.iter().map(String::as_str).collect();
        let prefixes = rule.urls.iter().filter(|url| url.ends_with('*'));
        Self {
            verbs: set(&rule.verbs),
            groups: set(&rule.groups),
            resources: set(&rule.resources),
            names: set(&rule.names),
            urls: set(&rule.urls),
            url_prefixes: prefixes.map(|url| url.trim_end_matches('*')).collect(),
        }
    }

    /// Reports whether this rule allows everything that another one allows. Linear in the other rule.
    pub(crate) fn covers(&self, wanted: &Rule) -> bool {
        let all = |mine: &HashSet<&str>, theirs: &[String]| {
            mine.contains("*") || theirs.iter().all(|text| mine.contains(text.as_str()))
        };
        let resource = |wanted: &str| {
            self.resources.contains(wanted)
                || wanted
                    .split_once('/')
                    .is_some_and(|(_, sub)| self.resources.contains(format!("*/{sub}").as_str()))
        };
        let url = |wanted: &str| {
            self.urls.contains(wanted) || self.url_prefixes.iter().any(|prefix| wanted.starts_with(prefix))
        };
        let names = self.names.is_empty()
            || !wanted.names.is_empty() && wanted.names.iter().all(|name| self.names.contains(name.as_str()));
        all(&self.verbs, &wanted.verbs)
            && all(&self.groups, &wanted.groups)
            && (self.resources.contains("*") || wanted.resources.iter().all(|text| resource(text)))
            && names
            && wanted.urls.iter().all(|text| url(text))
    }
}

/// Returns the rules that grant every permission.
pub(crate) fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), urls: all(), ..Rule::default() },
    ]
}

fn url_matches(pattern: &str, path: &str) -> bool {
    pattern == path || pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*'))
}
