//! Annotations on objects that an aggregated API server serves: no rule checks whether their writers may delete.

use gc_apiserver::{AccessConfig, RequestHeaders};
use gc_collectors::expiry::ExpiryEngine;
use gc_kube::{CollectorOptions, MetadataCollector};

use super::*;

const GROUP: &str = "aggregated.example.com";
const WIDGETS: &str = "/apis/aggregated.example.com/v1/namespaces/default/widgets";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// Starts a server with a custom kind, and makes another one serve that kind as an aggregated API.
async fn aggregate(world: &World) -> World {
    let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let (_, authentication) = world.get(map).await;
    let authority = authentication["data"]["requestheader-client-ca-file"].as_str().unwrap();
    let request_headers = RequestHeaders {
        authorities: authority.as_bytes().to_vec(),
        user: vec!["X-Remote-User".to_owned()],
        groups: vec!["X-Remote-Group".to_owned()],
        ..RequestHeaders::default()
    };
    let access = AccessConfig { request_headers: Some(request_headers), ..AccessConfig::default() };
    let behind =
        World::start_as(ServerConfig { access, ..ServerConfig::at("127.0.0.1:0".parse().unwrap()) }).await;
    let definition = json!({
        "metadata": {"name": format!("widgets.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    behind.create(DEFINITIONS, definition).await;
    behind.until("the kind", WIDGETS, |code, _| code == 200).await;
    let service = json!({"metadata": {"name": "backend"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    world.create("/api/v1/namespaces/default/services", service).await;
    let api_service = json!({
        "metadata": {"name": format!("v1.{GROUP}")},
        "spec": {
            "group": GROUP, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "insecureSkipTLSVerify": true,
            "service": {"namespace": "default", "name": "backend", "port": behind.server.address().unwrap().port()},
        },
    });
    world.create(SERVICES, api_service).await;
    world.until("the aggregated API", WIDGETS, |code, _| code == 200).await;
    behind
}

#[tokio::test]
async fn annotations_on_what_an_aggregated_server_serves_count_only_where_its_group_is_named() {
    let world = World::start().await;
    let _behind = aggregate(&world).await;
    let annotated = |api_version: &str, kind: &str, name: &str| {
        json!({"apiVersion": api_version, "kind": kind,
            "metadata": {"name": name, "annotations": {"kubegc.io/ttl": "24h"}}})
    };
    world.create(WIDGETS, annotated(&format!("{GROUP}/v1"), "Widget", "a")).await;
    world.create(CONFIG_MAPS, annotated("v1", "ConfigMap", "own")).await;
    world.pass(25 * HOUR);
    for groups in [Vec::new(), vec![GROUP.to_owned()]] {
        let admin = world.admin.clone();
        let collector = MetadataCollector::new(admin, CollectorOptions::default())
            .named(Controller::Expiry.name())
            .with_clock(world.clock());
        let engine = ExpiryEngine::default().with_aggregated(&groups);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let work = tokio::spawn(async move {
            let observer: Arc<dyn Observer> = Arc::<Recorder>::default();
            drop(collector.run(engine, observer, async { drop(stopped.await) }).await);
        });
        if groups.is_empty() {
            world.until_events("a", &["Warning InvalidRetentionAnnotation expiry-controller"]).await;
            world.until_gone(&format!("{CONFIG_MAPS}/own")).await;
            assert_eq!(world.get(&format!("{WIDGETS}/a")).await.0, 200);
        } else {
            world.until_gone(&format!("{WIDGETS}/a")).await;
        }
        stop.send(()).unwrap();
        work.await.unwrap();
    }
}
