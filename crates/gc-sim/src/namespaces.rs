//! Worlds of terminating namespaces: the real decisions of the namespace controller, whose deletions of collections no precondition
//! can guard, over the real registry. Namespaces are deleted and created again under their names, requests arrive late, groups
//! cannot be discovered, and controllers die and are replaced by others.

mod controller;
mod requests;
mod restraints;
mod shown;

use std::sync::Arc;
use std::time::Duration;

use gc_collectors::namespaces::documents::view;
use gc_collectors::namespaces::emptying::{Ask, Reply, View};
use gc_collectors::namespaces::memory::AT_WORK_MILLISECONDS;
use gc_controller::concurrency::Signal;
use gc_controller::namespaces::Answer;
use gc_registry::api::DeleteOptions;
use gc_registry::storage::Change;
use gc_types::Timestamp;
use serde_json::json;

use crate::clients;
use crate::defects::Defect;
use crate::kinds::{KINDS, kind_index};
use crate::process::Orders;
use crate::random::Random;
use crate::server::{BEGINNING_MILLISECONDS, Server};
use crate::story::{DiscoveryFault, RequestFault, Step, Story, scaled};
use crate::truth::{Actor, TrueChange, TrueObject, Truth};
use crate::violation::Violation;
use crate::violation::broken;
use crate::world::{Options, Report};
use controller::{Flight, Mail, NamespaceController};
use requests::{Asker, NAMESPACE, contained_kinds};
use restraints::RestraintBook;
use shown::{shown, shown_reply};

/// Namespaces that come and go.
const NAMES: [&str; 2] = ["x", "y"];
/// Names of objects, few enough to be used again.
const OBJECTS: [&str; 4] = ["a", "b", "c", "d"];
const HOLD: &str = "example.com/hold";
/// Number of objects that are created with a namespace.
const OBJECTS_OF_A_NAMESPACE: usize = 3;
/// Number of objects above which clients stop creating.
const MOST_OBJECTS: usize = 10;
/// Maximum number of requests and responses that arrive in one moment: a pass takes some twenty.
const MOST_AT_ONCE: usize = 8;
/// Additional losses per thousand deletions of collections and finalizations in bad weather, since these matter most here.
const LOST: u32 = 150;
/// Number of cases per thousand in which a lost request arrives before the one that was sent last.
const LATE: u32 = 15;
/// Number of moments with faults per thousand in which a controller dies.
const CRASHES: u32 = 50;
/// Maximum duration of a moment in which a controller sends requests, milliseconds.
const MOMENT_MILLISECONDS: usize = 1_000;
/// Time that passes in steps, milliseconds.
const STEPS_MILLISECONDS: [i64; 8] = [10, 50, 200, 1_000, 5_000, 8_000, 20_000, 45_000];
/// Interval at which all namespaces are listed, in milliseconds.
const SYNC_MILLISECONDS: i64 = 300_000;
/// Duration of the first rest, in which finalizers may hold namespaces, milliseconds.
const FIRST_REST_MILLISECONDS: i64 = 200_000;
/// Maximum time until every terminating namespace is gone once nothing holds it, in milliseconds: the longest delay after failures,
/// requests that may still be executed, and the next pass.
const LAST_REST_MILLISECONDS: i64 = 300_000;
/// Delay that the server asks of a client that sends too many requests.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Maximum number of rounds of requests and responses in a rest.
const REST_ROUNDS: usize = 6_000;

struct NamespaceWorld<'a> {
    story: &'a Story,
    options: Options,
    server: Server,
    truth: Truth,
    controllers: Vec<NamespaceController>,
    born: usize,
    orders: Orders,
    restraints: RestraintBook,
    flights: Vec<Flight>,
    /// Requests whose senders no longer wait; they may still arrive.
    adrift: Vec<Flight>,
    /// Groups that discovery cannot reach.
    dead: Vec<&'static str>,
    singly: u64,
    now: i64,
    synced_at: i64,
    report: Report,
}

