//! Parameters of operations.

use serde_json::{Map, Value, json};

use super::Form;
use crate::schema::descriptions;

/// A path or query parameter. `shared` is the name under which version 2 defines it for all operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    place: &'static str,
    kind: &'static str,
    shared: &'static str,
    description: &'static str,
}

/// Marks a parameter that has the description of the DeleteOptions field with its name.
const OF_DELETE_OPTIONS: &str = "";
const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";

impl Parameter {
    fn description(&self) -> &'static str {
        let field = || descriptions().get(DELETE_OPTIONS)?.get(self.name).map(|text| &**text);
        let own = Some(self.description).filter(|text| *text != OF_DELETE_OPTIONS);
        own.or_else(field).unwrap_or_default()
    }

    /// Reports whether the parameter is a body, which operations write themselves.
    pub(super) fn is_body(&self) -> bool {
        self.place == "body"
    }
}

const fn path(name: &'static str, shared: &'static str, description: &'static str) -> Parameter {
    Parameter { name, place: "path", kind: "string", shared, description }
}

const fn query(
    name: &'static str,
    kind: &'static str,
    shared: &'static str,
    description: &'static str,
) -> Parameter {
    Parameter { name, place: "query", kind, shared, description }
}

pub(super) const NAME: Parameter = path("name", "", "The name of the resource.");
pub(super) const NAMESPACE: Parameter =
    path("namespace", "namespace-vgWSWtn3", "The namespace that the object is in.");
pub(super) const PATH: Parameter =
    path("path", "path-z6Ciiujn", "What to add to the address of the proxied service.");
pub(super) const PRETTY: Parameter =
    query("pretty", "string", "pretty-tJGM1-ng", "With `true`, the answer is indented.");
pub(super) const DRY_RUN: Parameter = query("dryRun", "string", "", OF_DELETE_OPTIONS);
pub(super) const FIELD_MANAGER: Parameter = query(
    "fieldManager",
    "string",
    "fieldManager-Qy4HdaTW",
    "The name of who makes this change, at most 128 characters.",
);
pub(super) const PATCH_MANAGER: Parameter = query(
    "fieldManager",
    "string",
    "fieldManager-7c6nTn1T",
    "The name of who makes this change, at most 128 characters. Required for server-side apply.",
);
pub(super) const FIELD_VALIDATION: Parameter = query(
    "fieldValidation",
    "string",
    "",
    "What to do with unknown and duplicate fields: `Ignore`, `Warn` (the default) or `Strict`.",
);
pub(super) const FORCE: Parameter =
    query("force", "boolean", "force-tOGGb0Yi", "Take over fields of other managers (server-side apply).");
/// Parameters of DELETE, in addition to `dryRun`.
pub(super) const DELETES: [Parameter; 4] = [
    query("gracePeriodSeconds", "integer", "gracePeriodSeconds--K5HaBOS", OF_DELETE_OPTIONS),
    query(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "ignoreStoreReadErrorWithClusterBreakingPotential-QbNkfIqj",
        OF_DELETE_OPTIONS,
    ),
    query("orphanDependents", "boolean", "orphanDependents-uRB25kX5", OF_DELETE_OPTIONS),
    query("propagationPolicy", "string", "propagationPolicy-6jk3prlO", OF_DELETE_OPTIONS),
];
/// Parameters of lists and watches.
pub(super) const LISTS: [Parameter; 11] = [
    query(
        "allowWatchBookmarks",
        "boolean",
        "allowWatchBookmarks-HC2hJt-J",
        "Send events of type `BOOKMARK`.",
    ),
    query("continue", "string", "continue-QfD61s0i", "Where to continue a list in pages."),
    query("fieldSelector", "string", "fieldSelector-xIcQKXFG", "Select objects by their fields."),
    query("labelSelector", "string", "labelSelector-5Zw57w4C", "Select objects by their labels."),
    query("limit", "integer", "limit-1NfNmdNH", "The largest number of items of a page."),
    query("resourceVersion", "string", "resourceVersion-5WAnf1kx", "How recent the answer must be."),
    query(
        "resourceVersionMatch",
        "string",
        "resourceVersionMatch-t8XhRHeC",
        "How resourceVersion applies to lists.",
    ),
    query(
        "sendInitialEvents",
        "boolean",
        "sendInitialEvents-rLXlEK_k",
        "Begin a watch with the existing objects.",
    ),
    query("shardSelector", "string", "shardSelector-Kgyki_3_", "Select a share of the objects."),
    query("timeoutSeconds", "integer", "timeoutSeconds-yvYezaOC", "How long a list or watch may take."),
    query("watch", "boolean", "watch-XNNPZGbK", "Answer with a stream of changes."),
];
/// Parameters of a pod's log.
pub(super) const LOGS: [Parameter; 9] = [
    query("container", "string", "container-1GeXxFDC", "The container, where the pod has more than one."),
    query("follow", "boolean", "follow-9OIXh_2R", "Follow the log as it is written."),
    query(
        "insecureSkipTLSVerifyBackend",
        "boolean",
        "insecureSkipTLSVerifyBackend-gM00jVbe",
        "Do not verify the certificate of the node.",
    ),
    query("limitBytes", "integer", "limitBytes-zwd1RXuc", "The largest number of bytes."),
    query("previous", "boolean", "previous-1jxDPu3y", "The log of the container that ran before."),
    query("sinceSeconds", "integer", "sinceSeconds-vE2NLdnP", "Lines of the last seconds alone."),
    query("stream", "string", "stream-l-48cgXv", "The stream: `All`, `Stdout` or `Stderr`."),
    query("tailLines", "integer", "tailLines-9xQLWHMV", "The last lines alone."),
    query("timestamps", "boolean", "timestamps-c17fW1w_", "Begin each line with its time."),
];

