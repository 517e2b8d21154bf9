//! The catalogue of known finalizers: which software removes each, and what is lost when something else does.

/// The software that removes a finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remover {
    /// The API server itself.
    ApiServer,
    /// A controller of kube-controller-manager, or the kubegc collector that replaces it.
    ControllerManager,
    /// Workloads with these names, or images with these names; a trailing hyphen stands for any further text.
    Workloads(&'static [&'static str]),
}

/// A finalizer whose controller and purpose are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFinalizer {
    /// The finalizer; a `*` matches any text.
    pub name: &'static str,
    /// Description of the software that removes it.
    pub by: &'static str,
    /// Marks by which that software is recognized in a cluster.
    pub remover: Remover,
    /// Description of what is left behind when the finalizer is removed by hand.
    pub strands: &'static str,
    /// True if that is outside the cluster, where nothing in the cluster ever removes it.
    pub is_outside: bool,
}

const fn outside(
    name: &'static str,
    by: &'static str,
    workloads: &'static [&'static str],
    strands: &'static str,
) -> KnownFinalizer {
    KnownFinalizer { name, by, remover: Remover::Workloads(workloads), strands, is_outside: true }
}

const fn inside(
    name: &'static str,
    by: &'static str,
    workloads: &'static [&'static str],
    strands: &'static str,
) -> KnownFinalizer {
    KnownFinalizer { name, by, remover: Remover::Workloads(workloads), strands, is_outside: false }
}

const fn built_in(name: &'static str, by: &'static str, strands: &'static str) -> KnownFinalizer {
    KnownFinalizer { name, by, remover: Remover::ControllerManager, strands, is_outside: false }
}

