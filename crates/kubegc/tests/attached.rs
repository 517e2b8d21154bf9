//! `kubegc run` attached to a server over TLS, with exactly the permissions that it asks for: faults, replicas, and the manifests
//! that install it.
#![allow(clippy::unwrap_used)] // a broken assumption should stop the test

mod support;
#[path = "support/cluster.rs"]
mod support_cluster;
#[path = "support/proxy.rs"]
mod support_proxy;

#[path = "attached/answers.rs"]
mod answers;
#[path = "support/aws.rs"]
mod aws;
#[path = "attached/broken.rs"]
mod broken;
#[path = "attached/chains.rs"]
mod chains;
#[path = "attached/chart.rs"]
mod chart;
#[path = "attached/consent.rs"]
mod consent;
#[path = "attached/faults.rs"]
mod faults;
#[path = "attached/identity.rs"]
mod identity;
#[path = "attached/image.rs"]
mod image;
#[path = "attached/leader.rs"]
mod leader;
#[path = "attached/liars.rs"]
mod liars;
#[path = "attached/manifests.rs"]
mod manifests;
#[path = "attached/mcp.rs"]
mod mcp;
#[path = "attached/messages.rs"]
mod messages;
#[path = "attached/orders.rs"]
mod orders;
#[path = "attached/others.rs"]
mod others;
#[path = "attached/otlp.rs"]
mod otlp;
#[path = "attached/page.rs"]
mod page;
#[path = "attached/plans.rs"]
mod plans;
#[path = "attached/recorders.rs"]
mod recorders;
#[path = "attached/recovery.rs"]
mod recovery;
#[path = "attached/refusals.rs"]
mod refusals;
#[path = "attached/replicas.rs"]
mod replicas;
#[path = "attached/shards.rs"]
mod shards;
#[path = "attached/switches.rs"]
mod switches;
#[path = "attached/undo.rs"]
mod undo;
#[path = "support/webhook.rs"]
mod webhook;
