//! Queries to a running server or collector: how they are sent, and what comes back. [`super::answering`] answers them.

use std::io::IsTerminal as _;

use anyhow::{Context as _, bail};
use clap::Args;
use gc_kube::ApiClient;
use gc_process::access::Access;
use gc_process::endpoints::MAXIMUM_ORDER_BYTES;
use gc_process::lease::{LeaseFlags, LeaseName};
use gc_process::{preflight, screen};
use http::{HeaderValue, Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::collector::CollectorFlags;
use crate::output::{Answer, Output};
use crate::subject::{ConfirmedPlan, Subject};
use crate::target::NamedObject;

/// Path of the query API on servers and collectors.
const PATH: &str = "/kubegc/v1/ask";

/// Maximum number of objects in one query; the command line answers larger questions by itself.
pub(crate) const MAXIMUM_SUBJECTS: usize = 20;

/// Flags that select the answering process.
#[derive(Clone, Debug, Default, Args)]
pub struct AttachFlags {
    /// The collector that is asked.
    #[command(flatten)]
    pub collector: CollectorFlags,
    /// List the cluster, also where a server that `kubegc up` runs would answer
    #[arg(long, conflicts_with = "collector")]
    pub no_collector: bool,
}

/// A query, with the form of its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueryRequest {
    /// Form of the answer.
    pub form: Form,
    /// The question.
    pub question: Query,
}

impl QueryRequest {
    /// Creates a query whose answer fits this output; `None` if collectors do not produce that form.
    #[must_use]
    pub fn new(output: &Output, question: Query) -> Option<Self> {
        let form = form_of(output)?;
        (question.subjects().len() <= MAXIMUM_SUBJECTS).then_some(Self { form, question })
    }
}

/// Forms of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Form {
    /// JSON data.
    Value,
    /// Human-readable lines.
    Text,
    /// Human-readable lines with more columns, and nothing folded.
    Wide,
    /// `resource/name` of each object.
    Names,
    /// Nodes and edges, for drawings.
    Graph,
}

/// The question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Query {
    /// Stuck objects.
    Stuck {
        /// Only in this namespace; empty for all.
        namespace: String,
        /// Only what has been stuck for at least this long.
        at_least: String,
    },
    /// Dependents of these objects.
    Tree {
        /// The objects.
        objects: Vec<Subject>,
        /// True if the trees lead to owners.
        owners: bool,
        /// Number of levels; objects further below are counted.
        depth: Option<usize>,
        /// True if nothing is folded.
        #[serde(default)]
        full: bool,
    },
    /// Reasons why these objects are, or are not, deleted.
    Why {
        /// The objects.
        objects: Vec<Subject>,
    },
    /// Consequences of deleting these objects.
    Plan {
        /// The objects.
        objects: Vec<Subject>,
        /// Propagation policy: `background`, `foreground` or `orphan`.
        policy: String,
        /// True if every object is listed.
        full: bool,
    },
    /// Problems of the objects: stuck ones, and leftovers.
    Doctor {
        /// Only in this namespace; empty for all.
        namespace: String,
    },
}

impl Query {
    /// Returns the objects of the query; none for queries about a scope.
    #[must_use]
    pub fn subjects(&self) -> &[Subject] {
        match self {
            Self::Stuck { .. } | Self::Doctor { .. } => &[],
            Self::Tree { objects, .. } | Self::Why { objects } | Self::Plan { objects, .. } => objects,
        }
    }
}

/// An answer in one form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryResponse {
    /// Answer in the requested form.
    answer: Value,
    /// Resources that could not be read.
    pub unseen: Vec<String>,
    /// True if something is stuck or wrong, or would become stuck.
    pub found: bool,
    /// Confirmation of the planned deletion; only for plans of one object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<Confirmation>,
}

/// Confirmation of a deletion by a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Confirmation {
    /// The plan that was shown.
    #[serde(flatten)]
    pub confirmed: ConfirmedPlan,
    /// True if enough objects are deleted that the name has to be typed.
    pub needs_name: bool,
}

