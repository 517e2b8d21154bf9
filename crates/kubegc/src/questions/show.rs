//! Answers as text and as data.

use std::io::{IsTerminal as _, Write};

use anyhow::Result;
use gc_kube::ResourceTable;
use gc_ownership::{
    Conclusion, NodeView, Plan, PlanStep, Presence, ReferenceState, Stuck, StuckCause, Tree, Why,
};
use gc_types::{Evidence, OwnerReference};
use serde_json::{Value, json};

use crate::run::request_value;
use crate::table::Table;

/// Whether text may have colours: on a terminal, unless somebody said no.
fn coloured(text: &str, code: &str) -> String {
    let wanted = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if wanted { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

fn warned(text: &str) -> String {
    coloured(text, "33")
}

fn namespace(view: &NodeView) -> &str {
    view.key.as_ref().map_or("", |key| &key.namespace)
}

fn title(view: &NodeView) -> String {
    format!("{}/{}", view.kind, view.name)
}

fn full_title(view: &NodeView) -> String {
    match namespace(view) {
        "" => title(view),
        namespace => format!("{} in {namespace}", title(view)),
    }
}

/// What is to be known of an object at a glance; empty if nothing is remarkable.
fn condition(view: &NodeView) -> String {
    let deletion = view.deletion;
    let mut words = Vec::new();
    match view.presence {
        Presence::Gone => words.push("gone"),
        Presence::Unseen => words.push("not seen"),
        Presence::Observed => {}
    }
    if deletion.deleting {
        words.push("being deleted");
    }
    for (holds, word) in [
        (deletion.foreground, "foregroundDeletion"),
        (deletion.orphan, "orphan"),
        (deletion.foreign_finalizers, "finalizers of others"),
    ] {
        if holds {
            words.push(word);
        }
    }
    words.join(", ")
}

fn node_value(view: &NodeView) -> Value {
    json!({
        "apiVersion": &*view.api_version, "kind": &*view.kind, "namespace": namespace(view),
        "name": &*view.name, "uid": view.uid.to_string(),
        "presence": match view.presence {
            Presence::Observed => "Observed",
            Presence::Gone => "Gone",
            Presence::Unseen => "Unseen",
        },
        "beingDeleted": view.deletion.deleting, "foregroundDeletion": view.deletion.foreground,
        "orphan": view.deletion.orphan, "foreignFinalizers": view.deletion.foreign_finalizers,
    })
}

/// A tree, one object per line.
pub(super) fn tree(tree: &Tree, out: &mut impl Write) -> Result<()> {
    let mut table = Table::new(&["OBJECT", "NAMESPACE", "STATE"]);
    branch(tree, "", "", &mut table);
    table.write(out)
}

fn branch(tree: &Tree, own: &str, below: &str, table: &mut Table) {
    let condition = condition(&tree.node);
    let shown = if condition.is_empty() { condition } else { warned(&condition) };
    table.row(vec![format!("{own}{}", title(&tree.node)), namespace(&tree.node).to_owned(), shown]);
    let last = tree.dependents.len();
    for (index, dependent) in tree.dependents.iter().enumerate() {
        let is_last = index + 1 == last && tree.omitted == 0;
        let (fork, bar) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        branch(dependent, &format!("{below}{fork}"), &format!("{below}{bar}"), table);
    }
    if tree.omitted > 0 {
        table.row(vec![format!("{below}└─ … {} more, or shown elsewhere", tree.omitted)]);
    }
}

/// A tree as data.
pub(super) fn tree_value(tree: &Tree) -> Value {
    let mut value = node_value(&tree.node);
    value["dependents"] = tree.dependents.iter().map(tree_value).collect();
    value["omitted"] = tree.omitted.into();
    value
}

fn conclusion(conclusion: &Conclusion) -> String {
    match conclusion {
        Conclusion::NoOwners => "It stays: it has no owners.".into(),
        Conclusion::OwnerLives => "It stays: an owner lives.".into(),
        Conclusion::Undecidable => "It stays: no owner is known to live, but one cannot be looked up.".into(),
        Conclusion::Unverified => "It stays for now: an owner is still to be looked up.".into(),
        Conclusion::ToBeDeleted(verdict) => format!("It is to be deleted: {verdict}."),
        Conclusion::ToLoseReferences(verdict) => format!("It stays and loses references: {verdict}."),
        Conclusion::BeingDeleted => "It is being deleted; finalizers hold it.".into(),
        Conclusion::WaitsForDependents(0) => {
            "It is being deleted and waits for no dependent any more.".into()
        }
        Conclusion::WaitsForDependents(1) => "It is being deleted and waits for 1 blocking dependent.".into(),
        Conclusion::WaitsForDependents(number) => {
            format!("It is being deleted and waits for {number} blocking dependents.")
        }
        Conclusion::Orphans => "It is being deleted and waits until its dependents are released.".into(),
        Conclusion::Gone => "It is gone.".into(),
        Conclusion::Unseen => "It was never seen; others refer to it.".into(),
    }
}

fn conclusion_name(conclusion: &Conclusion) -> &'static str {
    match conclusion {
        Conclusion::NoOwners => "NoOwners",
        Conclusion::OwnerLives => "OwnerLives",
        Conclusion::Undecidable => "Undecidable",
        Conclusion::Unverified => "Unverified",
        Conclusion::ToBeDeleted(_) => "ToBeDeleted",
        Conclusion::ToLoseReferences(_) => "ToLoseReferences",
        Conclusion::BeingDeleted => "BeingDeleted",
        Conclusion::WaitsForDependents(_) => "WaitsForDependents",
        Conclusion::Orphans => "Orphans",
        Conclusion::Gone => "Gone",
        Conclusion::Unseen => "Unseen",
    }
}

fn reference(state: &ReferenceState) -> (&'static str, Option<&Evidence>) {
    match state {
        ReferenceState::Lives => ("lives", None),
        ReferenceState::Waiting(evidence) => ("waits in foreground deletion", Some(evidence)),
        ReferenceState::Absent(evidence) => ("absent", Some(evidence)),
        ReferenceState::Orphaning(evidence) => ("orphans its dependents", Some(evidence)),
        ReferenceState::Undecidable => ("cannot be looked up, counts as living", None),
        ReferenceState::Unverified => ("still to be looked up", None),
    }
}

/// Why an object is, or is not, collected.
pub(super) fn why(why: &Why, out: &mut impl Write) -> Result<()> {
    writeln!(out, "{}", full_title(&why.object))?;
    writeln!(out, "{}", conclusion(&why.conclusion))?;
    if !why.references.is_empty() {
        writeln!(out)?;
        let mut table = Table::new(&["OWNER", "BLOCKS", "STATE"]);
        for (owner, state) in &why.references {
            let (word, _) = reference(state);
            let blocks = if owner.block_owner_deletion == Some(true) { "yes" } else { "no" };
            let name = format!("{}/{}", owner.coordinates.kind, owner.coordinates.name);
            let shown = if *state == ReferenceState::Lives { word.to_owned() } else { warned(word) };
            table.row(vec![name, blocks.into(), shown]);
        }
        table.write(out)?;
        let evidence: Vec<&Evidence> =
            why.references.iter().filter_map(|(_, state)| reference(state).1).collect();
        if !evidence.is_empty() {
            writeln!(out, "\nEvidence:")?;
            for fact in evidence {
                writeln!(out, "  {fact}")?;
            }
        }
    }
    if why.path.len() > 1 {
        let path: Vec<String> = why.path.iter().map(title).collect();
        writeln!(out, "\nOwned by: {}", path.join(" ← "))?;
    }
    Ok(())
}

/// The same as data.
pub(super) fn why_value(why: &Why) -> Value {
    let of = |(owner, state): &(OwnerReference, ReferenceState)| {
        let (word, evidence) = reference(state);
        let owner_value = &owner.coordinates;
        json!({
            "apiVersion": &*owner_value.api_version, "kind": &*owner_value.kind, "name": &*owner_value.name,
            "uid": owner_value.uid.to_string(), "blockOwnerDeletion": owner.block_owner_deletion,
            "state": word, "evidence": evidence.map(ToString::to_string),
        })
    };
    json!({
        "object": node_value(&why.object), "conclusion": conclusion_name(&why.conclusion),
        "message": conclusion(&why.conclusion),
        "owners": why.references.iter().map(of).collect::<Vec<_>>(),
        "path": why.path.iter().map(node_value).collect::<Vec<_>>(),
    })
}

fn cause(cause: &StuckCause, table: &ResourceTable) -> (&'static str, String) {
    let name = |id| table.get(id).map_or_else(String::new, |route| route.display_name());
    match cause {
        StuckCause::Blocked { by, total } => {
            let mut shown: Vec<String> = by.iter().map(title).collect();
            if by.len() < *total {
                shown.push(format!("{} more", total - by.len()));
            }
            ("Blocked", format!("waits for {}", shown.join(", ")))
        }
        StuckCause::Orphaning { remaining } => {
            ("Orphaning", format!("{remaining} dependents still refer to it"))
        }
        StuckCause::Lagging(resources) => {
            let names: Vec<String> = resources.iter().map(|id| name(*id)).collect();
            let shown = if names.is_empty() { "the collector".into() } else { names.join(", ") };
            ("Lagging", format!("waits for {shown}"))
        }
        StuckCause::ForeignFinalizers => ("ForeignFinalizers", "finalizers of others hold it".into()),
        StuckCause::Failing { failures, message } => ("Failing", format!("{failures} failures: {message}")),
        StuckCause::UndecidableOwner => ("UndecidableOwner", "an owner cannot be looked up".into()),
    }
}

/// What does not get on.
pub(super) fn stuck(stuck: &[Stuck], resources: &ResourceTable, out: &mut impl Write) -> Result<()> {
    if stuck.is_empty() {
        writeln!(out, "Nothing is stuck.")?;
        return Ok(());
    }
    let mut table = Table::new(&["OBJECT", "NAMESPACE", "CAUSE"]);
    for item in stuck {
        let (_, text) = cause(&item.cause, resources);
        table.row(vec![title(&item.object), namespace(&item.object).to_owned(), warned(&text)]);
    }
    table.write(out)
}

/// The same as data.
pub(super) fn stuck_value(stuck: &[Stuck], resources: &ResourceTable) -> Value {
    let of = |item: &Stuck| {
        let (word, text) = cause(&item.cause, resources);
        json!({"object": node_value(&item.object), "cause": word, "message": text})
    };
    json!({"items": stuck.iter().map(of).collect::<Vec<_>>()})
}

/// What a deletion would lead to.
pub(super) fn plan(plan: &Plan, resources: &ResourceTable, out: &mut impl Write) -> Result<()> {
    let mut table = Table::new(&["OBJECT", "NAMESPACE", "FATE"]);
    for (objects, fate, code) in [
        (&plan.deleted, "deleted", "31"),
        (&plan.held, "held by finalizers", "33"),
        (&plan.released, "released", "32"),
    ] {
        for object in objects {
            table.row(vec![title(object), namespace(object).to_owned(), coloured(fate, code)]);
        }
    }
    table.write(out)?;
    if !plan.assumed_living.is_empty() {
        let uids: Vec<String> = plan.assumed_living.iter().map(ToString::to_string).collect();
        writeln!(out, "\nOwners that cannot be looked up and count as living: {}", uids.join(", "))?;
    }
    if !plan.steps.is_empty() {
        writeln!(out, "\nRequests of the collector, in an order in which they may happen:")?;
        let mut table = Table::new(&["#", "VERB", "OBJECT", "WHY"]);
        for (place, step) in plan.steps.iter().enumerate() {
            let fields = request_value(&step.request, resources);
            let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
            let object = format!("{}/{}", text("resource"), text("name"));
            let why = step.reason.verdict.to_string();
            table.row(vec![(place + 1).to_string(), text("verb").to_owned(), object, why]);
        }
        table.write(out)?;
    }
    Ok(())
}

/// The same as data.
pub(super) fn plan_value(plan: &Plan, resources: &ResourceTable) -> Value {
    let nodes = |views: &[NodeView]| views.iter().map(node_value).collect::<Vec<_>>();
    let step = |step: &PlanStep| {
        let mut fields = request_value(&step.request, resources);
        fields.insert("verdict".into(), step.reason.verdict.to_string().into());
        let evidence: Vec<String> = step.reason.evidence.iter().map(ToString::to_string).collect();
        fields.insert("evidence".into(), evidence.into());
        Value::Object(fields)
    };
    json!({
        "deleted": nodes(&plan.deleted), "held": nodes(&plan.held), "released": nodes(&plan.released),
        "assumedLiving": plan.assumed_living.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "steps": plan.steps.iter().map(step).collect::<Vec<_>>(),
    })
}
