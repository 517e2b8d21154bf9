//! The Secret that a driver needs for deleting storage (spec `cluster-collectors.md`, 9.7).

use std::collections::BTreeMap;

use gc_types::DeletionSecret;

/// Namespace and name of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretPlace {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Source of the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// None: the deletion uses no Secret.
    None,
    /// This Secret.
    Secret(SecretPlace),
    /// The parameters of this StorageClass, which name the Secret.
    Class(String),
}

/// Reason why the parameters of a class name no Secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// Only one of the two parameters exists.
    #[error("either name and namespace for provisioner secrets specified, both must be specified")]
    Half,
    /// The template contains a token that is unknown, or that only a claim could resolve.
    #[error("{parameter} {template:?} cannot be resolved: {token:?} is not known when a volume is deleted")]
    Token {
        /// Name of the parameter.
        parameter: &'static str,
        /// Its value.
        template: String,
        /// The token.
        token: String,
    },
    /// The result is not a valid name.
    #[error("{parameter} {template:?} resolves to {resolved:?}, which is no valid name")]
    Invalid {
        /// Name of the parameter.
        parameter: &'static str,
        /// Its value.
        template: String,
        /// The result.
        resolved: String,
    },
}

/// Returns the source according to the annotations of a volume: they name the Secret, or its class has to be read.
#[must_use]
pub fn source(secret: &DeletionSecret) -> SecretSource {
    match (&secret.name, &secret.namespace) {
        (Some(name), Some(namespace)) if !name.is_empty() && !namespace.is_empty() => {
            SecretSource::Secret(SecretPlace { namespace: namespace.to_string(), name: name.to_string() })
        }
        // Both exist, but at least one is empty.
        (Some(_), Some(_)) => SecretSource::None,
        _ => match (&secret.class, &secret.claim) {
            (Some(class), Some(_)) if !class.is_empty() => SecretSource::Class(class.to_string()),
            _ => SecretSource::None,
        },
    }
}

const NAME: &str = "csi.storage.k8s.io/provisioner-secret-name";
const NAMESPACE: &str = "csi.storage.k8s.io/provisioner-secret-namespace";

/// Resolves the parameters of a class, for a volume of this name whose claim is gone.
pub fn of_class(
    parameters: &BTreeMap<String, String>,
    volume: &str,
    secret: &DeletionSecret,
) -> Result<Option<SecretPlace>, TemplateError> {
    let find = |names: [&str; 3]| names.iter().find_map(|name| parameters.get(*name));
    let name = find([NAME, "csiProvisionerSecretName", "csi.storage.k8s.io/secret-name"]);
    let namespace = find([NAMESPACE, "csiProvisionerSecretNamespace", "csi.storage.k8s.io/secret-namespace"]);
    let (name, namespace) = match (name, namespace) {
        (None, None) => return Ok(None),
        (Some(name), Some(namespace)) => (name, namespace),
        _ => return Err(TemplateError::Half),
    };
    let (claim_namespace, claim_name) = match &secret.claim {
        Some((namespace, name)) => (&**namespace, &**name),
        None => ("", ""),
    };
    let of_namespace = |token: &str| match token {
        "pv.name" => Some(volume),
        "pvc.namespace" => Some(claim_namespace),
        _ => None,
    };
    let namespace = resolve(NAMESPACE, namespace, of_namespace)?;
    let of_name = |token: &str| if token == "pvc.name" { Some(claim_name) } else { of_namespace(token) };
    let name = resolve(NAME, name, of_name)?;
    Ok(Some(SecretPlace { namespace, name }))
}

