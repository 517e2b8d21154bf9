//! Labelled objects: some are used without any reference, some are not. None of the used ones may be reported as certainly unused.

use super::super::controllers::{Mark, NAMING, SELECTED};
use super::*;

/// Objects of distributions as they are after installation: kind, namespace/name, and labels (`l:`) or annotations (`a:`).
const DISTRIBUTIONS: &str = "
EKS ConfigMap kube-system/aws-auth
EKS ConfigMap kube-system/amazon-vpc-cni
EKS ConfigMap kube-system/kube-proxy
EKS ConfigMap kube-system/kube-proxy-config
EKS ConfigMap kube-system/coredns
EKS ConfigMap kube-system/extension-apiserver-authentication
EKS ConfigMap kube-system/kube-apiserver-legacy-service-account-token-tracking
EKS ConfigMap aws-observability/aws-logging
EKS ConfigMap amazon-cloudwatch/fluent-bit-config
EKS ConfigMap amazon-guardduty/agent
EKS Secret amazon-cloudwatch/token
GKE ConfigMap kube-system/gke-common-webhook-heartbeat
GKE ConfigMap kube-system/ingress-uid
GKE ConfigMap kube-system/clustermetrics
GKE ConfigMap kube-system/core-metrics-exporter-conf
GKE ConfigMap kube-system/fluentbit-gke-config-v1.4.0
GKE ConfigMap kube-system/kube-dns
GKE ConfigMap kube-system/kube-dns-autoscaler
GKE ConfigMap kube-system/cluster-autoscaler-status
GKE ConfigMap kube-system/kubedns-config-images
GKE ConfigMap kube-system/netd-config l:addonmanager.kubernetes.io/mode
GKE ConfigMap kube-system/metrics-server-config a:components.gke.io/component-name
GKE ConfigMap gmp-system/config-images
GKE ConfigMap gke-managed-cim/kube-state-metrics
GKE ConfigMap gke-managed-system/gpu
AKS ConfigMap kube-system/azure-ip-masq-agent-config-reconciled
AKS ConfigMap kube-system/ama-logs-rs-config
AKS ConfigMap kube-system/container-azm-ms-agentconfig
AKS ConfigMap kube-system/container-azm-ms-aks-k8scluster
AKS ConfigMap kube-system/coredns-custom
AKS ConfigMap kube-system/coredns-autoscaler
AKS ConfigMap kube-system/overlay-upgrade-data
AKS ConfigMap kube-system/omsagent-rs-config
AKS ConfigMap kube-system/konnectivity-agent-cert l:kubernetes.azure.com/managedby
AKS Secret kube-system/konnectivity-certs
AKS Secret kube-system/tunnelend
AKS Secret kube-system/omsagent-aad-msi-token
AKS Secret kube-system/bootstrap-token-abcdef
AKS ConfigMap app-routing-system/nginx
AKS ConfigMap gatekeeper-system/config
OpenShift ConfigMap shop/openshift-service-ca.crt
OpenShift ConfigMap shop/kube-root-ca.crt
OpenShift ConfigMap openshift-config/admin-kubeconfig-client-ca
OpenShift ConfigMap openshift-monitoring/cluster-monitoring-config
OpenShift ConfigMap openshift/nothing
OpenShift ConfigMap openshift-ingress/router-trusted-ca
OpenShift ServiceAccount shop/builder
OpenShift ServiceAccount shop/deployer
OpenShift ServiceAccount shop/pipeline
OpenShift ServiceAccount shop/default
OpenShift Secret shop/builder-dockercfg-4k2pp a:openshift.io/internal-registry-auth-token.service-account
OpenShift Secret shop/default-dockercfg-2qq8z a:openshift.io/token-secret.name
OpenShift Secret shop/web-tls a:service.beta.openshift.io/originating-service-name
OpenShift ConfigMap shop/trusted-ca l:config.openshift.io/inject-trusted-cabundle
OpenShift ConfigMap shop/dashboard l:console.openshift.io/dashboard
k3s ConfigMap kube-system/local-path-config
k3s ConfigMap kube-system/chart-content-traefik
k3s ConfigMap kube-system/chart-content-traefik-crd
k3s ConfigMap kube-system/cluster-dns
k3s ConfigMap kube-system/coredns l:objectset.rio.cattle.io/hash
k3s Secret kube-system/k3s-serving
k3s Secret kube-system/node-1.node-password.k3s
k3s ConfigMap local-path-storage/config
k3s ConfigMap cattle-system/rancher-config
k3s ConfigMap fleet-local/agent
kubeadm ConfigMap kube-system/kubeadm-config
kubeadm ConfigMap kube-system/kubelet-config
kubeadm ConfigMap kube-public/cluster-info
kubeadm Secret kube-system/kubeadm-certs
";