/// Returns the parameters of a subresource that connects to something.
pub(super) fn connection(subresource: &str) -> &'static [Parameter] {
    const CONTAINER: Parameter = query("container", "string", "container-_Q-EJ3nR", "The container.");
    const COMMAND: Parameter =
        query("command", "string", "command-Py3eQybp", "The command and its arguments.");
    const STREAMS: [Parameter; 4] = [
        query("stderr", "boolean", "stderr-W_1TNlWc", "Connect standard error."),
        query("stdin", "boolean", "stdin-PSzNhyUC", "Connect standard input."),
        query("stdout", "boolean", "stdout--EZLRwV1", "Connect standard output."),
        query("tty", "boolean", "tty-g7MlET_l", "Allocate a terminal."),
    ];
    const ATTACH: [Parameter; 5] = [CONTAINER, STREAMS[0], STREAMS[1], STREAMS[2], STREAMS[3]];
    const EXEC: [Parameter; 6] = [COMMAND, CONTAINER, STREAMS[0], STREAMS[1], STREAMS[2], STREAMS[3]];
    const PORTS: [Parameter; 1] = [query("ports", "integer", "ports-91KROJmm", "The ports to forward.")];
    const PROXY: [Parameter; 1] = [query("path", "string", "path-oPbzgLUj", "What to add to the address.")];
    match subresource {
        "attach" => &ATTACH,
        "exec" => &EXEC,
        "portforward" => &PORTS,
        _ => &PROXY,
    }
}

/// Writes parameters in upstream's order, together with a body that is already written.
pub(super) fn write(form: Form, mut parameters: Vec<Parameter>, body: Option<Value>) -> Vec<Value> {
    parameters.sort_by_key(|parameter| (parameter.name, parameter.place));
    let body = body.filter(|body| !body.is_null());
    let written = parameters.iter().map(|parameter| match (form, parameter.shared) {
        (Form::Two, shared) if !shared.is_empty() => json!({"$ref": format!("#/parameters/{shared}")}),
        _ => definition(form, parameter),
    });
    // The body is sorted by its name, which is always `body`, among the others.
    let mut written: Vec<Value> = written.collect();
    if let Some(body) = body {
        written.insert(parameters.partition_point(|parameter| parameter.name < "body"), body);
    }
    written
}

/// Returns the definition of a parameter.
fn definition(form: Form, parameter: &Parameter) -> Value {
    let mut value =
        json!({"name": parameter.name, "in": parameter.place, "description": parameter.description()});
    match form {
        Form::Two => {
            value["type"] = parameter.kind.into();
            value["uniqueItems"] = true.into();
        }
        Form::Three => value["schema"] = json!({"type": parameter.kind, "uniqueItems": true}),
    }
    if parameter.place == "path" {
        value["required"] = true.into();
    }
    value
}

/// Returns the parameters that version 2 defines for all operations.
pub(super) fn shared(delete_options: &Value, patch: &Value) -> Map<String, Value> {
    let mut shared = Map::new();
    let connections = ["attach", "exec", "portforward", "proxy"].into_iter().flat_map(connection);
    const REST: [Parameter; 6] = [NAMESPACE, PATH, PRETTY, FIELD_MANAGER, PATCH_MANAGER, FORCE];
    for parameter in DELETES.iter().chain(&LISTS).chain(&LOGS).chain(connections).chain(&REST) {
        shared.insert(parameter.shared.to_owned(), definition(Form::Two, parameter));
    }
    shared.insert("body-2Y1dVQaQ".into(), json!({"name": "body", "in": "body", "schema": delete_options}));
    shared.insert(
        "body-78PwaGsr".into(),
        json!({"name": "body", "in": "body", "required": true, "schema": patch}),
    );
    shared
}