impl QueryResponse {
    /// Converts an answer to a form.
    pub fn new(answer: &impl Answer, form: Form, unseen: Vec<String>, found: bool) -> anyhow::Result<Self> {
        let text = |is_wide| {
            let mut out = Vec::new();
            answer.text(is_wide, &mut out)?;
            anyhow::Ok(Value::String(String::from_utf8_lossy(&out).into_owned()))
        };
        let answer = match form {
            Form::Value => answer.value(),
            Form::Text => text(false)?,
            Form::Wide => text(true)?,
            Form::Names => answer.names().into(),
            Form::Graph => serde_json::to_value(answer.graph())?,
        };
        Ok(Self { answer, unseen, found, confirm: None })
    }

    /// Reports whether one of these words is among them.
    #[must_use]
    pub fn mentions_any(&self, words: &[&str]) -> bool {
        let text = self.answer.to_string();
        words.iter().any(|word| text.contains(word))
    }

    /// Returns the human-readable lines of an answer, followed by what could not be read.
    pub fn lines_with_unseen(&self) -> Vec<String> {
        let lines = self.answer.as_str().unwrap_or_default().lines().map(str::to_owned);
        lines.chain(warnings(&self.unseen)).collect()
    }
}

/// Formats the unread resources as lines.
pub fn warnings(unseen: &[String]) -> impl Iterator<Item = String> {
    unseen.iter().map(|unseen| format!("warning: {unseen}"))
}

/// Prints the answer of another process like one of this process.
impl Answer for QueryResponse {
    fn value(&self) -> Value {
        self.answer.clone()
    }

    fn text(&self, _: bool, out: &mut Vec<u8>) -> anyhow::Result<()> {
        let text = self.answer.as_str().unwrap_or_default();
        // The other process does not know this one's flags.
        let shown = |line: &&str| screen::has_headings() || !screen::is_headings(line);
        text.split_inclusive('\n').filter(shown).for_each(|line| out.extend_from_slice(line.as_bytes()));
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        serde_json::from_value(self.answer.clone()).unwrap_or_default()
    }

    fn graph(&self) -> Option<(Vec<String>, Vec<(usize, usize)>)> {
        serde_json::from_value(self.answer.clone()).ok().flatten()
    }
}

/// Returns the form that an output needs; `None` if collectors do not produce it.
fn form_of(output: &Output) -> Option<Form> {
    Some(match output {
        Output::Text => Form::Text,
        Output::Wide => Form::Wide,
        Output::Name => Form::Names,
        Output::Json | Output::Yaml | Output::JsonPath(_) | Output::Columns(_) => Form::Value,
        Output::Dot | Output::Mermaid => Form::Graph,
        Output::Html => return None,
    })
}

/// Converts named objects to subjects of queries.
#[must_use]
pub fn subjects(named: &[NamedObject]) -> Vec<Subject> {
    let subject = |named: &NamedObject| Subject {
        resource: named.resource.name.to_string(),
        namespace: named.namespace.clone(),
        name: named.name.clone(),
    };
    named.iter().map(subject).collect()
}

impl AttachFlags {
    /// Queries the named collector, or the server if it answers queries; otherwise returns `None`.
    pub async fn ask(
        &self,
        access: &Access,
        client: &ApiClient,
        output: &Output,
        question: impl FnOnce() -> Query,
    ) -> anyhow::Result<Option<QueryResponse>> {
        let Some(inquiry) = QueryRequest::new(output, question()).filter(|_| !self.no_collector) else {
            return Ok(None);
        };
        let collector = self.collector.connect_to_page(access, &LeaseFlags::default_name()).await?;
        match &collector {
            Some(collector) => named_collector(collector, &inquiry).await.map(Some),
            None => if_it_answers(client, &inquiry).await,
        }
    }

    /// Returns a client for the query API, if there is one to ask: that of the named collector, or of the server itself.
    pub async fn page(&self, access: &Access, client: &ApiClient) -> anyhow::Result<Asks> {
        if self.no_collector {
            return Ok(Asks::Nobody);
        }
        let collector = self.collector.connect_to_page(access, &LeaseFlags::default_name()).await?;
        Ok(collector.map_or_else(|| Asks::Server(client.clone()), Asks::Collector))
    }
}

