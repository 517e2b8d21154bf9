//! Text of controllers' questions and answers in a story.

use gc_collectors::namespaces::emptying::{Ask, Reply};

use super::controller::Flight;

pub(super) fn shown(flight: &Flight) -> String {
    let what = match &flight.question.ask {
        Ask::Read => "read".to_owned(),
        Ask::Discover => "discover".to_owned(),
        Ask::DeleteAll(resource) => format!("delete all {}", resource.name()),
        Ask::Delete(resource, item) => format!("delete {} of {}", item.name, resource.name()),
        Ask::List(resource) => format!("list {}", resource.name()),
        Ask::WriteStatus(_) => "write status".to_owned(),
        Ask::Finalize(left) => format!("finalize to {left:?}"),
    };
    format!(
        "{what} in {} ({})",
        flight.question.namespace,
        flight.question.view.uid.get(..8).unwrap_or("unknown")
    )
}

pub(super) fn shown_reply(reply: &Reply) -> String {
    match reply {
        Reply::Namespace(view) => {
            let since = view.deleted_at.as_deref().unwrap_or("never");
            format!("{} deleted at {since}, {:?}", view.uid.get(..8).unwrap_or_default(), view.finalizers)
        }
        Reply::Served(served) => {
            format!("{} resources, {} failures", served.resources.len(), served.failed.len())
        }
        Reply::Items(items) => format!("{} items", items.len()),
        Reply::Done => "done".to_owned(),
        Reply::Refused { code, why } => format!("{code} {why}"),
        Reply::Failed { why, may_be_at_work } => format!("{why}, may be at work: {may_be_at_work}"),
    }
}
