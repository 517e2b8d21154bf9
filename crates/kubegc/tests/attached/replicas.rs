//! Two replicas: a leader that is killed, and one that is cut off.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::json;

use crate::support::{Kubegc, Signal};
use crate::support_cluster::{Admin, LEASE, QUICK_LEASE, Run, kubegc, least_privileged, until};
use crate::support_proxy::{Fault, ForwardedRequest, Proxy};

const DEPENDENTS: usize = 200;
/// Default duration of a lease: a replica that takes over sooner has obeyed the flag, even on a slow machine.
const DEFAULT_LEASE: Duration = Duration::from_secs(15);

fn is_deletion(method: &Method, path: &str) -> bool {
    *method == Method::DELETE && path.contains("/configmaps/")
}

/// Two replicas, each behind its own proxy; the first leads, and knows an owner with dependents.
struct Pair {
    admin: Admin,
    proxies: [Proxy; 2],
    runs: [Run; 2],
    server: Kubegc,
}

impl Pair {
    /// Starts the replicas; the second one waits with or without a graph.
    fn start(standby: &'static str) -> Self {
        let server = Kubegc::start("apiserver");
        let admin = Admin::of(&server);
        let root = admin.map("root", None);
        for number in 0..DEPENDENTS {
            admin.map(&format!("leaf-{number}"), Some(("root", &root)));
        }
        let account = least_privileged(&server);
        let proxies = [Proxy::start(&account), Proxy::start(&account)];
        let first = Run::with(&proxies[0].kubeconfig(), &QUICK_LEASE);
        until("the first leads", || first.leads() && first.is_ready() && first.is_synced());
        let second =
            Run::with(&proxies[1].kubeconfig(), &[&QUICK_LEASE[..], &["--standby", standby]].concat());
        match standby {
            "warm" => until("the second is warm", || second.is_ready() && second.is_synced()),
            _ => until("the second is ready", || second.is_ready() && second.log().contains("standing by")),
        }
        assert!(!second.leads());
        // Deletions are slow enough to be interrupted in the middle.
        proxies[0].inject(is_deletion, Fault::Delay(Duration::from_millis(300)));
        Self { admin, proxies, runs: [first, second], server }
    }

    /// Deletes the owner, and waits until the leader has begun with its dependents.
    fn begin(&self) {
        self.admin.delete("root", "Background");
        until("the leader is at it", || self.deletions(0).iter().any(|deletion| deletion.code == Some(200)));
    }

    fn deletions(&self, replica: usize) -> Vec<ForwardedRequest> {
        let mut forwarded = self.proxies[replica].forwarded();
        forwarded.retain(|request| is_deletion(&request.method, &request.path));
        forwarded
    }

    /// Checks that the standby has done the rest, and that nothing was deleted twice.
    fn ended_well(&self, lost_at: Instant) {
        until("all dependents are gone", || {
            self.admin.get("/api/v1/namespaces/default/configmaps").1["items"].as_array().unwrap().is_empty()
        });
        let taken = self.deletions(1).first().expect("the standby had something to do").at - lost_at;
        assert!(taken < DEFAULT_LEASE, "{taken:?}");
        eprintln!("the first deletion of the standby came {taken:?} after the leader was lost");
        assert!(self.runs[1].leads());
        // The responses to a killed leader's requests are lost: the requests may have been granted.
        let mut granted: BTreeMap<String, usize> = BTreeMap::new();
        for deletion in self.deletions(0).into_iter().chain(self.deletions(1)) {
            *granted.entry(deletion.path).or_default() += usize::from(deletion.code == Some(200));
        }
        assert_eq!(granted.len(), DEPENDENTS);
        assert!(granted.values().all(|times| *times <= 1), "{granted:?}");
        assert_eq!(self.admin.get(LEASE).1["spec"]["leaseTransitions"], 1);
        assert_eq!(self.admin.refusals(403), [] as [String; 0]);
        assert!(self.server.url.starts_with("https://"));
    }
}

#[test]
fn the_standby_goes_on_where_a_killed_leader_was() {
    let mut pair = Pair::start("warm");
    pair.begin();
    let killed = Instant::now();
    pair.runs[0].signal(Signal::KILL);
    pair.runs[0].wait();
    pair.ended_well(killed);
}

#[test]
fn a_cold_standby_lists_nothing_before_it_leads() {
    let mut pair = Pair::start("cold");
    let cold = "kubegc_standby_cold 1";
    assert!(pair.runs[1].metric(cold) && pair.runs[1].metric("kubegc_graph_objects 0"));
    assert_eq!(pair.runs[1].state()["resources"], json!([]));
    pair.begin();
    // What it asked for: the server and its permissions, before it waited, and the Lease.
    let listed = |replica: usize| {
        let mut forwarded = pair.proxies[replica].forwarded();
        forwarded.retain(|request| request.path.contains("/configmaps"));
        forwarded.len()
    };
    assert_eq!((listed(0) > 0, listed(1)), (true, 0));
    let killed = Instant::now();
    pair.runs[0].signal(Signal::KILL);
    pair.runs[0].wait();
    pair.ended_well(killed);
    until("it is ready again", || pair.runs[1].is_ready() && pair.runs[1].is_synced());
    assert!(!pair.runs[1].metric(cold));
}

