//! `kubegc demo`: builds a shop and plays three kinds of deletion on it.

mod shop;
mod sink;

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use gc_embedded::apiserver::ServerOptions;
use gc_embedded::clock::CollectorClock;
use gc_embedded::up::Up;
use gc_embedded::workloads::WorkloadOptions;
use gc_kube::ApiClient;
use gc_process::collectors::{ControllerOptions, Surroundings};
use gc_process::logging::{self, LogOptions};
use gc_types::Uid;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};

use shop::{ACTS, Act, Item, ORDERS};
use sink::AuditSink;

/// Maximum wait before the demonstration fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// Commands to try next.
const NEXT: [(&str, &str); 3] = [
    ("kubegc up --ephemeral", "the same server for kubectl and every other client"),
    ("kubegc up -- kubectl get namespaces", "run one command, or a test suite, against a server of its own"),
    ("kubegc doctor", "check the cluster of your kubeconfig; changes nothing"),
];

/// Options of `kubegc demo`.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Log level, such as `debug`
    #[arg(long, env = "KUBEGC_LOG", default_value = "error")]
    log_level: String,
}

/// Plays the demonstration. Fails if an end state is wrong.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    logging::start(&LogOptions::text(&options.log_level))?;
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let wrong = gc_process::tasks::block_on(async {
        let mut out = std::io::stdout().lock();
        writeln!(out, "Starting a Kubernetes API server with its collectors, in this process …")?;
        let begun = Instant::now();
        let sink = Arc::new(AuditSink::default());
        let server = ServerOptions::in_process();
        // Everything is in memory, and no kubeconfig is written, so nothing is left behind however the demonstration ends.
        let up = Up::start(
            &server,
            &ControllerOptions::default(),
            // No workload controllers: the demonstration creates the shop's pods itself.
            &WorkloadOptions::off(),
            Some(sink.clone()),
            &CollectorClock::default(),
            Surroundings::default(),
            None,
        )
        .await?;
        let service = up.server.in_process("kubegc-demo");
        let client = ApiClient::in_process(move |request| service.call(request));
        let mut stage = Stage { client, sink, paint: Paint(colours), items: Vec::new(), out, wrong: 0 };
        let played = stage.play(begun).await;
        let wrong = stage.wrong;
        drop(stage);
        up.shutdown().await;
        played.map(|()| wrong)
    })?;
    anyhow::ensure!(wrong == 0, "{wrong} end states are not as they should be");
    Ok(())
}

/// An object on the stage.
struct Actor {
    item: Item,
    uid: Uid,
}

struct Stage {
    client: ApiClient,
    sink: Arc<AuditSink>,
    paint: Paint,
    items: Vec<Actor>,
    out: std::io::StdoutLock<'static>,
    /// Number of wrong end states.
    wrong: u32,
}

impl Stage {
    async fn play(&mut self, begun: Instant) -> anyhow::Result<()> {
        writeln!(self.out, "It was ready after {}.", took(begun))?;
        self.build().await?;
        writeln!(self.out, "\n{}", self.paint.bold("The shop, by ownership"))?;
        self.print_tree(&[])?;
        let mut gone: Vec<&str> = Vec::new();
        for act in ACTS {
            self.act(act, &mut gone).await?;
        }
        writeln!(self.out, "\n{}", self.paint.bold("What is left"))?;
        self.print_tree(&gone)?;
        let verdict = if self.wrong == 0 {
            self.paint.green("Everything ended as it should.")
        } else {
            self.paint.red("Something is not as it should be; see above.")
        };
        writeln!(self.out, "\n{verdict}")?;
        writeln!(self.out, "\n{}", self.paint.bold("Next"))?;
        for (command, what) in NEXT {
            writeln!(self.out, "  {command:<44}  {}", self.paint.dim(what))?;
        }
        Ok(())
    }

