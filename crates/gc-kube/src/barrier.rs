//! Performs the lists that barriers need (see [`gc_controller::barriers`]).

use std::fmt::Write as _;

use gc_controller::barriers::{List, ListEnd, list_refused};
use gc_controller::concurrency::Signal;
use gc_types::Event;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use tokio::sync::mpsc;

use crate::connection::{ApiClient, RequestError};
use crate::resources::{Route, push_segment};
use crate::watcher::{BATCH_EVENTS, LIST_ACCEPT, PAGE_SIZE, SAME_PAGE, retry_after};
use crate::wire::interner::Interner;
use crate::wire::metadata::{Encoding, decode_list, decode_status};

/// Findings of a part of a list.
#[derive(Debug)]
pub(crate) struct Found {
    /// Number of the list.
    pub(crate) list: u64,
    /// The objects, as [`Event::Found`].
    pub(crate) events: Vec<Event>,
    /// True if a further page is requested.
    pub(crate) continues: bool,
}

/// Lists a path page by page, passing on the objects that it finds.
pub(crate) async fn list(
    client: &ApiClient,
    route: &Route,
    list: &List,
    sink: &mpsc::Sender<Found>,
) -> EndedList {
    let (end, signal) = match pages(client, route, list, sink).await {
        Ok(()) => (ListEnd::Complete, Some(Signal::Answered)),
        Err(ended) => ended,
    };
    EndedList { list: list.number, end, signal }
}

/// A list that has ended.
#[derive(Debug)]
pub(crate) struct EndedList {
    pub(crate) list: u64,
    pub(crate) end: ListEnd,
    /// Evidence about the server from the last answer, if any.
    pub(crate) signal: Option<Signal>,
}

type Refusal = (ListEnd, Option<Signal>);

fn failed(error: &dyn std::fmt::Display) -> Refusal {
    (ListEnd::Failed(error.to_string()), Some(Signal::Answered))
}

fn unanswered(error: &RequestError) -> Refusal {
    (ListEnd::Failed(error.to_string()), Some(Signal::Busy(None)))
}

async fn pages(
    client: &ApiClient,
    route: &Route,
    list: &List,
    sink: &mpsc::Sender<Found>,
) -> Result<(), Refusal> {
    let mut interner = Interner::default();
    let mut continue_token = String::new();
    loop {
        let namespace = list.place.namespace.as_deref().unwrap_or_default();
        let mut uri = format!("{}?limit={PAGE_SIZE}", route.collection(namespace));
        if !continue_token.is_empty() {
            uri.push_str("&continue=");
            push_segment(&mut uri, &continue_token);
        } else if let Some(version) = list.not_older_than {
            // Writing to a String does not fail.
            let _ = write!(uri, "&resourceVersion={version}&resourceVersionMatch=NotOlderThan");
        }
        let request = Request::builder()
            .method(Method::GET)
            .uri(uri)
            .header(ACCEPT, LIST_ACCEPT)
            .body(Full::default())
            .map_err(|error| failed(&error))?;
        let answer = client.call(request).await.map_err(|error| unanswered(&error))?;
        let encoding = Encoding::of_content_type(answer.head.headers.get(CONTENT_TYPE));
        let code = answer.head.status;
        if !code.is_success() {
            let message = decode_status(encoding, &answer.body).unwrap_or_default().message;
            let wait = retry_after(&answer.head.headers);
            return Err(list_refused(code.as_u16(), &message, wait, list.not_older_than.is_some()));
        }
        let listed = decode_list(encoding, &answer.body, &route.info).map_err(|error| failed(&error))?;
        let continues = !listed.continue_token.is_empty();
        if continues && listed.continue_token == continue_token {
            return Err(failed(&SAME_PAGE));
        }
        let mut rest = listed.items.as_slice();
        loop {
            let (items, further) = rest.split_at(rest.len().min(BATCH_EVENTS));
            let items = items.iter().filter(|item| !item.uid.is_empty());
            let found = items.map(|item| Event::Found(item.observed(route.info.id, &mut interner)));
            let continues = continues && further.is_empty();
            let found = Found { list: list.number, events: found.collect(), continues };
            sink.send(found).await.map_err(|_| failed(&"the collector has ended"))?;
            rest = further;
            if rest.is_empty() {
                break;
            }
        }
        if !continues {
            return Ok(());
        }
        continue_token = listed.continue_token.into_owned();
    }
}