/// Runs a story.
#[must_use]
pub fn run(story: &Story, options: Options) -> Report {
    let mut world = NamespaceWorld {
        story,
        options,
        server: Server::new(story.seed),
        truth: Truth::default(),
        controllers: vec![NamespaceController::new(0, story, options.defect)],
        born: 1,
        orders: Orders::default(),
        restraints: RestraintBook::new(story),
        flights: Vec::new(),
        adrift: Vec::new(),
        dead: Vec::new(),
        singly: Random::new(story.seed ^ 0x51_6e61).next() & Random::new(story.seed).next(),
        now: BEGINNING_MILLISECONDS,
        synced_at: BEGINNING_MILLISECONDS,
        report: Report::default(),
    };
    if let Err(violation) = world.happen() {
        world.note(|| format!("VIOLATION {violation}"));
        world.report.violation = Some(violation);
    }
    let events = world.report.events;
    world.report.mix(events);
    world.report
}

impl NamespaceWorld<'_> {
    fn note(&mut self, text: impl FnOnce() -> String) {
        if self.options.trace {
            self.report.trace.push(text());
        }
    }

    fn happen(&mut self) -> Result<(), Violation> {
        for name in NAMES {
            self.create_namespace(name);
        }
        for step in &self.story.steps {
            self.step(*step)?;
            self.report.mix(self.server.revision());
        }
        self.note(|| "-- faults end, everything arrives".to_owned());
        self.calm()?;
        self.rest(FIRST_REST_MILLISECONDS)?;
        self.judge_statuses()?;
        self.note(|| "-- clients take off their finalizers".to_owned());
        self.release_all();
        self.rest(LAST_REST_MILLISECONDS)?;
        self.judge_rest()
    }

    // ---- steps ----

    fn step(&mut self, step: Step) -> Result<(), Violation> {
        match step {
            Step::Client(salt) => self.act(&mut Random::new(salt)),
            Step::Serve(salt, fault) => return self.bustle(&mut Random::new(salt), fault),
            Step::Deliver(salt) | Step::Effects(salt) | Step::Answer(salt) => {
                return self.bustle(&mut Random::new(salt), None);
            }
            Step::Tick(salt) => self.pass(Random::new(salt).pick(&STEPS_MILLISECONDS)),
            Step::Discover(salt, fault) => self.discovery(&mut Random::new(salt), fault),
            Step::Housekeeping(_) => self.keep_house(),
            Step::Definition(_) => self.define(),
            Step::Crash(salt) => return self.crash(&mut Random::new(salt)),
            Step::Pause => self.pause(),
            Step::Resume => {
                for controller in &mut self.controllers {
                    controller.paused = false;
                }
            }
            Step::Retire => {
                if self.controllers.len() > 1 {
                    let controller = self.controllers.remove(0);
                    self.flights.retain(|flight| flight.controller != controller.number);
                }
            }
            Step::ClockJump(salt) => {
                let mut random = Random::new(salt);
                if let Some(index) = self.moving(&mut random) {
                    self.controllers[index].clock_error +=
                        random.pick(&[-3_600_000, -5_000, 5_000, 3_600_000]);
                    self.report.note_happened("clock jumps");
                }
            }
            Step::Operate(salt) => self.operate(salt),
            Step::Break(..) | Step::Compact | Step::Restore(_) | Step::Partition(_) => {}
        }
        Ok(())
    }

    /// Acts as an operator.
    fn operate(&mut self, salt: u64) {
        if self.story.namespace_restraints().is_none() {
            return;
        }
        match Random::new(salt).weighted(&[3, 3, 4, 4]) {
            0 => self.order(Orders { is_paused: true, ..self.orders }, "collectors paused"),
            1 => self.order(Orders { is_dry_run: true, ..self.orders }, "dry runs"),
            2 => self.order(Orders::default(), "orders ended"),
            _ => self.resume_breakers(),
        }
    }

    fn order(&mut self, orders: Orders, what: &'static str) {
        if self.orders != orders {
            self.orders = orders;
            self.report.note_happened(what);
            self.note(|| format!("the operator's orders: {orders:?}"));
            self.controllers.iter_mut().for_each(|controller| controller.process.orders = orders);
        }
    }

    fn resume_breakers(&mut self) {
        for controller in &mut self.controllers {
            if controller.resume(self.now) {
                self.report.note_happened("breakers resumed");
                self.restraints.resumed(controller.number, self.now);
            }
        }
    }

    /// Simulates a moment in which a controller takes responses and sends requests, and some of both arrive.
    fn bustle(&mut self, random: &mut Random, fault: Option<RequestFault>) -> Result<(), Violation> {
        self.pass(i64::try_from(random.below(MOMENT_MILLISECONDS)).unwrap_or(0));
        if random.chance(400) {
            self.observe_some(random);
        }
        if random.chance(250) {
            self.keep_house();
        }
        if random.chance(100) {
            self.dead.clear();
        }
        if random.chance(300) {
            self.act(random);
        }
        if random.chance(scaled(CRASHES, self.story.weather)) {
            self.crash(random)?;
        }
        if let Some(index) = self.moving(random) {
            self.ask(index, 1 + random.below(MOST_AT_ONCE))?;
        }
        self.serve_some(random, fault)?;
        for _ in 0..random.below(MOST_AT_ONCE) {
            self.serve_some(random, None)?;
        }
        for _ in 0..random.below(MOST_AT_ONCE) {
            if let Some(index) = self.moving(random)
                && !self.controllers[index].mail.is_empty()
            {
                let position = random.below(self.controllers[index].mail.len());
                self.deliver(index, position);
            }
        }
        Ok(())
    }

    fn moving(&self, random: &mut Random) -> Option<usize> {
        let moving: Vec<usize> =
            (0..self.controllers.len()).filter(|&index| !self.controllers[index].paused).collect();
        (!moving.is_empty()).then(|| moving[random.below(moving.len())])
    }

    fn pass(&mut self, milliseconds: i64) {
        self.now += milliseconds;
        self.server.now += milliseconds;
        if self.now - self.synced_at >= SYNC_MILLISECONDS {
            self.synced_at = self.now;
            self.list_all();
        }
    }

    /// Acts as the clients.
    fn act(&mut self, random: &mut Random) {
        let name = random.pick(&NAMES);
        let objects: Vec<TrueObject> = self.contents().cloned().collect();
        let action = random.weighted(&[30, 20, 30, 6, 10, 4]);
        let what = match action {
            0 if objects.len() < MOST_OBJECTS => self.create(random, name),
            1 => self.delete_namespace(name),
            2 => self.recreate(random, name),
            3 => self.write_namespace(random, name),
            _ if objects.is_empty() => return,
            4 => clients::release(&self.server, &objects[random.below(objects.len())], false),
            _ => {
                let target = &objects[random.below(objects.len())];
                let key = &target.object.key;
                let result =
                    self.server.delete(target.kind(), &key.namespace, &key.name, DeleteOptions::default());
                format!("delete {}: {}", target.show(), clients::shown_result(result.as_ref()))
            }
        };
        self.note(|| what);
        self.absorb();
    }

    fn create(&mut self, random: &mut Random, namespace: &str) -> String {
        let kinds: Vec<usize> = contained_kinds().collect();
        let kind = random.pick(&kinds);
        let mut metadata = json!({"name": random.pick(&OBJECTS)});
        if random.chance(60) {
            metadata["finalizers"] = json!([HOLD]);
        }
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        let manifest = KINDS[kind].manifest(metadata, random.chance(500));
        let result = self.server.create(&KINDS[kind], namespace, manifest);
        format!(
            "create {}: {}",
            crate::truth::show(kind, namespace, &name),
            clients::shown_result(result.as_ref())
        )
    }

    /// Creates a namespace again, and uses it right away.
    fn recreate(&mut self, random: &mut Random, name: &str) -> String {
        let mut what = self.create_namespace(name);
        if what.ends_with("done") {
            for _ in 0..OBJECTS_OF_A_NAMESPACE {
                what = format!("{what}; {}", self.create(random, name));
            }
        }
        what
    }

    fn create_namespace(&mut self, name: &str) -> String {
        let result = self.server.create(&NAMESPACE, "", json!({"metadata": {"name": name}}));
        format!("create Namespace/{name}: {}", clients::shown_result(result.as_ref()))
    }

    fn delete_namespace(&mut self, name: &str) -> String {
        let result = self.server.delete(&NAMESPACE, "", name, DeleteOptions::default());
        format!("delete Namespace/{name}: {}", clients::shown_result(result.as_ref()))
    }

    /// Writes an irrelevant label to a namespace, or a finalizer that blocks the namespace itself.
    fn write_namespace(&mut self, random: &mut Random, name: &str) -> String {
        let patch = if random.chance(300) {
            json!({"metadata": {"finalizers": if random.chance(500) { vec![HOLD] } else { vec![] }}})
        } else {
            json!({"metadata": {"labels": {"touched": (random.next() % 1_000_000).to_string()}}})
        };
        let result = self.server.merge(&NAMESPACE, "", name, patch.clone());
        format!("patch Namespace/{name} {patch}: {}", clients::shown_result(result.as_ref()))
    }

    /// Lets a controller observe a terminating namespace.
    fn observe_some(&mut self, random: &mut Random) {
        let name: Arc<str> = random.pick(&NAMES).into();
        let is_terminating = self.namespace(&name).is_some_and(|view| view.deleted_at.is_some());
        if is_terminating && let Some(index) = self.moving(random) {
            self.report.events += 1;
            self.controllers[index].observed(&name, self.now);
        }
    }

    fn terminating(&self) -> Vec<Arc<str>> {
        let is_terminating = |name: &&str| self.namespace(name).is_some_and(|view| view.deleted_at.is_some());
        NAMES.into_iter().filter(is_terminating).map(Arc::from).collect()
    }

    fn list_all(&mut self) {
        for name in self.terminating() {
            for controller in self.controllers.iter_mut().filter(|controller| !controller.paused) {
                self.report.events += 1;
                controller.listed(&name, self.now);
            }
        }
    }

    fn ask(&mut self, index: usize, most: usize) -> Result<bool, Violation> {
        let flights = self.controllers[index].ask(most, self.now);
        let any = !flights.is_empty();
        for flight in flights {
            self.note(|| format!("  controller {} wants {}", flight.controller, shown(&flight)));
            let of_it = |other: &&Flight| other.controller == flight.controller;
            let mail = self.controllers[index].mail.len();
            let in_flight = self.flights.iter().filter(of_it).count() + mail + 1;
            self.restraints.judge_question(&flight, self.orders, in_flight)?;
            self.flights.push(flight);
        }
        Ok(any)
    }

    fn deliver(&mut self, index: usize, position: usize) {
        self.report.events += 1;
        let mail = self.controllers[index].mail.swap_remove(position);
        self.restraints.note_answer(&mail, self.now);
        self.controllers[index].take(mail, self.now);
    }

    fn discovery(&mut self, random: &mut Random, fault: Option<DiscoveryFault>) {
        self.dead.clear();
        if fault.is_some() {
            self.dead.push(random.pick(&["", "apps", "example.com", "coordination.k8s.io"]));
            self.report.note_happened("discoveries failed");
            self.note(|| "  a group cannot be discovered".to_owned());
        }
    }

    fn keep_house(&mut self) {
        self.server.maintain();
        clients::end_pods(&self.server, &self.truth);
        self.absorb();
    }

    fn define(&mut self) {
        let kind = &KINDS[kind_index("Widget")];
        if self.server.serves(kind) {
            self.server.undefine(kind);
        } else {
            self.server.define(kind);
        }
        self.report.note_happened("definitions changed");
        self.note(|| "the definition of widgets is deleted, or made again".to_owned());
        self.keep_house();
    }

    /// Kills a controller. The requests that it has sent arrive at once or never: its connections end with it.
    fn crash(&mut self, random: &mut Random) -> Result<(), Violation> {
        let Some(index) = self.moving(random) else { return Ok(()) };
        let controller = self.controllers.remove(index);
        self.report.note_happened("crashes");
        self.note(|| format!("  controller {} dies", controller.number));
        let (of_it, others) = std::mem::take(&mut self.flights)
            .into_iter()
            .partition(|flight| flight.controller == controller.number);
        self.flights = others;
        for flight in of_it {
            if random.chance(500) && !flight.gated {
                self.execute(&flight, controller.clock_error)?;
            }
        }
        // A successor of a deposed leader does not lead either.
        if !controller.deposed {
            self.begin_controller();
        }
        Ok(())
    }

    fn begin_controller(&mut self) {
        let mut controller = NamespaceController::new(self.born, self.story, self.options.defect);
        controller.process.orders = self.orders;
        self.born += 1;
        controller.lead(&self.terminating(), self.now);
        self.controllers.push(controller);
    }

    /// Suspends a leader; another one leads when its Lease has expired.
    fn pause(&mut self) {
        if self.controllers.len() == 1 {
            self.controllers[0].paused = true;
            self.controllers[0].deposed = true;
            self.report.note_happened("leader changes");
            self.note(|| "  the leader stops moving, another takes over".to_owned());
            self.pass(15_000);
            self.begin_controller();
        }
    }

    // ---- requests ----

    fn serve_some(&mut self, random: &mut Random, fault: Option<RequestFault>) -> Result<(), Violation> {
        if !self.adrift.is_empty() && random.chance(LATE) {
            let flight = self.adrift.swap_remove(random.below(self.adrift.len()));
            return self.arrive_late(&flight);
        }
        if self.flights.is_empty() {
            return Ok(());
        }
        let flight = self.flights.swap_remove(random.below(self.flights.len()));
        let is_unguarded = matches!(flight.question.ask, Ask::DeleteAll(_) | Ask::Finalize(_));
        let loses = is_unguarded && random.chance(scaled(LOST, self.story.weather));
        self.serve(flight, fault.or(loses.then_some(RequestFault::LostBefore)), random)
    }

    /// Delivers a request whose sender no longer waits, unless the server has ended it.
    fn arrive_late(&mut self, flight: &Flight) -> Result<(), Violation> {
        if self.now < flight.sent + AT_WORK_MILLISECONDS {
            self.report.note_happened("requests late");
            self.note(|| format!("  {} arrives late", shown(flight)));
            self.execute(flight, 0)?;
        }
        Ok(())
    }

    fn serve(
        &mut self,
        flight: Flight,
        fault: Option<RequestFault>,
        random: &mut Random,
    ) -> Result<(), Violation> {
        let Some(index) =
            self.controllers.iter().position(|controller| controller.number == flight.controller)
        else {
            return Ok(());
        };
        let changes_something = flight.question.changes();
        if fault.is_some() {
            self.report.note_happened("requests failed");
        }
        let lost = |may_be_at_work| Reply::Failed { why: "timeout".into(), may_be_at_work };
        let code = |code: u16| Reply::Refused { code, why: "not now".into() };
        let clock_error = self.controllers[index].clock_error;
        let unread = |reply| Answer { reply, read: None, deleted: 0, signal: Some((Signal::Answered, 1)) };
        let mut answer = match fault {
            _ if flight.gated => unread(lost(false)),
            // The server ends requests that have been running for too long.
            _ if self.now >= flight.sent + AT_WORK_MILLISECONDS => unread(lost(true)),
            Some(RequestFault::LostBefore) => {
                if changes_something && random.chance(700) {
                    self.adrift.push(flight.clone());
                }
                unread(lost(true))
            }
            Some(RequestFault::LostAfter | RequestFault::Garbled) => {
                self.execute(&flight, clock_error)?;
                unread(lost(true))
            }
            Some(RequestFault::MereConflict) if changes_something => unread(code(409)),
            Some(RequestFault::TooMany) => {
                Answer { signal: Some((Signal::Busy(Some(RETRY_AFTER)), 1)), ..unread(code(429)) }
            }
            Some(RequestFault::Internal | RequestFault::PlainNotFound) => {
                Answer { signal: Some((Signal::Busy(None), 1)), ..unread(code(503)) }
            }
            Some(RequestFault::Forbidden) => unread(code(403)),
            Some(RequestFault::Conflict) => {
                let what = self.write_namespace(random, &flight.question.namespace);
                self.note(|| format!("{what} (just before a request)"));
                self.absorb();
                self.execute(&flight, clock_error)?
            }
            Some(RequestFault::MereConflict) | None => self.execute(&flight, clock_error)?,
        };
        answer.reply = self.spoiled(&flight, answer.reply);
        self.note(|| format!("  {} -> {}", shown(&flight), shown_reply(&answer.reply)));
        self.controllers[index].mail.push(Mail { flight, answer });
        Ok(())
    }

    /// Applies the defect to a response.
    fn spoiled(&self, flight: &Flight, reply: Reply) -> Reply {
        match (self.options.defect, reply) {
            (Some(Defect::NamespaceUnansweredForgotten), Reply::Failed { why, .. })
                if matches!(flight.question.ask, Ask::DeleteAll(_)) =>
            {
                Reply::Failed { why, may_be_at_work: false }
            }
            (Some(Defect::NamespaceFailureIsSuccess), Reply::Failed { .. } | Reply::Refused { .. }) => {
                match flight.question.ask {
                    Ask::List(_) => Reply::Items(Vec::new()),
                    _ => Reply::Done,
                }
            }
            (Some(Defect::NamespaceUidUnchecked), Reply::Namespace(view))
                if !flight.question.view.uid.is_empty() =>
            {
                Reply::Namespace(Box::new(View { uid: flight.question.view.uid.clone(), ..*view }))
            }
            (_, reply) => reply,
        }
    }

    /// Makes the server carry out a request, and judges its changes.
    fn execute(&mut self, flight: &Flight, clock_error: i64) -> Result<Answer, Violation> {
        self.report.requests += 1;
        // A question without a change should not change anything.
        let before = flight.question.changes().then(|| self.namespace(&flight.question.namespace)).flatten();
        let asker = Asker {
            server: &self.server,
            dead: &self.dead,
            singly: self.singly,
            clock_error,
            defect: self.options.defect,
        };
        let (reply, read) = asker.ask(flight);
        if let Ask::Finalize(_) = flight.question.ask {
            let after = self.namespace(&flight.question.namespace);
            self.judge_finalized(flight, before.as_ref(), after.as_ref())?;
        }
        let changes = self.server.changes();
        let mut deleted = 0;
        if !changes.is_empty() {
            // Everything that one request deletes was decided at once.
            let scene = self.truth.clone();
            for change in changes {
                deleted += u64::from(self.judge(flight, before.as_ref(), &scene, &change)?);
            }
        }
        Ok(Answer { reply, read, deleted, signal: Some((Signal::Answered, 1)) })
    }

    // ---- what is so ----

    /// Returns a namespace in its current state.
    fn namespace(&self, name: &str) -> Option<View> {
        let object = self.server.get(&NAMESPACE, "", name)?.ok()?;
        Some(view(object.value().ok()?, Timestamp(self.now)))
    }

    /// Returns the objects of the namespaces that come and go.
    fn contents(&self) -> impl Iterator<Item = &TrueObject> {
        self.truth.objects().filter(|object| NAMES.contains(&&*object.object.key.namespace))
    }

    fn contents_of<'a>(truth: &'a Truth, namespace: &'a str) -> impl Iterator<Item = &'a TrueObject> {
        truth.objects().filter(move |object| *object.object.key.namespace == *namespace)
    }

    fn pods_of(truth: &Truth, namespace: &str) -> usize {
        Self::contents_of(truth, namespace).filter(|object| object.kind().kind == "Pod").count()
    }

    fn absorb(&mut self) {
        for change in self.server.changes().iter().filter_map(Truth::read) {
            self.truth.apply(&change, Actor::Others);
        }
    }

    // ---- oracles ----

    /// Judges a change made by a controller's request. Returns true if it has deleted an object that was not terminating before.
    fn judge(
        &mut self,
        flight: &Flight,
        namespace: Option<&View>,
        scene: &Truth,
        change: &Change,
    ) -> Result<bool, Violation> {
        let Some(change) = Truth::read(change) else { return Ok(false) };
        self.truth.apply(&change, Actor::Collector(flight.controller));
        let TrueChange { before: Some(before), after, .. } = &change else {
            return broken("safety", format!("{} has created something", shown(flight)));
        };
        let what = before.show();
        if *before.object.key.namespace != *flight.question.namespace {
            return broken("safety", format!("{} has changed {what}", shown(flight)));
        }
        if after.as_ref().is_some_and(|after| !after.object.deletion.deleting) {
            return broken("safety", format!("{} has changed {what} and not deleted it", shown(flight)));
        }
        let is_terminating = namespace.is_some_and(|namespace| namespace.deleted_at.is_some());
        if !is_terminating {
            return broken("safety", format!("{what} was deleted, and its namespace lives"));
        }
        if before.kind().kind != "Pod" && Self::pods_of(scene, &flight.question.namespace) > 0 {
            return broken("namespaces", format!("{what} was deleted while there were pods"));
        }
        if after.is_none() {
            self.report.collected += 1;
        }
        Ok(!before.object.deletion.deleting)
    }

    /// Judges a request that has removed the token, or tried to.
    fn judge_finalized(
        &mut self,
        flight: &Flight,
        before: Option<&View>,
        after: Option<&View>,
    ) -> Result<(), Violation> {
        let has_token = |view: &View| view.finalizers.iter().any(|finalizer| finalizer == "kubernetes");
        let Some(before) = before.filter(|view| has_token(view)) else { return Ok(()) };
        if after.is_some_and(|after| after.uid == before.uid && has_token(after)) {
            return Ok(());
        }
        self.report.note_happened("namespaces finalized");
        if before.uid != flight.question.view.uid {
            return broken("safety", format!("{} met another namespace of that name", shown(flight)));
        }
        if let Some(left) = Self::contents_of(&self.truth, &flight.question.namespace).next() {
            return broken("safety", format!("{} although there is {}", shown(flight), left.show()));
        }
        Ok(())
    }

    /// Checks that the status of a namespace names everything that keeps it.
    fn judge_statuses(&self) -> Result<(), Violation> {
        for name in NAMES {
            let Some(view) = self.namespace(name).filter(|view| view.deleted_at.is_some()) else { continue };
            if !view.finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
                continue;
            }
            let left = Self::contents_of(&self.truth, name).count();
            let said = view.conditions.iter().find(|found| found.kind == "NamespaceContentRemaining");
            let counted: usize = said.map_or(0, |said| {
                let numbers = said.message.split(" has ").skip(1).filter_map(|rest| rest.split(' ').next());
                numbers.filter_map(|number| number.parse::<usize>().ok()).sum()
            });
            // If pods block it, nothing else was checked.
            let pods = Self::pods_of(&self.truth, name);
            let expected = if pods > 0 { pods } else { left };
            if counted != expected || left == 0 {
                let text = said.map(|said| said.message.clone()).unwrap_or_default();
                return broken("namespaces", format!("Namespace/{name} holds {expected}, and says {text:?}"));
            }
        }
        Ok(())
    }

    fn judge_rest(&self) -> Result<(), Violation> {
        if let Some(name) = self.terminating().first() {
            let left: Vec<String> = Self::contents_of(&self.truth, name).map(TrueObject::show).collect();
            return broken("liveness", format!("Namespace/{name} is still terminating, with {left:?}"));
        }
        for controller in &self.controllers {
            let (remembered, waiting) = controller.burden();
            if remembered > 0 || waiting > 0 {
                let what =
                    format!("{remembered} namespaces are remembered, {waiting} wait, and none terminates");
                return broken("bounds", what);
            }
        }
        Ok(())
    }

    // ---- rest ----

    fn calm(&mut self) -> Result<(), Violation> {
        self.dead.clear();
        for flight in std::mem::take(&mut self.adrift) {
            self.arrive_late(&flight)?;
        }
        while self.controllers.len() > 1 {
            self.controllers.remove(0);
        }
        let controller = self.controllers[0].number;
        self.controllers[0].paused = false;
        self.controllers[0].deposed = false;
        self.order(Orders::default(), "orders ended");
        self.flights.retain(|flight| flight.controller == controller);
        let kind = &KINDS[kind_index("Widget")];
        self.keep_house();
        if !self.server.serves(kind) {
            self.server.define(kind);
        }
        self.keep_house();
        self.list_all();
        Ok(())
    }

    fn release_all(&mut self) {
        for target in self.truth.clone().objects().filter(|object| object.object.deletion.foreign_finalizers)
        {
            clients::release(&self.server, target, false);
        }
        for name in NAMES {
            let _ = self.server.merge(&NAMESPACE, "", name, json!({"metadata": {"finalizers": []}}));
        }
        self.absorb();
    }

    /// Delivers everything in flight, and lets this much time pass.
    fn rest(&mut self, milliseconds: i64) -> Result<(), Violation> {
        let end = self.now + milliseconds;
        let mut random = Random::new(self.story.seed);
        for _ in 0..REST_ROUNDS {
            self.resume_breakers();
            let mut any = self.ask(0, usize::MAX)?;
            for flight in std::mem::take(&mut self.flights) {
                self.serve(flight, None, &mut random)?;
                any = true;
            }
            while !self.controllers[0].mail.is_empty() {
                self.deliver(0, 0);
                any = true;
            }
            self.keep_house();
            if any {
                continue;
            }
            match self.controllers[0].next_wakeup(self.now).filter(|at| *at <= end) {
                Some(at) => self.pass((at - self.now).max(0)),
                None => {
                    self.pass(end - self.now);
                    return Ok(());
                }
            }
        }
        broken("liveness", format!("no rest after {REST_ROUNDS} rounds"))
    }
}
