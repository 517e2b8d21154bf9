//! Objects that well-known controllers and distributions find without a reference: a table of labels, annotations and names.
//!
//! Rows err towards use: an object that a controller would select counts as used even if the controller is gone, because deleting
//! something that is needed does more harm than keeping it.

use serde_json::Value;

use super::Usable::{self, Claim, ConfigMap, Secret, ServiceAccount};

/// Property by which a controller finds an object. A key that ends with a slash stands for all keys of its domain.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
    /// The object has this label.
    Label(&'static str),
    /// The object has this label with this value.
    LabelValue(&'static str, &'static str),
    /// The object has this annotation.
    Annotation(&'static str),
    /// The object has this name.
    Name(&'static str),
    /// The object's name begins with this text.
    NameStart(&'static str),
    /// The object's name ends with this text.
    NameEnd(&'static str),
}

/// One row: a controller, the kinds of objects, and their mark.
type Row = (&'static str, &'static [Usable], Mark);

const DATA: &[Usable] = &[ConfigMap, Secret];

use Mark::{Annotation, Label, LabelValue, Name, NameEnd, NameStart};

/// Objects that controllers find by themselves.
pub(super) const SELECTED: &[Row] = &[
    // Kubernetes and its usual tools.
    ("Kubernetes", &[ServiceAccount], Name("default")),
    ("Kubernetes", &[ConfigMap], Name("kube-root-ca.crt")),
    ("Kubernetes", &[ConfigMap], Name("extension-apiserver-authentication")),
    ("Kubernetes", &[ConfigMap], Name("cluster-info")),
    ("Kubernetes", &[ConfigMap, Claim], Annotation("control-plane.alpha.kubernetes.io/leader")),
    ("Kubernetes", &[Secret], Annotation("kubernetes.io/service-account.name")),
    ("Kubernetes", &[Secret], NameStart("bootstrap-token-")),
    ("Kubernetes", DATA, Label("addonmanager.kubernetes.io/mode")),
    ("Kubernetes", DATA, Label("kubernetes.io/bootstrapping")),
    ("kubeadm", &[ConfigMap], Name("kubeadm-config")),
    ("kubeadm", &[ConfigMap], NameStart("kubelet-config")),
    ("kubeadm", &[Secret], Name("kubeadm-certs")),
    ("CoreDNS", &[ConfigMap], NameStart("coredns")),
    ("Cluster autoscaler", &[ConfigMap], NameStart("cluster-autoscaler-")),
    ("Helm", DATA, LabelValue("owner", "helm")),
    ("Helm", DATA, LabelValue("OWNER", "TILLER")),
    // Continuous delivery.
    ("Argo CD", DATA, Label("argocd.argoproj.io/")),
    ("Argo CD", DATA, LabelValue("app.kubernetes.io/part-of", "argocd")),
    ("Argo CD", DATA, NameStart("argocd-")),
    ("Argo Workflows", DATA, Label("workflows.argoproj.io/")),
    ("Argo Workflows", &[ConfigMap], NameStart("workflow-controller-")),
    ("Argo Workflows", &[ConfigMap], Name("artifact-repositories")),
    ("Argo Rollouts", DATA, NameStart("argo-rollouts-")),
    ("Flux", DATA, Label("reconcile.fluxcd.io/")),
    ("Flux", DATA, Label("sharding.fluxcd.io/")),
    ("Tekton", DATA, Annotation("tekton.dev/")),
    ("Tekton", DATA, LabelValue("app.kubernetes.io/part-of", "tekton-pipelines")),
    ("Tekton", DATA, LabelValue("app.kubernetes.io/part-of", "tekton-triggers")),
    ("Tekton", DATA, LabelValue("app.kubernetes.io/part-of", "tekton-chains")),
    ("Crossplane", DATA, Label("crossplane.io/")),
    ("Cluster API", DATA, Label("cluster.x-k8s.io/")),
    ("Cluster API", DATA, Label("clusterctl.cluster.x-k8s.io")),
    ("Operator Lifecycle Manager", DATA, Label("olm.")),
    ("Operator Lifecycle Manager", &[ConfigMap, Secret, ServiceAccount], Label("olm.managed")),
    ("Operator Lifecycle Manager", &[ConfigMap, Secret, ServiceAccount], Label("olm.owner")),
    // Certificates and secrets.
    ("cert-manager", DATA, Label("cert-manager.io/next-private-key")),
    ("cert-manager", DATA, Label("controller.cert-manager.io/fao")),
    ("cert-manager", DATA, Label("acme.cert-manager.io/")),
    ("cert-manager", DATA, Annotation("cert-manager.io/allow-direct-injection")),
    ("cert-manager", &[Secret], LabelValue("app.kubernetes.io/managed-by", "cert-manager-webhook")),
    ("cert-manager", &[Secret], Name("cert-manager-webhook-ca")),
    ("trust-manager", DATA, Label("trust.cert-manager.io/bundle")),
    ("external-secrets", DATA, Label("reconcile.external-secrets.io/")),
    ("external-secrets", DATA, Label("external-secrets.io/")),
    ("external-secrets", DATA, Label("generators.external-secrets.io/")),
    ("sealed-secrets", &[Secret], Label("sealedsecrets.bitnami.com/sealed-secrets-key")),
    ("sealed-secrets", &[Secret], Annotation("sealedsecrets.bitnami.com/")),
    ("Secrets Store CSI driver", &[Secret], Label("secrets-store.csi.k8s.io/")),
    ("Vault", DATA, Label("vault.hashicorp.com/")),
    ("Vault", DATA, Annotation("vault.hashicorp.com/")),
    ("Vault secrets operator", DATA, LabelValue("app.kubernetes.io/managed-by", "hashicorp-vso")),
    ("Reflector", DATA, Annotation("reflector.v1.k8s.emberstack.com/")),
    ("Kubernetes replicator", DATA, Annotation("replicator.v1.mittwald.de/")),
    ("Config Syncer", DATA, Annotation("kubed.appscode.com/")),
    ("Reloader", DATA, Annotation("reloader.stakater.com/")),
    // Monitoring.
    ("Grafana", DATA, Label("grafana_dashboard")),
    ("Grafana", DATA, Label("grafana_datasource")),
    ("Grafana", DATA, Label("grafana_alert")),
    ("Grafana", DATA, Label("grafana_notifier")),
    ("Grafana", DATA, Label("grafana_plugin")),
    ("Grafana", DATA, Annotation("grafana_folder")),
    ("Grafana", DATA, Annotation("k8s-sidecar-target-directory")),
    ("OpenShift console", &[ConfigMap], Label("console.openshift.io/")),
    ("Loki", DATA, Label("loki_rule")),
    ("Mimir", DATA, Label("mimir_rule")),
    ("Prometheus operator", DATA, LabelValue("managed-by", "prometheus-operator")),
    ("Prometheus operator", DATA, Label("operator.prometheus.io/")),
    ("Prometheus operator", DATA, Label("thanos-ruler-name")),
    ("Prometheus operator", DATA, Label("prometheus-name")),
    ("Jenkins", DATA, Label("jenkins.io/")),
    // Networks.
    ("ingress-nginx", &[ConfigMap], Name("ingress-nginx-controller")),
    ("ingress-nginx", &[ConfigMap], NameStart("ingress-controller-leader")),
    ("ingress-nginx", &[ConfigMap], Name("tcp-services")),
    ("ingress-nginx", &[ConfigMap], Name("udp-services")),
    ("ingress-nginx", &[Secret], Name("ingress-nginx-admission")),
    ("Istio", DATA, Label("istio.io/")),
    ("Istio", DATA, Label("topology.istio.io/")),
    ("Istio", DATA, Annotation("networking.istio.io/")),
    ("Istio", DATA, Label("istio/multiCluster")),
    ("Istio", &[ConfigMap], NameStart("istio")),
    ("Istio", &[Secret], NameStart("istio")),
    ("Istio", &[Secret], Name("cacerts")),
    ("Linkerd", DATA, Label("linkerd.io/")),
    ("Linkerd", DATA, Label("multicluster.linkerd.io/")),
    ("Linkerd", DATA, Label("mirror.linkerd.io/")),
    ("Linkerd", DATA, NameStart("linkerd-")),
    ("Traefik", DATA, Label("traefik.io/")),
    ("Traefik", DATA, Label("traefik.ingress.kubernetes.io/")),
    ("Traefik", &[Secret], Annotation("traefik.io/")),
    ("Contour", &[ConfigMap], Name("contour")),
    ("Contour", &[Secret], Name("contourcert")),
    ("Contour", &[Secret], Name("envoycert")),
    ("Contour", DATA, Label("projectcontour.io/")),
    ("Contour", &[Secret], Annotation("projectcontour.io/")),
    ("Kong", DATA, Label("konghq.com/")),
    ("Emissary", DATA, Label("getambassador.io/")),
    ("Emissary", DATA, Annotation("getambassador.io/")),
    ("HAProxy", DATA, Annotation("haproxy.org/")),
    ("Cilium", DATA, NameStart("cilium-")),
    ("Cilium", &[Secret], NameStart("hubble-")),
    ("Calico", DATA, Label("operator.tigera.io/")),
    ("MetalLB", DATA, Label("metallb.universe.tf/")),
    ("MetalLB", &[Secret], NameEnd("metallb-memberlist")),
    ("Consul", DATA, LabelValue("managed-by", "consul-k8s")),
    ("Knative", DATA, Label("knative.dev/")),
    ("Knative", DATA, Label("app.knative.dev/")),
    ("Knative", DATA, Label("networking.knative.dev/")),
    ("Knative", DATA, Label("networking.internal.knative.dev/")),
    ("Knative", &[ConfigMap], LabelValue("app.kubernetes.io/name", "knative-serving")),
    ("Knative", &[ConfigMap], LabelValue("app.kubernetes.io/name", "knative-eventing")),
    // Backups and policies.
    ("Velero", DATA, Label("velero.io/")),
    ("Velero", DATA, LabelValue("component", "velero")),
    ("Velero", &[Secret], Name("velero-repo-credentials")),
    ("Velero", &[Secret], Name("velero-restic-credentials")),
    ("Kyverno", DATA, Label("kyverno.io/")),
    ("Kyverno", DATA, Label("cache.kyverno.io/enabled")),
    ("Kyverno", DATA, LabelValue("app.kubernetes.io/part-of", "kyverno")),
    ("Kyverno", DATA, Label("generate.kyverno.io/")),
    ("Kyverno", &[Secret], NameEnd(".kyverno-tls-ca")),
    ("Kyverno", &[Secret], NameEnd(".kyverno-tls-pair")),
    ("Gatekeeper", DATA, Label("gatekeeper.sh/")),
    // Data.
    ("CloudNativePG", DATA, Label("cnpg.io/")),
    ("Zalando's Postgres operator", DATA, LabelValue("application", "spilo")),
    ("Zalando's Postgres operator", &[Secret], NameEnd(".credentials.postgresql.acid.zalan.do")),
    ("Crunchy's Postgres operator", DATA, Label("postgres-operator.crunchydata.com/")),
    ("Patroni", &[ConfigMap], Annotation("leader")),
    ("Strimzi", DATA, Label("strimzi.io/")),
    ("Elastic's operator", DATA, Label("common.k8s.elastic.co/")),
    ("Elastic's operator", DATA, Label("elasticsearch.k8s.elastic.co/")),
    ("Rook", DATA, Label("ceph.rook.io/")),
    ("Rook", DATA, NameStart("rook-ceph-")),
    ("Longhorn", DATA, Label("longhorn.io/")),
    ("Longhorn", &[ConfigMap], NameStart("longhorn-")),
    ("RabbitMQ's operator", DATA, Label("rabbitmq.com/")),
    ("MongoDB's operator", DATA, Label("mongodb.com/")),
    // Claims of users whose pods come and go.
    ("JupyterHub", &[Claim], Annotation("hub.jupyter.org/")),
    ("JupyterHub", &[Claim], Label("hub.jupyter.org/")),
    ("Coder", &[Claim, ConfigMap, Secret], Label("com.coder.")),
    ("Eclipse Che", &[Claim, ConfigMap, Secret], Label("controller.devfile.io/")),
    // Distributions.
    ("EKS", &[ConfigMap], Name("aws-auth")),
    ("EKS", &[ConfigMap], Name("aws-logging")),
    ("EKS", &[ConfigMap], NameStart("amazon-vpc-")),
    ("EKS", &[ConfigMap], Label("k8s.aws/")),
    ("EKS", &[ConfigMap], Name("kube-proxy")),
    ("EKS", &[ConfigMap], NameStart("kube-proxy-")),
    // Their tokens may be used from outside the cluster, or by pods that come and go.
    ("EKS", &[ServiceAccount], Annotation("eks.amazonaws.com/")),
    ("GKE", &[ServiceAccount], Annotation("iam.gke.io/")),
    ("AKS", &[ServiceAccount], Annotation("azure.workload.identity/")),
    ("GKE", &[ConfigMap], NameStart("gke-")),
    ("GKE", &[ConfigMap], NameStart("kubedns-config")),
    ("GKE", &[ConfigMap], NameStart("kube-dns")),
    ("GKE", &[ConfigMap], NameStart("ingress-uid")),
    ("GKE", &[ConfigMap], NameStart("clustermetrics")),
    ("GKE", &[ConfigMap], Name("core-metrics-exporter-conf")),
    ("GKE", &[ConfigMap], NameStart("fluentbit-gke-")),
    ("GKE", DATA, Label("components.gke.io/")),
    ("GKE", DATA, Label("addonmanager.gke.io/")),
    ("GKE", DATA, Annotation("components.gke.io/")),
    ("Anthos", DATA, Label("configmanagement.gke.io/")),
    ("AKS", DATA, Label("kubernetes.azure.com/")),
    ("AKS", &[ConfigMap], NameStart("azure-")),
    ("AKS", &[ConfigMap], NameStart("ama-")),
    ("AKS", &[ConfigMap], NameStart("container-azm-ms-")),
    ("AKS", &[ConfigMap], Name("overlay-upgrade-data")),
    ("AKS", &[ConfigMap], Name("omsagent-rs-config")),
    ("AKS", &[Secret], NameStart("omsagent-")),
    ("AKS", &[Secret], NameStart("konnectivity-")),
    ("AKS", &[Secret], NameStart("tunnelend")),
    ("OpenShift", &[ConfigMap], Name("openshift-service-ca.crt")),
    ("OpenShift", DATA, Label("config.openshift.io/")),
    ("OpenShift", DATA, Label("auth.openshift.io/")),
    ("OpenShift", DATA, Annotation("openshift.io/owning-component")),
    ("OpenShift", DATA, Annotation("service.beta.openshift.io/")),
    ("OpenShift", DATA, Annotation("service.alpha.openshift.io/")),
    ("OpenShift", &[ConfigMap], Annotation("config.openshift.io/")),
    ("OpenShift", &[Secret], Annotation("openshift.io/internal-registry-auth-token.service-account")),
    ("OpenShift", &[Secret], Annotation("openshift.io/token-secret.name")),
    ("OpenShift", &[ServiceAccount], Name("builder")),
    ("OpenShift", &[ServiceAccount], Name("deployer")),
    ("OpenShift", &[ServiceAccount], Name("pipeline")),
    ("k3s", DATA, Label("objectset.rio.cattle.io/")),
    ("k3s", DATA, Label("k3s.cattle.io/")),
    ("k3s", &[Secret], Name("k3s-serving")),
    ("k3s", &[Secret], NameEnd(".node-password.k3s")),
    ("k3s", &[ConfigMap], Name("local-path-config")),
    ("k3s", &[ConfigMap], NameStart("chart-content-")),
    ("k3s", &[ConfigMap], Name("cluster-dns")),
    ("Rancher", DATA, Label("cattle.io/")),
    ("Rancher", DATA, Label("fleet.cattle.io/")),
    ("Rancher", DATA, Annotation("field.cattle.io/")),
];

/// Annotations of other objects whose text is a name, a comma-separated list of names, or JSON that contains references.
pub(super) const NAMING: &[(&str, &str, &[Usable])] = &[
    ("ingress-nginx", "nginx.ingress.kubernetes.io/auth-secret", &[Secret]),
    ("ingress-nginx", "nginx.ingress.kubernetes.io/auth-tls-secret", &[Secret]),
    ("ingress-nginx", "nginx.ingress.kubernetes.io/proxy-ssl-secret", &[Secret]),
    ("ingress-nginx", "nginx.ingress.kubernetes.io/secure-verify-ca-secret", &[Secret]),
    ("ingress-nginx", "nginx.ingress.kubernetes.io/auth-proxy-set-headers", &[ConfigMap]),
    ("ingress-nginx", "nginx.ingress.kubernetes.io/custom-headers", &[ConfigMap]),
    ("ingress-nginx", "nginx.ingress.kubernetes.io/fastcgi-params-configmap", &[ConfigMap]),
    ("NGINX", "nginx.org/jwt-key", &[Secret]),
    ("NGINX", "nginx.org/basic-auth-secret", &[Secret]),
    ("HAProxy", "haproxy.org/auth-secret", &[Secret]),
    ("HAProxy", "haproxy.org/server-ca", &[Secret]),
    ("HAProxy", "haproxy.org/server-crt", &[Secret]),
    ("HAProxy", "haproxy.org/client-ca", &[Secret]),
    ("HAProxy Ingress", "haproxy-ingress.github.io/auth-secret", &[Secret]),
    ("HAProxy Ingress", "haproxy-ingress.github.io/auth-tls-secret", &[Secret]),
    ("HAProxy Ingress", "haproxy-ingress.github.io/secure-crt-secret", &[Secret]),
    ("HAProxy Ingress", "haproxy-ingress.github.io/secure-verify-ca-secret", &[Secret]),
    ("HAProxy", "ingress.kubernetes.io/auth-secret", &[Secret]),
    ("HAProxy", "ingress.kubernetes.io/auth-tls-secret", &[Secret]),
    ("Kong", "konghq.com/client-cert", &[Secret]),
    ("AWS load balancers", "alb.ingress.kubernetes.io/auth-idp-oidc", &[Secret]),
    ("AWS load balancers", "alb.ingress.kubernetes.io/auth-idp-cognito", &[Secret]),
    ("Azure's application gateway", "appgw.ingress.kubernetes.io/appgw-ssl-certificate", &[Secret]),
    ("cert-manager", "cert-manager.io/inject-ca-from-secret", &[Secret]),
    ("Reloader", "secret.reloader.stakater.com/reload", &[Secret]),
    ("Reloader", "configmap.reloader.stakater.com/reload", &[ConfigMap]),
    ("Istio", "sidecar.istio.io/userVolume", &[ConfigMap, Secret, Claim]),
    ("Istio", "sidecar.istio.io/bootstrapOverride", &[ConfigMap]),
    ("Vault", "vault.hashicorp.com/tls-secret", &[Secret]),
    ("Vault", "vault.hashicorp.com/agent-configmap", &[ConfigMap]),
    ("Vault", "vault.hashicorp.com/agent-extra-secret", &[Secret]),
    ("OpenShift", "service.beta.openshift.io/serving-cert-secret-name", &[Secret]),
    ("OpenShift", "service.alpha.openshift.io/serving-cert-secret-name", &[Secret]),
];

/// Annotations that repeat the object itself, or contain names of something else.
const REPEATING: [&str; 12] = [
    "kubectl.kubernetes.io/",
    "deployment.kubernetes.io/",
    "meta.helm.sh/",
    "control-plane.alpha.kubernetes.io/",
    "kubegc.io/",
    "argocd.argoproj.io/",
    "rollouts.argoproj.io/",
    "pv.kubernetes.io/",
    "volume.kubernetes.io/",
    "volume.beta.kubernetes.io/",
    "field.cattle.io/",
    "kubernetes.io/",
];

/// Reports whether the annotation is no evidence of a use.
pub(super) fn is_repetition(annotation: &str) -> bool {
    REPEATING.iter().any(|key| annotation.starts_with(key))
}

/// Returns the kinds of the objects that an annotation of a known controller names.
pub(super) fn named_by(annotation: &str) -> Option<&'static [Usable]> {
    NAMING.iter().find(|(_, key, _)| *key == annotation).map(|(_, _, kinds)| *kinds)
}

/// Returns the well-known controller that finds an object by itself, if there is one.
pub(super) fn selecting(usable: Usable, name: &str, metadata: &Value) -> Option<&'static str> {
    let row = SELECTED.iter().find(|(_, kinds, mark)| kinds.contains(&usable) && has(*mark, name, metadata));
    row.map(|(controller, ..)| *controller)
}

fn has(mark: Mark, name: &str, metadata: &Value) -> bool {
    let any = |field: &str, wanted: &str| {
        let mut keys = metadata[field].as_object().into_iter().flat_map(|entries| entries.keys());
        let is_domain = wanted.ends_with('/') || wanted.ends_with('.');
        keys.any(|key| key == wanted || (is_domain && key.starts_with(wanted)))
    };
    match mark {
        Label(key) => any("labels", key),
        LabelValue(key, value) => metadata["labels"][key] == value,
        Annotation(key) => any("annotations", key),
        Name(wanted) => name == wanted,
        NameStart(start) => name.starts_with(start),
        NameEnd(end) => name.ends_with(end),
    }
}

/// Namespaces of Kubernetes itself and of distributions, whose objects are used by programs outside the cluster. An entry that ends
/// with `-` is a prefix.
const SYSTEM_NAMESPACES: [&str; 26] = [
    "kube-node-lease",
    "kube-public",
    "kube-system",
    // EKS
    "amazon-",
    "aws-observability",
    // GKE
    "gke-",
    "gmp-",
    "config-management-",
    "asm-system",
    // AKS
    "aks-",
    "app-routing-system",
    "azure-",
    "dataprotection-microsoft",
    "gatekeeper-system",
    // OpenShift
    "openshift",
    "openshift-",
    // Networks and their operators
    "kube-flannel",
    "calico-",
    "tigera-",
    "cilium-",
    // Rancher and k3s
    "cattle-",
    "fleet-",
    "local-path-storage",
    "k3s-",
    "rancher-",
    "cluster-fleet-",
];

/// Reports whether a namespace belongs to Kubernetes or a distribution.
pub(super) fn is_system_namespace(name: &str) -> bool {
    SYSTEM_NAMESPACES.iter().any(|known| name == *known || (known.ends_with('-') && name.starts_with(known)))
}
