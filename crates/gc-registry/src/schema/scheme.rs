//! The schemes by which kube-apiserver decodes documents. It consists of three servers, each with its own scheme: one for
//! CustomResourceDefinitions, one for APIServices, and one for everything else.

use serde_json::Value;

use super::{builtin, check_types, definition_named};

/// Returns the source position by which upstream's errors name a scheme.
fn scheme(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
        "apiregistration.k8s.io" => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

/// Returns the name of the package with the internal types of a group, as in upstream's errors.
fn package(group: &str) -> &str {
    match group {
        "" | "events.k8s.io" => "core",
        group => group.split('.').next().unwrap_or(group),
    }
}

/// Explains in upstream's wording why a document of another kind is not `wanted_kind` of the group `wanted_group`. A document of a
/// known kind is decoded as its own kind, before its conversion fails.
pub(crate) fn problem_of_other_kind(
    (wanted_group, wanted_kind): (&str, &str),
    (version, kind): (&str, &str),
    document: &Value,
) -> String {
    let scheme_name = scheme(wanted_group);
    let (group, short) = version.split_once('/').unwrap_or(("", version));
    // Every scheme has these; Status exists in every version of its group.
    let is_general = kind == "Status" || (version == "v1" && matches!(kind, "List" | "DeleteOptions"));
    let item = kind.strip_suffix("List").unwrap_or(kind);
    let is_known = scheme(group) == scheme_name
        && (builtin(group, short, kind).is_some() || builtin(group, short, item).is_some());
    if !is_general && !is_known {
        return format!("no kind {kind:?} is registered for version {version:?} in scheme {scheme_name:?}");
    }
    let schema = match kind {
        "Status" => definition_named("io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
        _ => builtin(group, short, kind),
    };
    let unknown = || {
        let package = package(wanted_group);
        format!("converting ({short}.{kind}) to ({package}.{wanted_kind}): unknown conversion")
    };
    check_types(&schema.unwrap_or_default(), document).err().unwrap_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks answers of kube-apiserver 1.36.2.
    #[test]
    fn documents_of_other_kinds_are_refused_in_upstreams_words() {
        let config_map = ("", "ConfigMap");
        let definition = ("apiextensions.k8s.io", "CustomResourceDefinition");
        let scale = ("autoscaling", "Scale");
        let not_registered = |kind: &str, version: &str, scheme: &str| {
            format!("no kind {kind:?} is registered for version {version:?} in scheme {scheme:?}")
        };
        let legacy = "pkg/api/legacyscheme/scheme.go:30";
        let extensions = "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55";
        let aggregator = "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:28";
        let unknown = |from: &str, to: &str| format!("converting ({from}) to ({to}): unknown conversion");
        let empty = json!({});
        let wrong = json!({"metadata": 7});
        for (wanted, given, document, expected) in [
            (config_map, ("apps/v1", "Deployment"), &empty, unknown("v1.Deployment", "core.ConfigMap")),
            (
                config_map,
                ("apps/v1", "Deployment"),
                &wrong,
                "json: cannot unmarshal number into Go struct field Deployment.metadata of type v1.ObjectMeta".into(),
            ),
            (config_map, ("v1", "PodList"), &empty, unknown("v1.PodList", "core.ConfigMap")),
            (config_map, ("v1", "List"), &empty, unknown("v1.List", "core.ConfigMap")),
            (config_map, ("v1", "DeleteOptions"), &empty, unknown("v1.DeleteOptions", "core.ConfigMap")),
            (config_map, ("v1", "Status"), &empty, unknown("v1.Status", "core.ConfigMap")),
            (config_map, ("meta.k8s.io/v1", "Status"), &empty, unknown("v1.Status", "core.ConfigMap")),
            (config_map, ("v1", "X"), &empty, not_registered("X", "v1", legacy)),
            (
                config_map,
                ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
                &empty,
                not_registered("CustomResourceDefinition", "apiextensions.k8s.io/v1", legacy),
            ),
            (definition, ("v1", "ConfigMap"), &empty, not_registered("ConfigMap", "v1", extensions)),
            (definition, ("v1", "Status"), &empty, unknown("v1.Status", "apiextensions.CustomResourceDefinition")),
            (
                ("apiregistration.k8s.io", "APIService"),
                ("v1", "ConfigMap"),
                &empty,
                not_registered("ConfigMap", "v1", aggregator),
            ),
            (scale, ("v1", "Pod"), &empty, unknown("v1.Pod", "autoscaling.Scale")),
            (scale, ("x/v1", "Scale"), &empty, not_registered("Scale", "x/v1", legacy)),
        ] {
            assert_eq!(problem_of_other_kind(wanted, given, document), expected, "{given:?} as {wanted:?}");
        }
    }
}