    async fn build(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        for item in shop::ground() {
            self.create(&item, &BTreeMap::new()).await?;
        }
        let deadline = Instant::now() + PATIENCE;
        while self.call(Method::GET, ORDERS, None).await?.0 != 200 {
            anyhow::ensure!(Instant::now() < deadline, "the custom resource is not served");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut uids = BTreeMap::new();
        for item in shop::shop() {
            let uid = self.create(&item, &uids).await?;
            uids.insert(item.title(), (uid.clone(), api_version(&item)));
            self.items.push(Actor { item, uid: Uid::new(&uid) });
        }
        let all_seen = |sink: &AuditSink| self.items.iter().all(|actor| sink.of(&actor.uid).observed);
        anyhow::ensure!(self.sink.until(PATIENCE, all_seen).await, "the collector does not see the shop");
        let number = self.items.len();
        writeln!(
            self.out,
            "A shop of {number} objects was built, and seen by the collector, in {}.",
            took(begun)
        )?;
        Ok(())
    }

    async fn create(
        &self,
        item: &Item,
        owners: &BTreeMap<String, (String, String)>,
    ) -> anyhow::Result<String> {
        let mut object = item.content.clone();
        object["kind"] = item.kind.into();
        object["metadata"] = json!({ "name": item.name });
        if let Some(title) = item.owner {
            let (uid, api_version) = owners.get(title).context("an owner stands before what it owns")?;
            let (kind, name) = title.split_once('/').context("kind/name")?;
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }]);
        }
        let (code, body) = self.call(Method::POST, item.collection, Some(object)).await?;
        anyhow::ensure!(code == 201, "{} was not created: {}", item.title(), body["message"]);
        Ok(body["metadata"]["uid"].as_str().context("a uid")?.to_owned())
    }

    async fn act(&mut self, act: &Act, gone: &mut Vec<&'static str>) -> anyhow::Result<()> {
        writeln!(self.out, "\n{}", self.paint.bold(act.title))?;
        writeln!(self.out, "  {}", self.paint.dim(act.promise))?;
        let path = self.actor(act.deleted)?.item.path();
        let begun = Instant::now();
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": act.policy});
        let (code, body) = self.call(Method::DELETE, &path, Some(options)).await?;
        anyhow::ensure!(code < 300, "{} was not deleted: {}", act.deleted, body["message"]);
        let uids: Vec<Uid> = act
            .collected
            .iter()
            .map(|title| self.actor(title).map(|a| a.uid.clone()))
            .collect::<Result<_, _>>()?;
        let released: Vec<Uid> = act
            .released
            .iter()
            .map(|title| self.actor(title).map(|a| a.uid.clone()))
            .collect::<Result<_, _>>()?;
        // The watch may show the effect of a request before its outcome is known.
        let answered = |uid: &Uid, by_collector: bool| {
            let seen = self.sink.of(uid);
            seen.pending == 0 && (!by_collector || seen.reason.is_some())
        };
        let by_collector = |title: &str| title != act.deleted || act.policy != "Background";
        let all_gone = |sink: &AuditSink| {
            let collected = act.collected.iter().zip(&uids);
            collected
                .into_iter()
                .all(|(title, uid)| sink.of(uid).removed.is_some() && answered(uid, by_collector(title)))
                && released.iter().all(|uid| answered(uid, true))
        };
        self.sink.until(PATIENCE, all_gone).await;
        gone.extend_from_slice(act.collected);
        self.report_gone(act, &uids, begun)?;
        self.report_kept(act, gone).await?;
        let requests: u32 = uids.iter().map(|uid| self.sink.of(uid).requests).sum();
        writeln!(self.out, "  {}", self.paint.dim(&format!("requests of the collector: {requests}")))?;
        Ok(())
    }

    fn report_gone(&mut self, act: &Act, uids: &[Uid], begun: Instant) -> anyhow::Result<()> {
        let mut rows: Vec<(Option<Duration>, &str, String)> = act
            .collected
            .iter()
            .zip(uids)
            .map(|(title, uid)| {
                let seen = self.sink.of(uid);
                let after = seen.removed.map(|at| at.saturating_duration_since(begun));
                let why = match (seen.reason, *title == act.deleted) {
                    (Some(reason), _) => reason,
                    (None, true) => "we deleted it".to_owned(),
                    (None, false) => "(the collector gave no reason)".to_owned(),
                };
                (after, *title, why)
            })
            .collect();
        rows.sort_by_key(|(after, ..)| (after.is_none(), *after));
        let last = rows.last().map(|(_, title, _)| *title);
        let out_of_order = act.policy == "Foreground" && last != Some(act.deleted);
        for (after, title, why) in rows {
            match after {
                Some(after) => {
                    let (mark, time) =
                        (self.paint.green("gone"), format!("{:>7.1} ms", after.as_secs_f64() * 1e3));
                    writeln!(self.out, "  {mark}  {time}  {title:<30}  {why}")?;
                }
                None => {
                    self.wrong += 1;
                    let mark = self.paint.red("STILL THERE");
                    writeln!(self.out, "  {mark}  {title}")?;
                }
            }
        }
        if out_of_order {
            self.wrong += 1;
            writeln!(self.out, "  {}  {} was not deleted last", self.paint.red("WRONG"), act.deleted)?;
        }
        Ok(())
    }

    /// Reads every object that should still exist from the store.
    async fn report_kept(&mut self, act: &Act, gone: &[&str]) -> anyhow::Result<()> {
        let mut kept = 0;
        let mut lines = Vec::new();
        for actor in &self.items {
            let title = actor.item.title();
            let (code, body) = self.call(Method::GET, &actor.item.path(), None).await?;
            let is_gone = gone.contains(&title.as_str());
            if is_gone != (code == 404) {
                self.wrong += 1;
                let text = if is_gone { "is still there" } else { "is not there any more" };
                lines.push(format!("  {}  {title} {text}", self.paint.red("WRONG")));
            } else if act.released.contains(&title.as_str()) {
                let owners = body["metadata"]["ownerReferences"].as_array().map_or(0, Vec::len);
                let why = self.sink.of(&actor.uid).reason.unwrap_or_default();
                let mark = if owners == 0 { self.paint.yellow("kept") } else { self.paint.red("WRONG") };
                self.wrong += u32::from(owners != 0);
                lines.push(format!("  {mark}  {:>10}  {title:<30}  {why}; owners left: {owners}", ""));
            } else if !is_gone {
                kept += 1;
            }
        }
        for line in lines {
            writeln!(self.out, "{line}")?;
        }
        let mark = self.paint.yellow("kept");
        writeln!(
            self.out,
            "  {mark}  {:>10}  {:<30}  nothing that they refer to is gone",
            "",
            format!("{kept} other objects")
        )?;
        Ok(())
    }

    fn actor(&self, title: &str) -> anyhow::Result<&Actor> {
        let found = self.items.iter().find(|actor| actor.item.title() == title);
        found.with_context(|| format!("{title} is not on the stage"))
    }

    /// Prints the objects that are left; those that lost their owner are at the top level.
    fn print_tree(&mut self, gone: &[&str]) -> std::io::Result<()> {
        let mut children: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
        let is_gone = |title: &str| gone.contains(&title);
        for actor in self.items.iter().filter(|actor| !is_gone(&actor.item.title())) {
            let owner = actor.item.owner.filter(|owner| !is_gone(owner)).map(str::to_owned);
            children.entry(owner).or_default().push(actor.item.title());
        }
        let mut lines = Vec::new();
        for root in children.get(&None).cloned().unwrap_or_default() {
            lines.push(format!("  {root}"));
            branches(&children, &root, "  ", &mut lines);
        }
        for line in lines {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> anyhow::Result<(u16, Value)> {
        let bytes = body.map(|value| Bytes::from(value.to_string())).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(bytes))?;
        let answer = self.client.call(request).await?;
        Ok((answer.head.status.as_u16(), serde_json::from_slice(&answer.body).unwrap_or_default()))
    }
}

fn branches(
    children: &BTreeMap<Option<String>, Vec<String>>,
    owner: &str,
    indent: &str,
    lines: &mut Vec<String>,
) {
    let owned = children.get(&Some(owner.to_owned())).map_or(&[][..], Vec::as_slice);
    for (index, title) in owned.iter().enumerate() {
        let last = index + 1 == owned.len();
        lines.push(format!("{indent}{} {title}", if last { "└─" } else { "├─" }));
        branches(children, title, &format!("{indent}{}  ", if last { " " } else { "│" }), lines);
    }
}

fn api_version(item: &Item) -> String {
    item.content["apiVersion"].as_str().unwrap_or_default().to_owned()
}

fn took(begun: Instant) -> String {
    format!("{:.0} ms", begun.elapsed().as_secs_f64() * 1e3)
}

/// Colours output on a terminal, and only there.
#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn with(self, code: u8, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.with(1, text)
    }

    fn dim(self, text: &str) -> String {
        self.with(2, text)
    }

    fn red(self, text: &str) -> String {
        self.with(31, text)
    }

    fn green(self, text: &str) -> String {
        self.with(32, text)
    }

    fn yellow(self, text: &str) -> String {
        self.with(33, text)
    }
}