/// Process to query before the cluster is listed.
#[derive(Clone)]
pub enum Asks {
    /// A named collector, which must answer.
    Collector(ApiClient),
    /// The API server, which may not support queries.
    Server(ApiClient),
    /// No process; the objects are listed.
    Nobody,
}

/// Result of a query.
pub enum Reply {
    /// An answer.
    Answered(Box<QueryResponse>),
    /// No answer, with a status and a reason.
    Refused(StatusCode, String),
}

/// Sends a query.
pub async fn send(asked: &ApiClient, inquiry: &QueryRequest) -> anyhow::Result<Reply> {
    let inquiry = serde_json::to_value(inquiry)?;
    if inquiry.to_string().len() > MAXIMUM_ORDER_BYTES {
        return Ok(Reply::Refused(StatusCode::PAYLOAD_TOO_LARGE, "the question is too long".to_owned()));
    }
    let mut request = preflight::request(Method::POST, PATH, Some(&inquiry));
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().insert(http::header::CONTENT_TYPE, json);
    let answer = asked.call(request).await?;
    if answer.head.status.is_success() {
        let answered = serde_json::from_slice(&answer.body).context("the answer cannot be read")?;
        return Ok(Reply::Answered(Box::new(answered)));
    }
    Ok(Reply::Refused(answer.head.status, preflight::message(&answer)))
}

/// Informs users on a terminal who has answered. A script may read both streams as one, so it gets no such line.
fn say_who_answered(asked: &ApiClient) {
    if std::io::stderr().is_terminal() {
        gc_process::screen::complain!("answered by {}", asked.address());
    }
}

/// Queries a named collector, which must answer.
async fn named_collector(collector: &ApiClient, inquiry: &QueryRequest) -> anyhow::Result<QueryResponse> {
    match send(collector, inquiry).await? {
        Reply::Answered(answered) => {
            say_who_answered(collector);
            Ok(*answered)
        }
        Reply::Refused(status, message) => bail!("{}: {}: {message}", collector.address(), status.as_u16()),
    }
}

/// Queries a process that may not support queries; if there is no answer, the caller lists the cluster.
pub(crate) async fn if_it_answers(
    asked: &ApiClient,
    inquiry: &QueryRequest,
) -> anyhow::Result<Option<QueryResponse>> {
    let (status, message) = match send(asked, inquiry).await? {
        Reply::Answered(answered) => {
            say_who_answered(asked);
            return Ok(Some(*answered));
        }
        Reply::Refused(status, message) => (status, message),
    };
    if has_no_answer(status) {
        return Ok(None);
    }
    let (address, code) = (asked.address(), status.as_u16());
    // A malformed query would be refused everywhere.
    if status == StatusCode::BAD_REQUEST {
        bail!("{address}: {code}: {message}");
    }
    gc_process::screen::complain!("warning: {address}: {code}: {message}; listing the cluster");
    Ok(None)
}

/// Returns the answer of the named collector, or of the server if it answers queries. The given address may be that of the metrics
/// and the journal only.
pub async fn of_whoever_answers(
    (collector, lease): (&CollectorFlags, &LeaseName),
    access: &Access,
    client: &ApiClient,
    inquiry: &QueryRequest,
) -> Option<QueryResponse> {
    let asked = async {
        let page = collector.connect_to_page(access, lease).await?;
        if_it_answers(page.as_ref().unwrap_or(client), inquiry).await
    };
    asked.await.unwrap_or_else(|error| {
        tracing::debug!("neither a collector nor the server answers: {error:#}");
        None
    })
}

/// Reports whether a status only means that the cluster has to be listed.
#[must_use]
pub fn has_no_answer(status: StatusCode) -> bool {
    // A server without this path refuses it to users who may not access every path; an older server does not know the query.
    let has_no_such_path =
        [StatusCode::NOT_FOUND, StatusCode::FORBIDDEN, StatusCode::METHOD_NOT_ALLOWED].contains(&status);
    // For example, the object does not exist, which the command reports itself, or the query is too long.
    has_no_such_path || [StatusCode::BAD_GATEWAY, StatusCode::PAYLOAD_TOO_LARGE].contains(&status)
}