/// Objects of well-known installations, labelled by hand.
const INSTALLED: &str = "
Grafana ConfigMap monitoring/kube-prometheus-stack-apiserver l:grafana_dashboard
Grafana ConfigMap monitoring/kube-prometheus-stack-grafana-datasource l:grafana_datasource
Grafana Secret monitoring/contact-points l:grafana_alert
Grafana ConfigMap team/dashboards a:grafana_folder
Argo-CD Secret argocd/cluster-kubernetes.default.svc l:argocd.argoproj.io/secret-type
Argo-CD Secret argocd/repo-3429 l:argocd.argoproj.io/secret-type
Argo-CD ConfigMap argocd/argocd-cm
Argo-CD ConfigMap argocd/argocd-rbac-cm
Argo-CD Secret argocd/argocd-secret
Argo-CD Secret argocd/argocd-initial-admin-secret
Argo-CD ConfigMap argocd/argocd-notifications-cm
cert-manager Secret cert-manager/cert-manager-webhook-ca
cert-manager Secret shop/web-x4k9 l:cert-manager.io/next-private-key
cert-manager Secret shop/web-tls l:controller.cert-manager.io/fao
external-secrets Secret shop/db l:reconcile.external-secrets.io/created-by
sealed-secrets Secret kube-seal/sealed-secrets-key4k2pp l:sealedsecrets.bitnami.com/sealed-secrets-key
Reflector Secret cert-manager/wildcard a:reflector.v1.k8s.emberstack.com/reflection-allowed
Replicator Secret base/pull a:replicator.v1.mittwald.de/replicate-to
Prometheus Secret monitoring/prometheus-k8s l:operator.prometheus.io/name
Prometheus ConfigMap monitoring/rules-0 l:prometheus-name
Flux Secret flux-system/receiver l:reconcile.fluxcd.io/watch
Istio ConfigMap istio-system/istio
Istio ConfigMap istio-system/istio-sidecar-injector
Istio Secret istio-system/istio-ca-secret
Istio Secret istio-system/cacerts
Istio ConfigMap shop/istio-ca-root-cert
Istio Secret istio-system/istio-remote-secret-b l:istio/multiCluster
Linkerd ConfigMap linkerd/linkerd-config
Linkerd Secret linkerd/linkerd-identity-issuer
Linkerd ConfigMap linkerd/linkerd-identity-trust-roots
Velero ConfigMap velero/restic-config l:velero.io/plugin-config
Velero Secret velero/velero-repo-credentials
Velero ConfigMap velero/change-class l:velero.io/change-storage-class
Traefik Secret web/store l:traefik.io/tls-store
Contour ConfigMap projectcontour/contour
Contour Secret projectcontour/contourcert
Contour Secret projectcontour/envoycert
Kyverno ConfigMap kyverno/settings l:cache.kyverno.io/enabled
Kyverno Secret kyverno/kyverno-svc.kyverno.svc.kyverno-tls-pair
Kyverno Secret kyverno/kyverno-svc.kyverno.svc.kyverno-tls-ca
ingress-nginx ConfigMap ingress-nginx/ingress-nginx-controller
ingress-nginx ConfigMap ingress-nginx/tcp-services
OLM ConfigMap operators/catalog l:olm.managed
CloudNativePG Secret db/main-app l:cnpg.io/cluster
Zalando Secret db/postgres.main.credentials.postgresql.acid.zalan.do
Rook ConfigMap rook/rook-ceph-operator-config
Longhorn ConfigMap longhorn-system/longhorn-default-setting
Strimzi Secret kafka/my-user l:strimzi.io/cluster
Elastic Secret elastic/es-elastic-user l:common.k8s.elastic.co/type
Cilium ConfigMap net/cilium-config
MetalLB Secret metallb-system/metallb-memberlist
";

