//! A graph in this process must answer like the lists of a server.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gc_embedded::apiserver::{self, ServerOptions};
use gc_explain::{GroupResource, Survey};
use gc_inspect::answering;
use gc_inspect::attached::{Form, Query, QueryRequest};
use gc_inspect::gather::{self, Gatherer, Scope};
use gc_inspect::resident::*;
use gc_inspect::subject::Subject;
use gc_inspect::view::View;
use gc_kube::ApiClient;
use gc_process::preflight;
use gc_types::{ObjectKey, ObservedObject, ResourceId, Timestamp};
use http::Method;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);
/// Number of objects with a finalizer, one more than are read singly.
const HELD: usize = READ_SINGLY + 1;

/// The graph of a survey under other numbers, as far as it knows these resources.
struct Graph(Survey, &'static [&'static str]);

impl Resident for Graph {
    fn contents(&self, fits: &dyn Fn(&GroupResource, &str) -> bool) -> Contents {
        let Self(survey, known) = self;
        let of = |id: ResourceId| {
            let name = survey.catalog.get(id)?.name.clone();
            known.contains(&&*name.to_string()).then_some(name)
        };
        let renumbered = |id: ResourceId| ResourceId(id.0 + 1_000);
        let all = survey.catalog.all().iter();
        let resources = all.filter_map(|one| Some((renumbered(one.id), of(one.id)?))).collect();
        let is_wanted = |key: &ObjectKey| of(key.resource).is_some_and(|name| fits(&name, &key.namespace));
        let mut objects = survey.engine.observed_objects(is_wanted);
        for object in &mut objects {
            object.key.resource = renumbered(object.key.resource);
        }
        Contents { resources, objects }
    }
}

/// Formats a view: every object with its state, and the stuck ones.
fn shown(view: &View) -> (Vec<String>, Vec<Value>, Vec<String>) {
    let objects = view.survey.engine.select(|_| true).into_iter();
    let objects = objects
        .map(|view| format!("{} {} {} {:?}", view.kind, view.name, view.resource_version, view.deletion));
    // Messages contain ages.
    let stuck = view.stuck.iter().map(|row| {
        let value = row.value(Timestamp(0));
        json!([value["code"], value["subject"], value["since"], value["objects"], value["waiting"]])
    });
    let finalizers = view.survey.terminating().keys().map(|key| key.name.to_string());
    (objects.collect(), stuck.collect(), finalizers.collect())
}

/// A view with a graph must equal the view without it, and list only what the graph does not know.
#[tokio::test]
async fn what_is_known_is_not_listed() {
    let options = ServerOptions::in_process();
    let server = apiserver::serve(&options, None).await.unwrap();
    let (way, asked) = (server.in_process("tester"), Arc::<Mutex<Vec<String>>>::default());
    let log = Arc::clone(&asked);
    let client = ApiClient::in_process(move |request: http::Request<_>| {
        let line = format!("{} {}", request.method(), request.uri().path());
        log.lock().unwrap().push(line);
        way.call(request)
    });
    let send = async |method: Method, path: &str, body: &Value| {
        let answer = client.call(preflight::request(method, path, Some(body))).await.unwrap();
        let value: Value = serde_json::from_slice(&answer.body).unwrap();
        assert!(answer.head.status.is_success(), "{path}: {value}");
        value
    };
    let maps = "/api/v1/namespaces/default/configmaps";
    let secrets = "/api/v1/namespaces/default/secrets";
    let owner = send(Method::POST, maps, &json!({"metadata": {"name": "owner"}})).await;
    let reference =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    let held = json!(["acme.io/hold"]);
    for name in ["a", "b"] {
        let metadata = json!({"name": name, "ownerReferences": reference});
        send(Method::POST, maps, &json!({"metadata": metadata})).await;
    }
    send(Method::POST, maps, &json!({"metadata": {"name": "held", "finalizers": held}})).await;
    send(Method::DELETE, &format!("{maps}/held"), &json!({})).await;
    for number in 0..HELD {
        let metadata = json!({"name": format!("held-{number}"), "finalizers": held});
        send(Method::POST, secrets, &json!({"metadata": metadata})).await;
    }
    let gatherer = Gatherer::new(client.clone(), gather::now()).await.unwrap();
    let survey = gatherer.survey(&Scope::default(), PATIENCE).await.unwrap();
    let all: Vec<_> = gatherer.catalog.all().iter().filter(|one| one.is_collectable()).cloned().collect();
    let graph: Arc<dyn Resident> = Arc::new(Graph(survey, &["configmaps", "secrets", "services"]));
    for (namespace, listed_elsewhere) in [("", ""), ("default", "/namespaces/default")] {
        let inside = |one: &gc_explain::Resource| namespace.is_empty() || one.is_namespaced();
        let resources: Vec<_> = all.iter().filter(|one| inside(one)).cloned().collect();
        let lists: Lists = vec![(namespace.to_owned(), resources)];
        let take = |resident| {
            View::take(client.clone(), lists.clone(), gather::now(), PATIENCE, &|_| false, resident)
        };
        let plain = take(None).await.unwrap();
        asked.lock().unwrap().clear();
        let beside = take(Some(Arc::clone(&graph))).await.unwrap();
        let requests = asked.lock().unwrap().clone();
        assert_eq!(shown(&beside), shown(&plain), "{namespace:?}");
        let is_listed =
            |resource: &str| requests.contains(&format!("GET /api/v1{listed_elsewhere}/{resource}"));
        assert_eq!(
            ["configmaps", "services", "secrets", "pods"].map(is_listed),
            [false, false, true, true],
            "{requests:?}"
        );
        assert!(requests.contains(&format!("GET {maps}/held")), "{requests:?}");
    }
    let object = |name: &str| Subject {
        resource: "configmaps".to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    };
    let plan = |objects| Query::Plan { objects, policy: "background".to_owned(), full: true };
    let namespace = Subject { resource: "ns".into(), namespace: String::new(), name: "default".into() };
    let questions = [
        Query::Stuck { namespace: String::new(), at_least: "0s".to_owned() },
        Query::Stuck { namespace: "default".to_owned(), at_least: "0s".to_owned() },
        Query::Doctor { namespace: String::new() },
        Query::Doctor { namespace: "default".to_owned() },
        Query::Tree {
            objects: vec![object("owner"), object("held")],
            owners: false,
            depth: None,
            full: false,
        },
        Query::Tree { objects: vec![object("a")], owners: true, depth: None, full: false },
        plan(vec![object("owner")]),
        plan(vec![namespace.clone()]),
        Query::Why { objects: vec![object("a"), object("held"), namespace] },
    ];
    let everything: Lists = vec![(String::new(), all.clone())];
    let now = gather::now();
    for question in questions {
        for form in [Form::Value, Form::Text, Form::Wide, Form::Names, Form::Graph] {
            let inquiry = || QueryRequest { form, question: question.clone() };
            let plain = Gatherer::new(client.clone(), now).await.unwrap();
            let listed = answering::answer(&plain, inquiry(), PATIENCE).await.unwrap();
            let permitted: Arc<dyn Resident> = Arc::new(PermittedGraph::new(Arc::clone(&graph), &everything));
            let beside = Gatherer::new(client.clone(), now).await.unwrap().beside(Some(permitted));
            asked.lock().unwrap().clear();
            let known = answering::answer(&beside, inquiry(), PATIENCE).await.unwrap();
            assert_eq!(known, listed, "{question:?}");
            let has_listed = asked.lock().unwrap().contains(&"GET /api/v1/configmaps".to_owned());
            assert!(!has_listed, "{question:?}");
        }
    }
    server.shutdown().await;
}