/// Finalizers of Kubernetes itself and of widely used software. The first match counts.
pub const KNOWN: &[KnownFinalizer] = &[
    // Kubernetes.
    built_in(
        "batch.kubernetes.io/job-tracking",
        "the Job controller of kube-controller-manager",
        "nothing; the Job no longer counts this pod",
    ),
    KnownFinalizer {
        name: "customresourcecleanup.apiextensions.k8s.io",
        by: "kube-apiserver",
        remover: Remover::ApiServer,
        strands: "the stored objects of the definition, invisible until it is created again",
        is_outside: false,
    },
    built_in(
        "foregroundDeletion",
        "the garbage collector",
        "dependents, which are then deleted in the background",
    ),
    built_in(
        "kubernetes",
        "the namespace controller of kube-controller-manager",
        "the objects that remain in the namespace, invisible until it is created again",
    ),
    built_in(
        "kubernetes.io/pv-protection",
        "the PV protection controller of kube-controller-manager",
        "the claim that is bound to the volume",
    ),
    built_in(
        "kubernetes.io/pvc-protection",
        "the PVC protection controller of kube-controller-manager",
        "the pods that use the claim",
    ),
    built_in(
        "kubernetes.io/vac-protection",
        "the VolumeAttributesClass protection controller of kube-controller-manager",
        "the claims and volumes that name the class",
    ),
    built_in(
        "networking.k8s.io/service-cidr-finalizer",
        "the ServiceCIDR controller of kube-controller-manager",
        "Services whose addresses no range contains",
    ),
    built_in(
        "orphan",
        "the garbage collector",
        "no dependents: they are DELETED, although orphaning them was asked for, unless their references to it are removed first",
    ),
    built_in(
        "resource.kubernetes.io/delete-protection",
        "the resource claim controller of kube-controller-manager",
        "devices that a pod still uses, and that another pod may get",
    ),
    built_in(
        "scheduling.k8s.io/podgroup-protection",
        "the PodGroup protection controller of kube-controller-manager",
        "pods of the group that still run, and the devices of its claims, which another group may get",
    ),
    // Storage.
    outside(
        "external-attacher/*",
        "the CSI external-attacher of the driver",
        &["csi-attacher"],
        "a volume that stays attached to its node",
    ),
    outside(
        "external-provisioner.volume.kubernetes.io/finalizer",
        "the CSI external-provisioner of the driver",
        &["csi-provisioner"],
        "the storage of the volume",
    ),
    outside(
        "external-resizer/*",
        "the CSI external-resizer of the driver",
        &["csi-resizer"],
        "the storage of the volume",
    ),
    outside(
        "snapshot.storage.kubernetes.io/*",
        "the snapshot controller",
        &["snapshot-controller", "csi-snapshotter"],
        "the snapshot in the storage system",
    ),
    outside("longhorn.io", "Longhorn", &["longhorn-manager"], "replicas of the volume on the disks of nodes"),
    outside(
        "*.ceph.rook.io",
        "the Rook operator",
        &["rook-ceph-operator"],
        "pools, images and users in the Ceph cluster, and data on the disks of nodes",
    ),
    // Load balancers.
    outside(
        "service.kubernetes.io/load-balancer-cleanup",
        "the service controller of the cloud provider",
        &["cloud-controller-manager"],
        "the load balancer at the cloud provider, still running and billed",
    ),
    outside(
        "service.k8s.aws/*",
        "the AWS Load Balancer Controller",
        &["aws-load-balancer-controller"],
        "the load balancer at the cloud provider, still running and billed",
    ),
    outside(
        "ingress.k8s.aws/*",
        "the AWS Load Balancer Controller",
        &["aws-load-balancer-controller"],
        "the load balancer at the cloud provider, still running and billed",
    ),
    outside(
        "group.ingress.k8s.aws/*",
        "the AWS Load Balancer Controller",
        &["aws-load-balancer-controller"],
        "the load balancer of the group at the cloud provider, still running and billed",
    ),
    outside(
        "elbv2.k8s.aws/*",
        "the AWS Load Balancer Controller",
        &["aws-load-balancer-controller"],
        "target groups and security groups at the cloud provider",
    ),
    outside(
        "networking.gke.io/*",
        "the GKE Ingress controller",
        &["l7-lb-controller", "ingress-gce"],
        "load balancer, addresses and endpoint groups at the cloud provider, still running and billed",
    ),
    outside(
        "gke.networking.io/l4-*",
        "the GKE controller of Services",
        &["ingress-gce"],
        "the load balancer at the cloud provider, still running and billed",
    ),
    // Certificates and DNS.
    outside(
        "acme.cert-manager.io/finalizer",
        "cert-manager",
        &["cert-manager"],
        "DNS records or ingresses of ACME challenges",
    ),
    outside(
        "finalizer.acme.cert-manager.io",
        "cert-manager",
        &["cert-manager"],
        "DNS records or ingresses of ACME challenges",
    ),
    // Machines and nodes.
    outside(
        "karpenter.sh/termination",
        "Karpenter",
        &["karpenter"],
        "the machine of the node, still running and billed",
    ),
    outside("karpenter.k8s.aws/*", "Karpenter", &["karpenter"], "instance profiles at the cloud provider"),
    outside(
        "cluster.cluster.x-k8s.io",
        "the Cluster API controller",
        &["capi-controller-manager"],
        "machines and networks of the cluster at its provider",
    ),
    outside(
        "machine.cluster.x-k8s.io",
        "the Cluster API controller",
        &["capi-controller-manager"],
        "the machine at its provider, still running and billed",
    ),
    outside(
        "*.infrastructure.cluster.x-k8s.io",
        "the infrastructure provider of Cluster API",
        &[
            "capa-controller-manager",
            "capz-controller-manager",
            "capg-controller-manager",
            "capv-controller-manager",
        ],
        "machines, networks and load balancers at the provider, still running and billed",
    ),
    outside(
        "kubeadm.controlplane.cluster.x-k8s.io",
        "the kubeadm control plane provider of Cluster API",
        &["capi-kubeadm-control-plane-controller-manager"],
        "the machines of the control plane, still running and billed",
    ),
    outside(
        "*.metal3.io",
        "the Bare Metal Operator",
        &["baremetal-operator-controller-manager", "baremetal-operator"],
        "the machine, switched on and provisioned",
    ),
    inside(
        "*foregroundDeleteVirtualMachine",
        "virt-controller of KubeVirt",
        &["virt-controller"],
        "the pod of the virtual machine, which may still run and write to its disks",
    ),
    inside(
        "kubevirt.io/*",
        "virt-controller of KubeVirt",
        &["virt-controller"],
        "the running instance of the virtual machine",
    ),
    // Cloud resources that are managed as objects.
    outside(
        "finalizer.managedresource.crossplane.io",
        "the Crossplane provider",
        &["provider-"],
        "the external resource, still running and billed",
    ),
    outside(
        "*.crossplane.io",
        "Crossplane",
        &["crossplane"],
        "the resources that it is composed of, which may have external resources",
    ),
    outside(
        "finalizers.*.services.k8s.aws/*",
        "the ACK controller of the service",
        &["ack-"],
        "the resource in AWS, still running and billed",
    ),
    outside(
        "cnrm.cloud.google.com/*",
        "Config Connector",
        &["cnrm-controller-manager", "cnrm-deletiondefender"],
        "the resource in Google Cloud, still running and billed",
    ),
    outside(
        "serviceoperator.azure.com/finalizer",
        "Azure Service Operator",
        &["azureserviceoperator-controller-manager"],
        "the resource in Azure, still running and billed",
    ),
    outside(
        "finalizer.tf.contrib.fluxcd.io",
        "the Terraform controller of Flux",
        &["tf-controller", "tofu-controller"],
        "everything that Terraform created, still running and billed",
    ),
    outside(
        "finalizer.*.pulumi.com",
        "the Pulumi operator",
        &["pulumi-kubernetes-operator"],
        "everything that Pulumi created, still running and billed",
    ),
    // Deployment tools.
    inside(
        "resources-finalizer.argocd.argoproj.io*",
        "the Argo CD application controller",
        &["argocd-application-controller"],
        "the objects that the application deployed",
    ),
    inside(
        "*-delete-finalizer.argocd.argoproj.io*",
        "the Argo CD application controller",
        &["argocd-application-controller"],
        "hooks that do not run, and the work that they would do",
    ),
    outside(
        "workflows.argoproj.io/artifact-gc",
        "the workflow controller of Argo",
        &["workflow-controller"],
        "artifacts of the workflow in their bucket",
    ),
    inside(
        "finalizers.fluxcd.io",
        "the Flux controller of the kind",
        &["kustomize-controller", "helm-controller", "source-controller"],
        "the objects that it applied",
    ),
    inside(
        "*cattle.io/*",
        "Rancher",
        &["rancher", "cattle-cluster-agent"],
        "permissions, namespaces and registrations that Rancher made for it",
    ),
    inside(
        "operators.coreos.com/csv-cleanup",
        "the Operator Lifecycle Manager",
        &["olm-operator"],
        "webhooks and APIServices of the operator",
    ),
    inside(
        "istio-finalizer.install.istio.io",
        "the Istio operator",
        &["istio-operator"],
        "the control plane that it installed",
    ),
    inside(
        "finalizer.keda.sh",
        "KEDA",
        &["keda-operator"],
        "the HorizontalPodAutoscaler, and paused replicas",
    ),
    // Backups and databases.
    outside(
        "*.velero.io/external-resources-finalizer",
        "Velero",
        &["velero"],
        "files of the backup or restore in its bucket",
    ),
    outside("velero.io/*", "Velero", &["velero"], "files of the backup in its bucket"),
    inside(
        "postgres-operator.acid.zalan.do",
        "the Postgres operator",
        &["postgres-operator"],
        "StatefulSets, Services and volumes of the database",
    ),
    inside("strimzi.io/*", "Strimzi", &["strimzi-cluster-operator"], "topics and users in the Kafka cluster"),
];