/// With the default flags, a lease becomes short on a server that answers quickly.
#[test]
fn a_killed_leader_is_replaced_long_before_the_longest_lease_is_over() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let mut first = Run::start(&server, &[]);
    until("the first leads", || first.leads() && first.is_ready());
    let lease = || admin.get(LEASE).1["spec"]["leaseDurationSeconds"].as_u64().unwrap();
    assert_eq!(lease(), DEFAULT_LEASE.as_secs());
    let second = Run::start(&server, &[]);
    until("its lease is short", || lease() <= 5);
    let shown = |run: &Run| {
        let name = "kubegc_lease_duration_seconds{name=\"kubegc-garbage-collector\"}";
        (1..=5).any(|seconds| run.metric(&format!("{name} {seconds}")))
    };
    until("both show it", || shown(&first) && shown(&second));
    let root = admin.map("root", None);
    admin.map("leaf", Some(("root", &root)));
    let killed = Instant::now();
    first.signal(Signal::KILL);
    first.wait();
    admin.delete("root", "Background");
    until("the standby collects", || !admin.exists("leaf"));
    eprintln!("the standby deleted its first object {:?} after the leader was killed", killed.elapsed());
    assert!(killed.elapsed() < DEFAULT_LEASE, "{:?}", killed.elapsed());
    assert!(second.leads());
}

#[test]
fn a_leader_that_is_cut_off_sends_nothing_further() {
    let mut pair = Pair::start("warm");
    pair.begin();
    let cut_off = Instant::now();
    pair.proxies[0].partition(true);
    // The leader stops by itself before another one may lead.
    until("it stands by", || pair.runs[0].log().contains("leader election lost"));
    let ended = Instant::now();
    assert!(!pair.runs[0].leads());
    let before = pair.deletions(0).len();
    pair.ended_well(cut_off);
    assert!(pair.deletions(1).iter().all(|deletion| deletion.at > ended), "both acted at the same time");
    // Requests that it had sent are not delivered after the partition either: it has given them up.
    until("nothing waits to be delivered", || pair.proxies[0].waiting_deletions() == 0);
    pair.proxies[0].partition(false);
    let (code, _, error) = kubegc(&["version"], &pair.proxies[0].kubeconfig());
    assert_eq!(code, Some(0), "requests pass again: {error}");
    let sees_holder = |line: &str| line.contains("standing by") && line.contains("holder");
    until("it sees who leads", || pair.runs[0].log().lines().any(sees_holder));
    assert_eq!(pair.deletions(0).len(), before);
    // Each may replace the other again.
    let root = pair.admin.map("root", None);
    pair.admin.map("leaf", Some(("root", &root)));
    pair.runs[1].signal(Signal::KILL);
    pair.runs[1].wait();
    pair.admin.delete("root", "Background");
    until("it leads again", || !pair.admin.exists("leaf"));
}

/// A server that cannot write, because etcd elects a leader, costs a replica its Lease and not its graph.
#[test]
fn a_leader_that_could_not_renew_leads_again_without_another_list() {
    let server = Kubegc::start("apiserver");
    let admin = Admin::of(&server);
    let proxy = Proxy::start(&least_privileged(&server));
    let run = Run::with(&proxy.kubeconfig(), &QUICK_LEASE);
    until("it leads", || run.leads() && run.is_ready() && run.is_synced());
    let root = admin.map("root", None);
    admin.map("leaf", Some(("root", &root)));
    until("it sees them", || run.page("/debug/kubegc/graph").contains(&root));
    let opened = || {
        let forwarded = proxy.forwarded();
        forwarded.iter().filter(|request| request.path.contains("/configmaps?")).count()
    };
    let before = opened();
    proxy.inject(|_, path| path.contains("/leases/"), Fault::Answer { code: 503, retry_after: None });
    until("it stands by", || run.log().contains("leader election lost"));
    assert!(!run.leads());
    admin.delete("root", "Background");
    until("it sees that", || run.metric("kubegc_graph_virtual_owners 1"));
    assert!(admin.exists("leaf"), "it acts without the lease");
    proxy.heal();
    until("it collects again", || !admin.exists("leaf"));
    assert!(run.leads());
    assert_eq!(opened(), before, "it has listed again");
}

/// A replica without a graph ends, because it would keep one from then on.
#[test]
fn a_cold_replica_that_could_not_renew_ends() {
    let server = Kubegc::start("apiserver");
    let proxy = Proxy::start(&least_privileged(&server));
    let mut run = Run::with(&proxy.kubeconfig(), &[&QUICK_LEASE[..], &["--standby=cold"]].concat());
    until("it leads", || run.leads() && run.is_ready());
    proxy.inject(|_, path| path.contains("/leases/"), Fault::Answer { code: 503, retry_after: None });
    assert_eq!(run.wait().code(), Some(1), "{}", run.log());
    until("it says why", || run.log().contains("error: leader election lost"));
}