fn resolve<'a>(
    parameter: &'static str,
    template: &str,
    token: impl Fn(&str) -> Option<&'a str>,
) -> Result<String, TemplateError> {
    let mut resolved = String::new();
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once("${") {
        let (name, after) = behind.split_once('}').unwrap_or((behind, ""));
        let unknown = || TemplateError::Token {
            parameter,
            template: template.to_owned(),
            token: format!("${{{name}}}"),
        };
        resolved.push_str(before);
        resolved.push_str(token(name).ok_or_else(unknown)?);
        rest = after;
    }
    resolved.push_str(rest);
    let valid = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if resolved.is_empty() || resolved.len() > 253 || !resolved.bytes().all(valid) {
        return Err(TemplateError::Invalid { parameter, template: template.to_owned(), resolved });
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: Option<&str>, namespace: Option<&str>, class: Option<&str>) -> DeletionSecret {
        DeletionSecret {
            name: name.map(Into::into),
            namespace: namespace.map(Into::into),
            class: class.map(Into::into),
            claim: Some(("shop".into(), "data".into())),
        }
    }

    #[test]
    fn annotations_decide_before_the_class_does() {
        let place = SecretPlace { namespace: "ns".into(), name: "n".into() };
        let class = SecretSource::Class("fast".into());
        for (name, namespace, expected) in [
            (Some("n"), Some("ns"), SecretSource::Secret(place)),
            // CSI-T15
            (Some(""), Some(""), SecretSource::None),
            (Some("n"), Some(""), SecretSource::None),
            (Some("n"), None, class.clone()),
            (None, None, class),
        ] {
            assert_eq!(source(&secret(name, namespace, Some("fast"))), expected, "{name:?} {namespace:?}");
        }
        assert_eq!(source(&secret(None, None, None)), SecretSource::None);
        assert_eq!(source(&secret(None, None, Some(""))), SecretSource::None);
        let unclaimed = DeletionSecret { claim: None, ..secret(None, None, Some("fast")) };
        assert_eq!(source(&unclaimed), SecretSource::None);
    }

    #[test]
    fn templates_of_a_class() {
        let place = |namespace: &str, name: &str| {
            Ok(Some(SecretPlace { namespace: namespace.to_owned(), name: name.to_owned() }))
        };
        let token = |parameter, template: &str, token: &str| {
            let (template, token) = (template.to_owned(), token.to_owned());
            Err(TemplateError::Token { parameter, template, token })
        };
        for (parameters, expected) in [
            (&[][..], Ok(None)),
            (&[(NAME, "n"), (NAMESPACE, "ns")], place("ns", "n")),
            (
                &[("csiProvisionerSecretName", "n"), ("csi.storage.k8s.io/secret-namespace", "ns")],
                place("ns", "n"),
            ),
            (
                &[(NAME, "${pv.name}-${pvc.name}"), (NAMESPACE, "${pvc.namespace}")],
                place("shop", "pv-1-data"),
            ),
            (&[(NAME, "n")], Err(TemplateError::Half)),
            // CSI-T17
            (
                &[(NAME, "${pvc.annotations['team']}"), (NAMESPACE, "ns")],
                token(NAME, "${pvc.annotations['team']}", "${pvc.annotations['team']}"),
            ),
            (&[(NAME, "n"), (NAMESPACE, "${pvc.name}")], token(NAMESPACE, "${pvc.name}", "${pvc.name}")),
            (
                &[(NAME, "../x"), (NAMESPACE, "ns")],
                Err(TemplateError::Invalid {
                    parameter: NAME,
                    template: "../x".into(),
                    resolved: "../x".into(),
                }),
            ),
        ] {
            let parameters: BTreeMap<String, String> =
                parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            assert_eq!(of_class(&parameters, "pv-1", &secret(None, None, None)), expected, "{parameters:?}");
        }
    }

    /// Names have 1 to 253 characters.
    #[test]
    fn a_name_that_is_resolved_is_bounded() {
        for (length, is_valid) in [(0, false), (1, true), (253, true), (254, false), (255, false)] {
            let found = resolve(NAME, &"a".repeat(length), |_| None);
            assert_eq!(found.is_ok(), is_valid, "{length}: {found:?}");
        }
    }
}
