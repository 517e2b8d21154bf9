//! The embedded Kubernetes-compatible API server: HTTP over the registry.
