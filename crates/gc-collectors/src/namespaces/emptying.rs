//! One pass over a terminating namespace: reads it, deletes its contents, reports in its status what remains, and removes the
//! `kubernetes` token once nothing does.
//!
//! A pure state machine: [`EmptyingPass::ask`] returns the next request to the server, [`EmptyingPass::answered`] takes the
//! responses in any order, and [`EmptyingPass::end`] returns the result. Several requests are in flight at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use gc_types::{FailedGroup, Gvr, Timestamp};

use super::memory::Memory;
use super::{Condition, Next, Pass, RemainingObjects, finalizers_after};

/// Number of resources in one namespace that are emptied concurrently.
pub const CONCURRENT_RESOURCES: usize = 8;
/// Number of attempts to write a status or the finalizers in case of conflicts.
pub const CONFLICT_TRIES: u32 = 5;
/// Number of attempts of a request about the namespace itself after temporary failures; when they are used up, the whole pass is
/// lost.
pub const OWN_TRIES: u32 = 5;
/// Maximum total time of these attempts within a pass, milliseconds.
pub const OWN_PATIENCE_MILLISECONDS: i64 = 2_000;
/// First pause between such attempts, milliseconds; it doubles each time.
const FIRST_PAUSE_MILLISECONDS: i64 = 5;

/// A namespaced resource whose objects can be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainedResource {
    /// Group, version and plural name.
    pub gvr: Gvr,
    /// Kind.
    pub kind: Arc<str>,
    /// True if one request can delete its collection.
    pub together: bool,
}

impl ContainedResource {
    /// Returns `resource.group`; with an empty group, `resource.`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.{}", self.gvr.resource, self.gvr.group)
    }

    fn is_pods(&self) -> bool {
        self.gvr.group.is_empty() && *self.gvr.resource == *"pods"
    }
}

/// Served namespaced resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedResources {
    /// Resources that may have to be deleted.
    pub resources: Vec<Arc<ContainedResource>>,
    /// Groups that were discovered completely, and whether they have any of those resources.
    pub groups: BTreeMap<String, bool>,
    /// Groups whose discovery failed.
    pub failed: Vec<FailedGroup>,
}

/// A namespace, as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// `metadata.uid`
    pub uid: String,
    /// `metadata.resourceVersion`
    pub resource_version: String,
    /// `metadata.deletionTimestamp`, as written.
    pub deleted_at: Option<String>,
    /// Time in seconds that it had been terminating when it was read.
    pub terminating_seconds: i64,
    /// `spec.finalizers`
    pub finalizers: Vec<String>,
    /// True if `status.phase` is `Terminating`.
    pub says_terminating: bool,
    /// `status.conditions`
    pub conditions: Vec<Condition>,
    /// Time of the read, as the API writes times.
    pub read_at: String,
}

/// An object of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Name.
    pub name: String,
    /// UID, if the server returned one.
    pub uid: Option<String>,
    /// `metadata.resourceVersion`
    pub resource_version: String,
    /// True if it is terminating.
    pub deleting: bool,
    /// Finalizers of the object.
    pub finalizers: Vec<String>,
    /// `deletionGracePeriodSeconds`, 0 if absent.
    pub grace_seconds: i64,
}

/// Number of a request within its pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskId(pub u32);

/// A request to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Read the namespace itself.
    Read,
    /// Discover the served resources.
    Discover,
    /// Delete all objects of a resource in the namespace, by one request.
    DeleteAll(Arc<ContainedResource>),
    /// Delete one object, by its UID.
    Delete(Arc<ContainedResource>, Box<Item>),
    /// List a resource in the namespace completely.
    List(Arc<ContainedResource>),
    /// Write these conditions and the phase `Terminating` to the status of the namespace, in the version that was read last.
    WriteStatus(Vec<Condition>),
    /// Write these `spec.finalizers` of the namespace, in the version that was read last.
    Finalize(Vec<String>),
}