/// Returns the first entry that a finalizer matches.
#[must_use]
pub fn find(finalizer: &str) -> Option<&'static KnownFinalizer> {
    KNOWN.iter().find(|known| is_like(known.name, finalizer))
}

/// Reports whether a text matches a pattern, in which each `*` stands for any text.
fn is_like(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(left) = text.strip_prefix(start) else { return false };
    // This stays cheap because a finalizer has at most 316 bytes.
    (0..=left.len()).filter(|at| left.is_char_boundary(*at)).any(|at| is_like(rest, &left[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finalizer_of_pod_groups_is_known() {
        let known = find("scheduling.k8s.io/podgroup-protection");
        let found = known.map(|known| (known.remover, known.is_outside));
        assert_eq!(found, Some((Remover::ControllerManager, false)));
    }

    #[test]
    fn finalizers_are_found_by_pattern() {
        let by = |finalizer: &str| find(finalizer).map(|known| known.by);
        assert_eq!(by("external-attacher/ebs-csi-aws-com"), Some("the CSI external-attacher of the driver"));
        assert_eq!(by("external-attacher"), None);
        assert_eq!(by("finalizers.s3.services.k8s.aws/Bucket"), Some("the ACK controller of the service"));
        assert_eq!(
            by("resources-finalizer.argocd.argoproj.io/background"),
            by("resources-finalizer.argocd.argoproj.io")
        );
        assert_eq!(by("controller.cattle.io/namespace-auth"), Some("Rancher"));
        assert_eq!(by("cephcluster.ceph.rook.io"), Some("the Rook operator"));
        assert_eq!(by("notceph.rook.io"), None);
        assert_eq!(by("kubernetes"), Some("the namespace controller of kube-controller-manager"));
        assert_eq!(by("kubernetes.io"), None);
    }

    #[test]
    fn every_entry_is_reached() {
        for known in KNOWN {
            let example = known.name.replace('*', "x");
            assert_eq!(find(&example).map(|found| found.name), Some(known.name));
        }
    }
}