/// A server with a namespace that has many objects of all sorts, a client, and the log of its requests.
struct Shop {
    server: gc_apiserver::RunningServer,
    client: ApiClient,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Shop {
    const OBJECTS: usize = 2_000;

    /// Creates a server whose objects have this metadata.
    async fn furnished(metadata: impl Fn(usize) -> Value) -> Self {
        let options = ServerOptions::in_process();
        let server = apiserver::serve(&options, None).await.unwrap();
        let (way, asked) = (server.in_process("tester"), Arc::<Mutex<Vec<String>>>::default());
        let log = Arc::clone(&asked);
        let client = ApiClient::in_process(move |request: http::Request<_>| {
            log.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
            way.call(request)
        });
        let shop = Self { server, client, asked };
        shop.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
        for number in 0..Self::OBJECTS {
            let mut metadata = metadata(number);
            metadata["name"] = format!("map-{number:04}").into();
            shop.create("/api/v1/namespaces/shop/configmaps", &json!({"metadata": metadata})).await;
        }
        shop
    }

    async fn create(&self, path: &str, object: &Value) {
        let request = preflight::request(Method::POST, path, Some(object));
        let answer = self.client.call(request).await.unwrap();
        assert!(answer.head.status.is_success(), "{path}: {}", preflight::message(&answer));
    }

    /// Returns a gatherer beside a graph that knows everything.
    async fn beside_a_graph(&self) -> Gatherer {
        let gatherer = Gatherer::new(self.client.clone(), gather::now()).await.unwrap();
        let survey = gatherer.survey(&Scope::default(), PATIENCE).await.unwrap();
        let all = gatherer.catalog.all().iter().filter(|one| one.is_collectable());
        let names: Vec<&'static str> = all.map(|one| &*one.name.to_string().leak()).collect();
        let graph: Arc<dyn Resident> = Arc::new(Graph(survey, names.leak()));
        gatherer.beside(Some(graph))
    }

    /// Returns an answer, and the requests that it took.
    async fn answer(&self, gatherer: &Gatherer, question: Query) -> (Vec<String>, Vec<String>) {
        self.asked.lock().unwrap().clear();
        let inquiry = QueryRequest { form: Form::Text, question };
        let answer = answering::answer(gatherer, inquiry, PATIENCE).await.unwrap();
        (answer.lines_with_unseen(), self.asked.lock().unwrap().clone())
    }
}

/// The plan for a large namespace is made from the graph, including what tools recreate.
#[tokio::test]
async fn a_namespace_is_planned_from_the_graph() {
    const MAX_REQUESTS: usize = 10;
    let shop = Shop::furnished(|number| match number {
        7 => json!({"annotations": {"argocd.argoproj.io/tracking-id": "shop:/ConfigMap:shop/map-0007"}}),
        8 => json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}),
        _ => json!({}),
    })
    .await;
    let beside = shop.beside_a_graph().await;
    let namespace = Subject { resource: "ns".into(), namespace: String::new(), name: "shop".into() };
    let question = Query::Plan { objects: vec![namespace], policy: "background".into(), full: false };
    let (lines, requests) = shop.answer(&beside, question).await;
    assert!(requests.len() <= MAX_REQUESTS, "{}: {requests:#?}", requests.len());
    assert!(lines[0].starts_with("2,00"), "{lines:#?}");
    let recreated = [
        "  ConfigMap/map-0007: Argo CD application shop will recreate this",
        "  ConfigMap/map-0008: Flux Kustomization apps will recreate this",
    ];
    assert_eq!(lines.iter().filter(|line| line.contains("recreate")).collect::<Vec<_>>(), recreated);
    shop.server.shutdown().await;
}