/// Parses a labelled object from these tables.
fn listed(line: &str) -> (String, Value) {
    let mut words = line.split_whitespace().skip(1);
    let title = format!("{} {}", words.next().unwrap(), words.next().unwrap());
    let mut metadata = json!({"labels": {}, "annotations": {}});
    for word in words {
        let (field, key) = word.split_once(':').unwrap();
        metadata[if field == "l" { "labels" } else { "annotations" }][key] = "x".into();
    }
    (title, json!({"metadata": metadata}))
}

/// Returns an object with a mark of the catalogue.
fn marked(number: usize, usable: Usable, mark: Mark) -> (String, Value) {
    let mut name = format!("object-{number}");
    let mut metadata = json!({"labels": {}, "annotations": {}});
    let key = |key: &str| if key.ends_with(['/', '.']) { format!("{key}x") } else { key.to_owned() };
    match mark {
        Mark::Label(label) => metadata["labels"][key(label)] = "x".into(),
        Mark::LabelValue(label, value) => metadata["labels"][label] = value.into(),
        Mark::Annotation(annotation) => metadata["annotations"][key(annotation)] = "x".into(),
        Mark::Name(known) => name = known.to_owned(),
        Mark::NameStart(start) => name = format!("{start}{number}"),
        Mark::NameEnd(end) => name = format!("{number}{end}"),
    }
    (format!("{} of-{number}/{name}", usable.kind()), json!({"metadata": metadata}))
}

fn certain(report: &Report) -> Vec<String> {
    let certain = report.findings.iter().filter(|finding| finding.certainty == Certainty::Certain);
    certain
        .map(|finding| format!("{} {}/{}", finding.code.name(), finding.place.namespace, finding.place.name))
        .collect()
}

#[test]
fn no_used_object_is_certainly_unused() {
    let mut used: Vec<(String, Value)> =
        DISTRIBUTIONS.lines().chain(INSTALLED.lines()).filter(|line| !line.is_empty()).map(listed).collect();
    for (number, (_, kinds, mark)) in SELECTED.iter().enumerate() {
        used.extend(kinds.iter().map(|usable| marked(number, *usable, *mark)));
    }
    // The same objects without a mark are unused, and must be reported.
    let unused: Vec<(String, Value)> = (0..100)
        .map(|number| {
            let usable = Usable::ALL[number % 4];
            let metadata =
                json!({"labels": {"app": "shop"}, "annotations": {"meta.helm.sh/release-name": "shop"}});
            (format!("{} shop/left-{number}", usable.kind()), json!({"metadata": metadata}))
        })
        .collect();
    assert!(used.len() + unused.len() >= 300, "{}", used.len());
    let all: Vec<(&str, Value)> =
        used.iter().chain(&unused).map(|(title, body)| (title.as_str(), body.clone())).collect();
    for includes_system in [false, true] {
        let own: Vec<_> = all
            .iter()
            // Keep only objects that a user of the cluster would ask about.
            .filter(|(title, _)| {
                !includes_system || title.contains(" kube-system/") || title.contains(" shop/")
            })
            .cloned()
            .collect();
        let mut found = certain(&report(own, vec![], includes_system));
        found.retain(|line| !line.contains("shop/left-"));
        // Without a mark, not even a person could tell that it is used.
        found.retain(|line| {
            line != "UnusedConfigMap kube-system/kube-apiserver-legacy-service-account-token-tracking"
        });
        assert_eq!(found, [""; 0]);
    }
    assert_eq!(certain(&report(all, vec![], false)).len(), unused.len(), "what is not used is found");
}

