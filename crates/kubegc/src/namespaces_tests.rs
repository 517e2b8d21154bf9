//! Passes of the namespace controller over a server that is told what to answer.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use http::Response;

use super::*;

/// What the server has and how it fails.
#[derive(Default)]
struct World {
    /// Resources as discovery has them: group, resource.
    served: Vec<(&'static str, &'static str)>,
    /// Groups that discovery calls stale.
    stale: BTreeSet<&'static str>,
    /// Paths whose DELETE is answered with this.
    refusals: BTreeMap<String, u16>,
    /// Collections with objects that stay after their deletion: their finalizers and grace.
    stays: BTreeMap<String, (&'static str, i64)>,
    /// Status updates that are answered with a conflict before one is taken.
    conflicts: usize,
    finalizers: Vec<&'static str>,
    terminating: bool,
    log: Vec<String>,
}

type Shared = Arc<Mutex<World>>;

fn answer(world: &Shared, request: &Request<Full<Bytes>>) -> (u16, Value) {
    let mut world = world.lock().unwrap();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let group_value = |group: &str, resources: Vec<&str>, stale: bool| {
        let resources: Vec<_> = resources
            .iter()
            .map(|name| {
                json!({
                    "resource": name, "responseKind": {"group": group, "version": "v1", "kind": "Kind"},
                    "scope": "Namespaced", "verbs": ["list", "watch", "get", "delete", "deletecollection"],
                })
            })
            .collect();
        let freshness = if stale { "Stale" } else { "Current" };
        json!({"metadata": {"name": group}, "versions": [{
            "version": "v1", "freshness": freshness, "resources": if stale { Vec::new() } else { resources },
        }]})
    };
    let discovery = |core: bool| {
        let groups: BTreeSet<&str> =
            world.served.iter().map(|(group, _)| *group).filter(|group| group.is_empty() == core).collect();
        let items: Vec<_> = groups
            .into_iter()
            .map(|group| {
                let resources = world.served.iter().filter(|(of, _)| *of == group).map(|(_, name)| *name);
                group_value(group, resources.collect(), world.stale.contains(group))
            })
            .collect();
        json!({"kind": "APIGroupDiscoveryList", "items": items})
    };
    match path.as_str() {
        "/api" => return (200, discovery(true)),
        "/apis" => return (200, discovery(false)),
        _ => {}
    }
    let short = path.trim_start_matches("/api/v1/namespaces/n").trim_start_matches('/').to_owned();
    world.log.push(format!("{method} {}", if short.is_empty() { "n" } else { &short }));
    match (method, short.as_str()) {
        (Method::GET, "") => {
            let deleted = world.terminating.then(|| jiff::Timestamp::now().to_string());
            (
                200,
                json!({
                    "metadata": {"name": "n", "uid": "u", "deletionTimestamp": deleted},
                    "spec": {"finalizers": world.finalizers}, "status": {"phase": "Active"},
                }),
            )
        }
        (Method::PUT, "status") if world.conflicts > 0 => {
            world.conflicts -= 1;
            (409, json!({}))
        }
        (Method::PUT, _) => (200, json!({})),
        (Method::DELETE, collection) => match world.refusals.get(collection) {
            Some(code) => (*code, json!({"message": "refused"})),
            None => (200, json!({})),
        },
        (_, collection) => match (world.refusals.get(collection), world.stays.get(collection)) {
            (Some(404), _) => (404, json!({})),
            (_, Some((finalizer, grace))) => {
                let finalizers: Vec<_> = [*finalizer].into_iter().filter(|name| !name.is_empty()).collect();
                let item = json!({"metadata": {
                    "name": "a", "finalizers": finalizers, "deletionGracePeriodSeconds": grace,
                }});
                (200, json!({"items": [item]}))
            }
            _ => (200, json!({"items": []})),
        },
    }
}

fn controller(world: World) -> (NamespaceController, Shared) {
    let world: Shared = Arc::new(Mutex::new(world));
    let shared = Arc::clone(&world);
    let client = ApiClient::in_process(move |request| {
        let (code, body) = answer(&shared, &request);
        async move { Response::builder().status(code).body(Full::new(Bytes::from(body.to_string()))).unwrap() }
    });
    (NamespaceController::new(client, Duration::ZERO), world)
}

/// A world with a terminating namespace.
fn terminating(served: &[(&'static str, &'static str)]) -> World {
    World { served: served.to_vec(), finalizers: vec!["kubernetes"], terminating: true, ..World::default() }
}

const APPS: &str = "apis/apps/v1/namespaces/n/deployments";
const CORE: &[(&str, &str)] = &[("", "pods"), ("", "secrets"), ("apps", "deployments")];

/// One pass: how it ended, and the requests without the GETs of the namespace itself.
async fn pass(controller: &NamespaceController, world: &Shared) -> (String, Vec<String>) {
    let end = match controller.pass("n").await.unwrap() {
        PassEnd::Done => "done".to_owned(),
        PassEnd::Again(delay) => format!("again in {} s", delay.as_secs()),
        PassEnd::Failed(_) => "failed".to_owned(),
    };
    let log = std::mem::take(&mut world.lock().unwrap().log);
    // Discovery asks which groups have a store of their own.
    let aside = |line: &&String| *line != "GET n" && !line.ends_with("/apiservices");
    (end, log.iter().filter(aside).cloned().collect())
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[tokio::test]
async fn the_scenarios_of_a_pass() {
    let with = |change: &dyn Fn(&mut World)| {
        let mut world = terminating(CORE);
        change(&mut world);
        world
    };
    let stays = |name: &str, finalizer: &'static str, grace: i64| {
        let name = name.to_owned();
        move |world: &mut World| {
            world.stays.insert(name.clone(), (finalizer, grace));
        }
    };
    let refused = |name: &str, code: u16| {
        let name = name.to_owned();
        move |world: &mut World| {
            world.refusals.insert(name.clone(), code);
        }
    };
    let all = &[
        "DELETE apis/apps/v1/namespaces/n/deployments",
        "DELETE pods",
        "DELETE secrets",
        "GET apis/apps/v1/namespaces/n/deployments",
        "GET pods",
        "GET secrets",
    ][..];
    for (scenario, world, end, requests, finalized) in [
        ("NS-T02", with(&|_| ()), "done", all, true),
        ("NS-T03", with(&|world| world.finalizers.clear()), "done", &[], false),
        (
            "NS-T04",
            with(&|world| {
                world.finalizers.clear();
                world.stale.insert("apps");
            }),
            "done",
            &[],
            false,
        ),
        (
            "NS-T05",
            with(&|world| {
                world.stale.insert("apps");
            }),
            "failed",
            &["DELETE pods", "DELETE secrets", "GET pods", "GET secrets"],
            false,
        ),
        ("NS-T06", with(&|world| world.terminating = false), "done", &[], false),
        ("NS-T08", with(&refused(APPS, 404)), "done", all, true),
        (
            "NS-T12",
            with(&stays("pods", "example.com/hold", 0)),
            "again in 8 s",
            &["DELETE pods", "GET pods"],
            false,
        ),
        ("NS-T14", with(&stays("pods", "", 30)), "again in 16 s", &["DELETE pods", "GET pods"], false),
        ("NS-T15", with(&stays("secrets", "example.com/hold", 0)), "again in 8 s", all, false),
        ("NS-T16", with(&stays("secrets", "", 0)), "failed", all, false),
        ("NS-T18", with(&refused("pods", 500)), "failed", &["DELETE pods"], false),
        (
            "BEAT-NS-2: pods cannot be looked for",
            with(&|world| {
                world.stale.insert("");
            }),
            "failed",
            &[],
            false,
        ),
    ] {
        let (controller, world) = controller(world);
        let (ended, log) = pass(&controller, &world).await;
        let (writes, mut rest): (Vec<_>, Vec<_>) = log.into_iter().partition(|line| line.starts_with("PUT"));
        rest.sort();
        rest.dedup();
        assert_eq!((ended.as_str(), rest), (end, lines(requests)), "{scenario}");
        assert_eq!(writes.contains(&"PUT finalize".to_owned()), finalized, "{scenario}: {writes:?}");
    }
}

/// NS-T07, and the bound that upstream's loop lacks.
#[tokio::test]
async fn a_conflict_is_retried_a_few_times() {
    for (conflicts, writes, succeeds) in [(1, 2, true), (100, CONFLICT_TRIES, false)] {
        let (controller, world) = controller(World { conflicts, ..terminating(&[]) });
        let passed = controller.pass("n").await;
        assert_eq!(passed.is_ok(), succeeds);
        let log = std::mem::take(&mut world.lock().unwrap().log);
        assert_eq!(log.iter().filter(|line| *line == "PUT status").count(), writes);
    }
}

/// NS-T20: a group that was empty here while it answered holds nothing up when it is dead; one that was not, does.
#[tokio::test]
async fn a_dead_group_that_had_nothing_here_is_not_waited_for() {
    for (had, end) in [(false, "done"), (true, "failed")] {
        let mut first = terminating(&[("", "pods"), ("", "secrets"), ("far.example.com", "things")]);
        first.stays.insert("secrets".into(), ("example.com/hold", 0));
        let things = "apis/far.example.com/v1/namespaces/n/things";
        if had {
            first.stays.insert(things.into(), ("example.com/hold", 0));
        }
        let (controller, world) = controller(first);
        assert_eq!(pass(&controller, &world).await.0, "again in 8 s");
        {
            let mut world = world.lock().unwrap();
            world.stale.insert("far.example.com");
            world.stays.remove("secrets");
        }
        assert_eq!(pass(&controller, &world).await.0, end, "it had something: {had}");
    }
}