/// References are examined in the graph: only owners that it does not know are read.
#[tokio::test]
async fn references_are_examined_in_the_graph() {
    /// One for each kind whose objects are read whole, and two for each owner that exists nowhere.
    const MAX_REQUESTS: usize = 12;
    let owner = |api_version: &str, kind: &str, name: &str, uid: &str| {
        let owner = json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid});
        json!({"ownerReferences": [owner]})
    };
    let shop = Shop::furnished(|number| match number % 1_000 {
        1 => owner("v1", "ConfigMap", "gone", "no-such-uid"),
        2 => owner("v1", "ConfigMap", "map-0000", "another-uid"),
        3 => owner("apps/v9", "Deployment", "web", "w"),
        4 => owner("acme.dev/v1", "Widget", "web", "w"),
        _ => json!({}),
    })
    .await;
    let beside = shop.beside_a_graph().await;
    let plain = Gatherer::new(shop.client.clone(), beside.now).await.unwrap();
    for namespace in ["", "shop"] {
        let question = || Query::Doctor { namespace: namespace.to_owned() };
        let (listed, _) = shop.answer(&plain, question()).await;
        let (lines, requests) = shop.answer(&beside, question()).await;
        assert_eq!(lines, listed);
        assert!(requests.len() <= MAX_REQUESTS, "{}: {requests:#?}", requests.len());
        let found: Vec<&str> = lines.iter().filter_map(|line| line.split_whitespace().next()).collect();
        for code in ["DanglingReference", "WrongUidReference", "WrongVersionReference", "UnservedOwnerKind"] {
            assert!(found.contains(&code), "{code}: {lines:#?}");
        }
    }
    shop.server.shutdown().await;
}

/// Of a graph, a user sees only what the user may list.
#[test]
fn graphs_show_what_may_be_listed() {
    struct Everything;
    impl Resident for Everything {
        fn contents(&self, fits: &dyn Fn(&GroupResource, &str) -> bool) -> Contents {
            let resources = ["configmaps", "secrets"].map(|name| GroupResource::new("", name));
            let resources: BTreeMap<ResourceId, GroupResource> =
                (0..).map(ResourceId).zip(resources).collect();
            let mut objects = Vec::new();
            for (id, resource) in &resources {
                for namespace in ["a", "b"].into_iter().filter(|namespace| fits(resource, namespace)) {
                    let key = ObjectKey { resource: *id, namespace: namespace.into(), name: "x".into() };
                    let uid = gc_types::Uid::new(&format!("{}-{namespace}", resource.resource));
                    objects.push(ObservedObject {
                        key,
                        uid,
                        resource_version: gc_types::ResourceVersion(1),
                        owners: Vec::new().into(),
                        deletion: gc_types::DeletionState::default(),
                        recreator: None,
                    });
                }
            }
            Contents { resources, objects }
        }
    }
    let catalog = gc_explain::Catalog::read(
        br#"{"items":[{"versions":[{"version":"v1","resources":[
            {"resource":"configmaps","scope":"Namespaced"},{"resource":"secrets","scope":"Namespaced"}]}]}]}"#,
        br#"{"items":[]}"#,
    )
    .unwrap();
    let [maps, secrets] = catalog.all() else { panic!("{catalog:?}") };
    let lists: Lists = vec![(String::new(), vec![maps.clone()]), ("a".to_owned(), vec![secrets.clone()])];
    let permitted = PermittedGraph::new(Arc::new(Everything), &lists);
    let shown = permitted.contents(&|_, _| true).objects;
    let shown: Vec<String> = shown.iter().map(|object| object.uid.to_string()).collect();
    assert_eq!(shown, ["configmaps-a", "configmaps-b", "secrets-a"]);
    let secrets = GroupResource::new("", "secrets");
    assert_eq!(["a", "b", ""].map(|place| permitted.permits(&secrets, place)), [true, false, false]);
}