/// Annotations of well-known controllers are references, with and without a namespace, in lists and in JSON.
#[test]
fn annotations_name_objects() {
    for (_, annotation, kinds) in NAMING {
        for usable in *kinds {
            let target = (&*format!("{} shop/named", usable.kind()), json!({}));
            for text in ["named", "shop/named", "other, named"] {
                let ingress = json!({"metadata": {"annotations": {*annotation: text}}});
                let found = report(vec![target.clone()], vec![("Ingress shop/web", ingress)], false);
                assert_eq!(certain(&found), [""; 0], "{annotation}: {text}");
                assert_eq!(found.findings.len(), 0, "{annotation}: {text}");
            }
        }
    }
    let oidc = r#"{"issuer": "https://x", "secretName": "oidc"}"#;
    let volume = r#"[{"name": "v", "secret": {"secretName": "mounted"}}]"#;
    let template = json!({"metadata": {"annotations": {"sidecar.istio.io/userVolume": volume}}});
    let found = report(
        vec![("Secret shop/oidc", json!({})), ("Secret shop/mounted", json!({}))],
        vec![
            (
                "Ingress shop/web",
                json!({"metadata": {"annotations": {"alb.ingress.kubernetes.io/auth-idp-oidc": oidc}}}),
            ),
            ("Deployment shop/web", json!({"spec": {"template": template}})),
        ],
        false,
    );
    assert_eq!(shown(&found), [""; 0]);
}

/// Names in arguments, variables, annotations of unknown controllers and RBAC rules make a finding uncertain.
#[test]
fn names_that_programs_are_given_make_it_unknown() {
    let container =
        |field: &str, value: Value| json!({"spec": {"template": {"spec": {"containers": [{field: value}]}}}});
    let env = |value: &str| container("env", json!([{"name": "X", "value": value}]));
    let given = "? shop/a: ";
    for (user, body, expected) in [
        ("Deployment shop/web", container("args", json!(["--configmap=shop/a"])), true),
        ("Deployment shop/web", container("args", json!(["--configmap=$(POD_NAMESPACE)/a"])), true),
        ("Deployment shop/web", container("command", json!(["sh", "-c", "run --config a"])), true),
        ("Deployment shop/web", env("a"), true),
        ("Deployment shop/web", env("LABEL=find-me"), true),
        ("Deployment other/web", env("find-me"), true),
        ("Deployment other/web", env("a"), false),
        ("Deployment other/web", env("shop/a"), true),
        ("Deployment shop/web", json!({"metadata": {"annotations": {"acme.dev/settings": "a"}}}), true),
        (
            "Deployment shop/web",
            json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{\"name\":\"a\"}"}}}),
            false,
        ),
        ("Role shop/r", json!({"rules": [{"resources": ["configmaps"], "resourceNames": ["a"]}]}), true),
    ] {
        let label = json!({"metadata": {"labels": {"find-me": "1"}}});
        let found = report(vec![("ConfigMap shop/a", label)], vec![(user, body.clone())], false);
        let lines: Vec<String> =
            shown(&found).into_iter().filter(|line| line.starts_with("UnusedConfigMap")).collect();
        let is_unknown = lines.len() == 1 && lines[0].contains(given);
        assert_eq!((lines.len(), is_unknown), (1, expected), "{user} {body}: {lines:?}");
    }
}

/// An annotation that contains the object's own name is no evidence of a use.
#[test]
fn an_object_does_not_use_itself() {
    let robot = (
        "ServiceAccount n/robot",
        json!({"metadata": {"annotations": {"acme.dev/id": "robot@example.com"}}}),
    );
    let found = report(vec![robot.clone()], vec![robot], false);
    assert_eq!(shown(&found), ["UnusedServiceAccount n/robot: nothing refers to it"]);
}