/// The server's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Response to [`Ask::Read`].
    Namespace(Box<View>),
    /// Response to [`Ask::Discover`].
    Served(Arc<ServedResources>),
    /// Response to [`Ask::List`].
    Items(Vec<Item>),
    /// Success of any other request.
    Done,
    /// Error response.
    Refused {
        /// The HTTP status code.
        code: u16,
        /// The request, and the server's message.
        why: String,
    },
    /// No response, or none that can be parsed.
    Failed {
        /// The error message.
        why: String,
        /// True if the server may still execute it.
        may_be_at_work: bool,
    },
}

impl Reply {
    /// Describes why it is not the expected response.
    #[must_use]
    pub fn why(self) -> String {
        match self {
            Self::Refused { why, .. } | Self::Failed { why, .. } => why,
            other => format!("an answer to another question: {other:?}"),
        }
    }

    /// Reports whether a request about the namespace itself may succeed if it is retried.
    fn is_passing(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Refused { code: 500.., .. })
    }
}

/// Number of objects of each resource in a namespace, and the resources that could not be listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Number of objects by resource.
    pub found: BTreeMap<String, usize>,
    /// Problems as text; empty if everything was listed.
    pub problems: String,
}

/// Result of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing more to do.
    Done {
        /// Time in seconds that the namespace was terminating, if this pass has finalized it.
        terminating_seconds: Option<i64>,
    },
    /// Start another pass after a delay.
    Again {
        /// Milliseconds.
        milliseconds: i64,
        /// True if the namespace is empty, but stays until unanswered deletions must have ended.
        unanswered: bool,
    },
    /// Try again with increasing delays, but soon if the pass made progress.
    Failed {
        /// The error message.
        why: String,
        /// True if more resources are known to be empty than before.
        further: bool,
    },
    /// A dry run, with what would have been deleted.
    DryRun(Contents),
}

/// Current step for one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Turn {
    DeleteAll,
    /// List the objects to delete one by one.
    Find,
    /// Check that the namespace is still the same: if it was recreated, the list shows the contents of the new one.
    Confirm(Vec<Item>),
    Delete(Vec<Item>),
    /// List the remaining objects.
    Verify,
}

#[derive(Clone, Debug)]
struct Work {
    resource: Arc<ContainedResource>,
    turn: Turn,
    /// Time at which the work began. Objects in a later list may be newer.
    asked: Timestamp,
}

