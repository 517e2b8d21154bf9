//! The built-in admission plugins of kube-apiserver, and those of kubegc, one per file.

pub(super) mod capabilities;
pub(super) mod certificates;
pub(super) mod deputies;
pub(super) mod ingress_class;
pub(super) mod limit_ranger;
pub(super) mod namespaces;
pub(super) mod nodes;
pub(super) mod owners;
pub(crate) mod plugins;
pub(super) mod pod_resize;
pub(super) mod pod_security;
pub(super) mod pods;
pub(crate) mod quota;
pub(super) mod runtime_class;
pub(super) mod service_account;
pub(super) mod storage;