/// Stage of a pass.
#[derive(Clone, Debug)]
enum Stage {
    Reading,
    Discovering,
    /// Emptying pods, which come first.
    Pods,
    Others,
    /// Reading the namespace, to write the status or finalizers to its current version.
    Rereading(WriteStage),
    Writing(WriteStage),
    Ended(End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteStage {
    Status,
    Finalizers,
}

/// One pass over one namespace.
#[derive(Clone, Debug)]
pub struct EmptyingPass {
    name: Arc<str>,
    dry_run: bool,
    stage: Stage,
    /// The namespace as last read.
    view: View,
    /// Start of the wait for the current response, and the number of attempts.
    own: Option<(Timestamp, u32)>,
    /// Time before which no request about the namespace itself is made.
    rests_until: Option<Timestamp>,
    conflicts: u32,
    next_id: u32,
    /// Requests in flight.
    asked: BTreeMap<AskId, PendingQuestion>,
    /// Resources whose work has not begun, in reverse order.
    waiting: Vec<Arc<ContainedResource>>,
    /// Work in progress that has a request to make.
    ready: Vec<Work>,
    /// Resources other than pods, for when the pods are gone.
    others: Vec<Arc<ContainedResource>>,
    /// Groups, with `true` if everything in them was empty.
    empty_groups: BTreeMap<Arc<str>, bool>,
    pass: Pass,
    contents: Contents,
    /// Number of resources that were known to be empty before.
    known: usize,
}

#[derive(Clone, Debug)]
enum PendingQuestion {
    Own(Timestamp),
    Of(Work),
}

impl EmptyingPass {
    /// Creates a pass. A dry run deletes and writes nothing.
    #[must_use]
    pub fn new(name: &Arc<str>, dry_run: bool) -> Self {
        Self {
            name: Arc::clone(name),
            dry_run,
            stage: Stage::Reading,
            view: View::default(),
            own: None,
            rests_until: None,
            conflicts: 0,
            next_id: 0,
            asked: BTreeMap::new(),
            waiting: Vec::new(),
            ready: Vec::new(),
            others: Vec::new(),
            empty_groups: BTreeMap::new(),
            pass: Pass::default(),
            contents: Contents::default(),
            known: 0,
        }
    }

    /// Returns the namespace, as last read.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns the result of the pass once it is over.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        match &self.stage {
            Stage::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// Reports whether no response is awaited.
    #[must_use]
    pub fn awaits_nothing(&self) -> bool {
        self.asked.is_empty()
    }

    /// Reports whether the pass ended without failures: anything left waits for others, such as controllers that remove a finalizer
    /// or end a pod.
    #[must_use]
    pub fn waits_for_others(&self) -> bool {
        match self.end() {
            Some(End::Again { unanswered, .. }) => !unanswered,
            Some(End::Failed { .. }) => {
                let is_left = self.pass.remaining.iter().any(|left| left.objects > 0);
                is_left && self.pass.failures.is_empty() && self.pass.undiscovered.is_empty()
            }
            _ => false,
        }
    }

    /// Returns when there may be another request without a response: after a pause.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.rests_until.filter(|_| self.asked.is_empty())
    }

    /// Returns the next request to the server, if any.
    pub fn ask(&mut self, memory: &mut Memory, now: Timestamp) -> Option<(AskId, Ask)> {
        loop {
            if matches!(self.stage, Stage::Discovering)
                && self.asked.is_empty()
                && let Some(served) = memory.served(&self.view.uid, now)
            {
                self.discovered(&served, memory);
            }
            match &self.stage {
                Stage::Ended(_) => return None,
                Stage::Reading | Stage::Discovering | Stage::Rereading(_) | Stage::Writing(_) => {
                    return self.ask_own(now);
                }
                Stage::Pods | Stage::Others => match self.ask_of_a_resource(memory, now) {
                    Some(ask) => return Some(ask),
                    None if !self.asked.is_empty() => return None,
                    None => self.emptied(memory),
                },
            }
        }
    }

    fn number(&mut self, asked: PendingQuestion) -> AskId {
        let id = AskId(self.next_id);
        self.next_id += 1;
        self.asked.insert(id, asked);
        id
    }

    fn ask_own(&mut self, now: Timestamp) -> Option<(AskId, Ask)> {
        if !self.asked.is_empty() || self.rests_until.is_some_and(|until| now < until) {
            return None;
        }
        self.rests_until = None;
        let ask = match self.stage {
            Stage::Discovering => Ask::Discover,
            Stage::Writing(WriteStage::Status) => {
                Ask::WriteStatus(self.pass.conditions(&self.view.conditions, &self.view.read_at))
            }
            Stage::Writing(WriteStage::Finalizers) => {
                Ask::Finalize(finalizers_after(&self.view.finalizers).unwrap_or_default())
            }
            _ => Ask::Read,
        };
        let tries = self.own.get_or_insert((now, 0));
        tries.1 += 1;
        Some((self.number(PendingQuestion::Own(now)), ask))
    }

    /// Takes the response to a request of this pass.
    pub fn answered(&mut self, memory: &mut Memory, id: AskId, reply: Reply, now: Timestamp) {
        match self.asked.remove(&id) {
            Some(PendingQuestion::Of(work)) => self.resource_reply(memory, work, reply),
            Some(PendingQuestion::Own(asked)) => self.own_reply(memory, asked, reply, now),
            None => {}
        }
    }

    // ---- the namespace itself ----

    fn own_reply(&mut self, memory: &mut Memory, asked: Timestamp, reply: Reply, now: Timestamp) {
        if let (Stage::Writing(WriteStage::Finalizers), Reply::Failed { may_be_at_work: true, .. }) =
            (&self.stage, &reply)
        {
            memory.finalizing.record(&self.name, asked);
        }
        // Discovery has its own retries.
        if reply.is_passing()
            && !matches!(self.stage, Stage::Discovering)
            && let Some((since, tries)) = self.own
            && tries < OWN_TRIES
            && now.since(since) <= OWN_PATIENCE_MILLISECONDS
        {
            self.rests_until = Some(now.after(FIRST_PAUSE_MILLISECONDS << (tries - 1)));
            return;
        }
        self.own = None;
        match (&self.stage, reply) {
            (Stage::Reading, Reply::Namespace(view)) => self.began(memory, *view, now),
            (Stage::Reading, Reply::Refused { code: 404, .. }) => self.done(memory, None),
            (Stage::Discovering, Reply::Served(served)) => {
                memory.discovered(asked, &served);
                self.discovered(&served, memory);
            }
            (Stage::Rereading(writing), Reply::Namespace(view)) => self.reread(memory, *writing, *view, now),
            (Stage::Writing(WriteStage::Finalizers), Reply::Done) => {
                self.done(memory, Some(self.view.terminating_seconds));
            }
            (Stage::Rereading(writing) | Stage::Writing(writing), Reply::Refused { code: 404, .. })
            | (Stage::Writing(writing), Reply::Done) => self.written(memory, *writing, now),
            (Stage::Writing(writing), Reply::Refused { code: 409, .. }) => self.conflicted(*writing),
            (_, reply) => self.failed(reply.why()),
        }
    }

    fn began(&mut self, memory: &mut Memory, view: View, now: Timestamp) {
        self.view = view;
        if self.view.deleted_at.is_none() || finalizers_after(&self.view.finalizers).is_none() {
            return self.done(memory, None);
        }
        if !self.dry_run {
            memory.begin(&self.name, &self.view.uid, now);
        }
        self.known = memory.learnt.number(&self.view.uid);
        self.stage = Stage::Discovering;
    }

    /// Takes the result of discovery, and the unreachable groups that may matter.
    fn discovered(&mut self, served: &ServedResources, memory: &Memory) {
        for failed in &served.failed {
            let version = failed.version.as_deref().unwrap_or("*");
            let named = format!("{}/{version}: {}", failed.group, failed.message);
            match memory.groups.excuse(&self.view.uid, &failed.group) {
                Some(why) => self.pass.excused.push(format!("{named} (not waited for: {why})")),
                None => self.pass.undiscovered.push(named),
            }
        }
        // BEAT-NS-2: while it is unknown whether there are pods, nothing that they may need is deleted.
        if served.failed.iter().any(|failed| failed.group.is_empty()) {
            let why = "pods could not be listed: discovery of the core group failed";
            self.pass.failures.push(why.to_owned());
        }
        let (pods, others) = served.resources.iter().rev().cloned().partition(|resource| resource.is_pods());
        (self.waiting, self.others) = (pods, others);
        self.stage = Stage::Pods;
    }

    /// Continues when no requests of this stage are left.
    fn emptied(&mut self, memory: &mut Memory) {
        if self.dry_run && self.others.is_empty() {
            self.contents.problems = self.pass.problems();
            self.stage = Stage::Ended(End::DryRun(std::mem::take(&mut self.contents)));
            return;
        }
        let is_pods = matches!(self.stage, Stage::Pods);
        // S15: a failure about pods stops the pass, just like a remaining pod.
        let stops = !self.pass.failures.is_empty() || self.pass.remaining.iter().any(|left| left.objects > 0);
        if is_pods && (self.dry_run || !stops) {
            self.empty_groups.clear();
            self.waiting = std::mem::take(&mut self.others);
            self.stage = Stage::Others;
            return;
        }
        if !is_pods {
            for (group, _) in std::mem::take(&mut self.empty_groups).into_iter().filter(|(_, empty)| *empty) {
                memory.groups.emptied(&self.view.uid, &group);
            }
        }
        self.pass.failures.sort();
        self.reread_for(WriteStage::Status);
    }

    fn reread_for(&mut self, writing: WriteStage) {
        self.conflicts = 0;
        self.stage = Stage::Rereading(writing);
    }

    fn reread(&mut self, memory: &mut Memory, writing: WriteStage, view: View, now: Timestamp) {
        let is_another = view.uid != self.view.uid;
        match writing {
            WriteStage::Status if is_another => {
                return self.failed(self.recreated());
            }
            WriteStage::Finalizers if is_another || finalizers_after(&view.finalizers).is_none() => {
                return self.written(memory, writing, now);
            }
            _ => {}
        }
        self.view = View { terminating_seconds: self.view.terminating_seconds, ..view };
        let conditions = || self.pass.conditions(&self.view.conditions, &self.view.read_at);
        if writing == WriteStage::Status && self.view.says_terminating && conditions() == self.view.conditions
        {
            return self.written(memory, writing, now);
        }
        self.stage = Stage::Writing(writing);
    }

    fn conflicted(&mut self, writing: WriteStage) {
        self.conflicts += 1;
        if self.conflicts < CONFLICT_TRIES {
            self.stage = Stage::Rereading(writing);
            return;
        }
        let what = if writing == WriteStage::Status { "status" } else { "finalizers" };
        self.failed(format!("the {what} of namespace {} keep changing", self.name));
    }

    /// Continues when the status is up to date, or others have removed the token.
    fn written(&mut self, memory: &mut Memory, writing: WriteStage, now: Timestamp) {
        if writing == WriteStage::Finalizers {
            return self.done(memory, None);
        }
        let (uid, seconds) = (&self.view.uid, self.view.terminating_seconds);
        let end = match self.pass.next(seconds) {
            Next::Retry => {
                let further = memory.learnt.number(uid) > self.known;
                End::Failed { why: self.pass.problems(), further }
            }
            Next::Finalize => match memory.unanswered.wait_milliseconds(&self.name, now) {
                0 => return self.reread_for(WriteStage::Finalizers),
                milliseconds => End::Again { milliseconds, unanswered: true },
            },
            Next::Wait { seconds } => {
                // Nothing has failed: the next pass checks everything again, when the rest should be gone.
                memory.learnt.forget(uid);
                End::Again { milliseconds: seconds.saturating_mul(1_000), unanswered: false }
            }
        };
        self.stage = Stage::Ended(end);
    }

    fn done(&mut self, memory: &mut Memory, terminating_seconds: Option<i64>) {
        memory.gone(&self.name);
        self.stage = Stage::Ended(End::Done { terminating_seconds });
    }

    fn recreated(&self) -> String {
        format!("namespace {} has been deleted and recreated in the meantime", self.name)
    }

    fn failed(&mut self, why: String) {
        self.stage = Stage::Ended(End::Failed { why, further: false });
    }

    // ---- what is in it ----

    fn ask_of_a_resource(&mut self, memory: &Memory, now: Timestamp) -> Option<(AskId, Ask)> {
        let work = match self.ready.pop() {
            Some(work) => work,
            None => self.begin_a_resource(memory, now)?,
        };
        let resource = Arc::clone(&work.resource);
        let ask = match &work.turn {
            Turn::DeleteAll => Ask::DeleteAll(resource),
            Turn::Find | Turn::Verify => Ask::List(resource),
            Turn::Confirm(_) => Ask::Read,
            Turn::Delete(items) => match items.last() {
                Some(item) => Ask::Delete(resource, Box::new(item.clone())),
                None => Ask::List(resource),
            },
        };
        Some((self.number(PendingQuestion::Of(work)), ask))
    }

    fn begin_a_resource(&mut self, memory: &Memory, now: Timestamp) -> Option<Work> {
        while self.asked.len() < CONCURRENT_RESOURCES {
            let resource = self.waiting.pop()?;
            let group = Arc::clone(&resource.gvr.group);
            self.empty_groups.entry(group).or_insert(true);
            if !self.dry_run && memory.learnt.is_empty(&self.view.uid, &resource.name(), now) {
                continue;
            }
            // The namespace may be removed and recreated between any two requests: only a UID identifies it.
            let together = resource.together && !memory.finalizing.may_be_at_work(&self.name, now);
            let turn = match (self.dry_run, together) {
                (true, _) => Turn::Verify,
                (false, true) => Turn::DeleteAll,
                (false, false) => Turn::Find,
            };
            return Some(Work { resource, turn, asked: now });
        }
        None
    }

    fn resource_reply(&mut self, memory: &mut Memory, mut work: Work, reply: Reply) {
        if let (Turn::DeleteAll, Reply::Failed { may_be_at_work: true, .. }) = (&work.turn, &reply) {
            memory.unanswered.record(&self.name, work.asked);
        }
        work.turn = match (work.turn, reply) {
            (Turn::DeleteAll, Reply::Done) | (Turn::Find, Reply::Refused { code: 404 | 405, .. }) => {
                Turn::Verify
            }
            (Turn::DeleteAll, Reply::Refused { code: 404 | 405, .. }) => Turn::Find,
            (Turn::Find, Reply::Items(items)) => {
                Turn::Confirm(items.into_iter().rev().filter(|item| !item.name.is_empty()).collect())
            }
            (Turn::Confirm(items), Reply::Namespace(view)) if view.uid == self.view.uid => {
                Turn::Delete(items)
            }
            (Turn::Confirm(_), Reply::Namespace(_)) => return self.pass.failures.push(self.recreated()),
            // The next pass finds an object that has been replaced.
            (Turn::Delete(mut left), Reply::Done | Reply::Refused { code: 404 | 405 | 409, .. }) => {
                left.pop();
                Turn::Delete(left)
            }
            (Turn::Verify, Reply::Items(items)) => {
                return self.verified(memory, &work.resource, &items, work.asked);
            }
            // A resource that cannot be listed reveals nothing about its contents.
            (Turn::Verify, Reply::Refused { code: 404 | 405, .. }) => return,
            (_, reply) => {
                self.empty_groups.insert(Arc::clone(&work.resource.gvr.group), false);
                self.pass.failures.push(reply.why());
                return;
            }
        };
        if [Turn::Confirm(Vec::new()), Turn::Delete(Vec::new())].contains(&work.turn) {
            work.turn = Turn::Verify;
        }
        self.ready.push(work);
    }

    fn verified(
        &mut self,
        memory: &mut Memory,
        resource: &ContainedResource,
        items: &[Item],
        asked: Timestamp,
    ) {
        if self.dry_run {
            if !items.is_empty() {
                self.contents.found.insert(resource.name(), items.len());
            }
        } else if items.is_empty() {
            memory.learnt.emptied(&self.view.uid, &resource.name(), asked);
        } else {
            self.empty_groups.insert(Arc::clone(&resource.gvr.group), false);
            self.pass.remaining.push(remaining(resource.name(), items, self.view.terminating_seconds));
        }
    }
}

fn remaining(resource: String, items: &[Item], terminating_seconds: i64) -> RemainingObjects {
    let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
    for finalizer in items.iter().flat_map(|item| &item.finalizers) {
        *finalizers.entry(finalizer.clone()).or_default() += 1;
    }
    let longest = items.iter().map(|item| item.grace_seconds).max().unwrap_or_default();
    // Grace periods began with the namespace's deletion at the latest.
    let grace_seconds = if longest <= terminating_seconds { 0 } else { longest };
    RemainingObjects { resource, objects: items.len(), finalizers, grace_seconds }
}

#[cfg(test)]
mod tests;
