//! Sources of volumes, in pods and in persistent volumes.

use std::collections::BTreeSet;

use gc_types::Quantity;

use super::claims::{self, template_metadata};
use super::downward;
use super::labels;
use super::names::{
    csi_driver_name, dns_label, dns_subdomain, label, local_descending_path, local_non_reserved_path,
    path_without_backsteps, range_error, subdomain,
};
use super::pod_spec::Owner;
use super::signers;
use crate::kinds::prelude::*;

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const MORE_THAN_ONE: &str = "may not specify more than 1 volume type";
const PARTITION: &str = "must be between 1 and 255, inclusive";
const TOO_LONG_PORTAL: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
    iscsi.initiatorName is specified.";

/// Validates one source.
type Check = fn(&Field<'_, '_>, &mut Report);

/// Sources of a pod's volume in upstream's order: member, name in errors about a second source, name in the source's own errors,
/// check.
const POD_SOURCES: &[(&str, &str, &str, Check)] = &[
    ("hostPath", "hostPath", "hostPath", host_path),
    ("gitRepo", "gitRepo", "gitRepo", git_repo),
    ("gcePersistentDisk", "gcePersistentDisk", "persistentDisk", gce_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore", aws_disk),
    ("secret", "secret", "secret", secret),
    ("nfs", "nfs", "nfs", nfs),
    ("iscsi", "iscsi", "iscsi", iscsi),
    ("glusterfs", "glusterfs", "glusterfs", glusterfs),
    ("flocker", "flocker", "flocker", flocker),
    ("persistentVolumeClaim", "persistentVolumeClaim", "persistentVolumeClaim", claim),
    ("rbd", "rbd", "rbd", rbd),
    ("cinder", "cinder", "cinder", cinder),
    ("cephfs", "cephFS", "cephfs", cephfs),
    ("quobyte", "quobyte", "quobyte", quobyte),
    ("downwardAPI", "downwarAPI", "downwardAPI", downward_api),
    ("fc", "fc", "fc", fibre_channel),
    ("flexVolume", "flexVolume", "flexVolume", flex_volume),
    ("configMap", "configMap", "configMap", config_map),
    ("azureFile", "azureFile", "azureFile", azure_file),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume", vsphere),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk", photon),
    ("portworxVolume", "portworxVolume", "portworxVolume", portworx),
    ("azureDisk", "azureDisk", "azureDisk", azure_disk),
    ("storageos", "storageos", "storageos", storage_os),
    ("projected", "projected", "projected", projected),
    ("scaleIO", "scaleIO", "scaleIO", scale_io),
    ("csi", "csi", "csi", csi),
    ("ephemeral", "ephemeral", "ephemeral", ephemeral),
    ("image", "image", "image", image),
];

/// Sources of a persistent volume, in the form of [`POD_SOURCES`].
const PERSISTENT_SOURCES: &[(&str, &str, &str, Check)] = &[
    ("hostPath", "hostPath", "hostPath", host_path),
    ("gcePersistentDisk", "gcePersistentDisk", "persistentDisk", gce_disk),
    ("awsElasticBlockStore", "awsElasticBlockStore", "awsElasticBlockStore", aws_disk),
    ("glusterfs", "glusterfs", "glusterfs", persistent_glusterfs),
    ("flocker", "flocker", "flocker", flocker),
    ("nfs", "nfs", "nfs", nfs),
    ("rbd", "rbd", "rbd", rbd),
    ("quobyte", "quobyte", "quobyte", quobyte),
    ("cephfs", "cephFS", "cephfs", cephfs),
    ("iscsi", "iscsi", "iscsi", persistent_iscsi),
    ("cinder", "cinder", "cinder", persistent_cinder),
    ("fc", "fc", "fc", fibre_channel),
    ("flexVolume", "flexVolume", "flexVolume", flex_volume),
    ("azureFile", "azureFile", "azureFile", persistent_azure_file),
    ("vsphereVolume", "vsphereVolume", "vsphereVolume", vsphere),
    ("photonPersistentDisk", "photonPersistentDisk", "photonPersistentDisk", photon),
    ("portworxVolume", "portworxVolume", "portworxVolume", portworx),
    ("azureDisk", "azureDisk", "azureDisk", azure_disk),
    ("scaleIO", "scaleIO", "scaleIO", scale_io),
    ("local", "local", "local", local),
    ("storageos", "storageos", "storageos", persistent_storage_os),
    ("csi", "csi", "csi", persistent_csi),
];

/// Validates the volumes of a pod or template. Returns the names of those without errors.
pub(crate) fn volumes<'v>(field: &Field<'v, '_>, owner: Owner<'_>, report: &mut Report) -> BTreeSet<&'v str> {
    let pod = owner.pod_name();
    let created: BTreeSet<String> = if pod.is_empty() {
        BTreeSet::new()
    } else {
        let items = field.items().filter(|volume| volume.has("ephemeral"));
        items.map(|volume| format!("{pod}-{}", volume.text_of("name"))).collect()
    };
    let mut names = BTreeSet::new();
    for volume in field.items() {
        let before = report.errors.len();
        pod_source(&volume, pod, report);
        if matches!(owner, Owner::Pod(_)) && volume.has("image") {
            needs(&volume.get("image"), &["reference"], report);
        }
        let name = volume.get("name");
        if name.text().is_empty() {
            report.required(&name, "");
        } else {
            label(&name, report);
        }
        if names.contains(name.text()) {
            report.duplicate_text(&name, name.text());
        }
        if report.errors.len() == before {
            names.insert(name.text());
        }
        let claim = volume.get("persistentVolumeClaim");
        if claim.is_set() && created.contains(claim.text_of("claimName")) {
            let why = "must not reference a PVC that gets created for an ephemeral volume";
            report.invalid(&claim.get("claimName"), why);
        }
    }
    names
}

fn pod_source(volume: &Field<'_, '_>, pod: &str, report: &mut Report) {
    let mut any = volume.has("emptyDir");
    let size = volume.get("emptyDir");
    if size.get("sizeLimit").quantity().is_some_and(Quantity::is_negative) {
        report.forbidden(&size.get("sizeLimit"), "SizeLimit field must be a valid resource quantity");
    }
    for (member, again, own, check) in POD_SOURCES {
        if !volume.has(member) {
            continue;
        }
        if any {
            report.forbidden(&volume.get(again), MORE_THAN_ONE);
        } else {
            check(&volume.named(own, volume.member(member)), report);
            if *member == "ephemeral" {
                ephemeral_claim_name(volume, pod, report);
            }
        }
        any = true;
        if *member == "iscsi" {
            let source = volume.get(member);
            let name = volume.text_of("name");
            if source.has("initiatorName") && name.len() + source.text_of("targetPortal").len() + 1 > 64 {
                report.invalid_text(&volume.get("name"), name, TOO_LONG_PORTAL);
            }
        }
    }
    if !any {
        report.required(volume, "must specify a volume type");
    }
}

fn ephemeral_claim_name(volume: &Field<'_, '_>, pod: &str, report: &mut Report) {
    let name = volume.text_of("name");
    if !pod.is_empty() && !name.is_empty() {
        let claim = format!("{pod}-{name}");
        for problem in dns_subdomain(&claim) {
            report.invalid(&volume.get("name"), &format!("PVC name {claim:?}: {problem}"));
        }
    }
}

/// Validates the source of a persistent volume. Returns whether it is a local one.
pub(crate) fn persistent_source(spec: &Field<'_, '_>, volume: &str, affine: bool, report: &mut Report) {
    let mut any = false;
    for (member, again, own, check) in PERSISTENT_SOURCES {
        if !spec.has(member) {
            continue;
        }
        // Upstream validates a flexVolume even alongside another source.
        if any && *member != "flexVolume" {
            report.forbidden(&spec.get(again), MORE_THAN_ONE);
        } else {
            let source = spec.named(own, spec.member(member));
            if *member == "iscsi"
                && source.has("initiatorName")
                && volume.len() + source.text_of("targetPortal").len() + 1 > 64
            {
                let portal = source.text_of("targetPortal");
                report.invalid_text(&source.get("targetportal"), portal, TOO_LONG_PORTAL);
            }
            check(&source, report);
            if *member == "local" && !affine {
                report.required(&spec.get("nodeAffinity"), "Local volume requires node affinity");
            }
        }
        any = true;
    }
    if !any {
        report.required(spec, "must specify a volume type");
    }
}

/// Checks for texts that must not be empty.
fn needs(field: &Field<'_, '_>, names: &[&str], report: &mut Report) {
    for name in names {
        if field.get(name).is_empty() {
            report.required(&field.get(name), "");
        }
    }
}

fn host_path(field: &Field<'_, '_>, report: &mut Report) {
    let path = field.get("path");
    if path.text().is_empty() {
        report.required(&path, "");
        return;
    }
    path_without_backsteps(&path, path.text(), report);
    report.one_of_if_set(
        &field.get("type"),
        &[
            "",
            "BlockDevice",
            "CharDevice",
            "Directory",
            "DirectoryOrCreate",
            "File",
            "FileOrCreate",
            "Socket",
        ],
    );
}

fn git_repo(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["repository"], report);
    local_descending_path(&field.get("directory"), field.text_of("directory"), report);
}

fn gce_disk(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["pdName"], report);
    partition(field, report);
}

fn aws_disk(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["volumeID"], report);
    partition(field, report);
}

fn partition(field: &Field<'_, '_>, report: &mut Report) {
    if !(0..=255).contains(&field.number_of("partition")) {
        report.invalid(&field.get("partition"), PARTITION);
    }
}

fn mode(field: &Field<'_, '_>, report: &mut Report) {
    if field.integer().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        report.invalid(field, FILE_MODE);
    }
}

fn secret(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["secretName"], report);
    mode(&field.get("defaultMode"), report);
    field.get("items").items().for_each(|item| key_to_path(&item, report));
}

fn config_map(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["name"], report);
    mode(&field.get("defaultMode"), report);
    field.get("items").items().for_each(|item| key_to_path(&item, report));
}

fn key_to_path(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["key", "path"], report);
    local_non_reserved_path(&field.get("path"), report);
    mode(&field.get("mode"), report);
}

fn nfs(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["server", "path"], report);
    if !field.text_of("path").starts_with('/') {
        report.invalid_text(&field.get("path"), field.text_of("path"), "must be an absolute path");
    }
}

fn iscsi(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["targetPortal"], report);
    iscsi_name(field, "must be valid format starting with iqn, eui, or naa", report);
    iscsi_rest(field, "must be valid format starting with iqn, eui, or naa", false, report);
}

fn persistent_iscsi(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["targetPortal"], report);
    iscsi_name(field, "must be valid format", report);
    iscsi_rest(field, "must be valid format", true, report);
}

fn iscsi_name(field: &Field<'_, '_>, unknown: &str, report: &mut Report) {
    let name = field.get("iqn");
    if name.text().is_empty() {
        report.required(&name, "");
    } else {
        iscsi_format(&name, unknown, report);
    }
}

fn iscsi_format(field: &Field<'_, '_>, unknown: &str, report: &mut Report) {
    let name = field.text();
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    let fits = if let Some(rest) = name.strip_prefix("iqn") {
        is_iqn(rest)
    } else if let Some(rest) = name.strip_prefix("eui") {
        rest.strip_prefix('.').is_some_and(|id| id.len() == 16 && hex(id))
    } else if let Some(rest) = name.strip_prefix("naa") {
        rest.strip_prefix('.').is_some_and(|id| id.len() == 32 && hex(id))
    } else {
        report.invalid(field, unknown);
        return;
    };
    if !fits {
        report.invalid(field, "must be valid format");
    }
}

/// Reports whether a text has the form `.YYYY-MM.a.reversed.domain`, optionally followed by a colon and a name.
fn is_iqn(rest: &str) -> bool {
    let date = rest.as_bytes();
    let dated = date.len() > 9
        && date[0] == b'.'
        && date[1..5].iter().all(u8::is_ascii_digit)
        && date[5] == b'-'
        && date[6..8].iter().all(u8::is_ascii_digit)
        && date[8] == b'.';
    if !dated {
        return false;
    }
    let authority = rest[9..].split_once(':').map_or(&rest[9..], |(authority, _)| authority);
    let word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    authority.contains('.') && authority.split('.').all(word)
}

fn iscsi_rest(field: &Field<'_, '_>, unknown: &str, persistent: bool, report: &mut Report) {
    logical_unit(&field.get("lun"), report);
    let checks_password = field.get("chapAuthDiscovery").flag() || field.get("chapAuthSession").flag();
    if checks_password && !field.has("secretRef") {
        report.required(&field.get("secretRef"), "");
    }
    if persistent && field.has("secretRef") {
        needs(&field.get("secretRef"), &["name"], report);
    }
    if field.has("initiatorName") {
        iscsi_format(&field.named("initiatorname", field.member("initiatorName")), unknown, report);
    }
}

fn logical_unit(field: &Field<'_, '_>, report: &mut Report) {
    if !(0..=255).contains(&field.number()) {
        report.invalid(field, &range_error(0, 255));
    }
}

fn glusterfs(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["endpoints", "path"], report);
}

fn persistent_glusterfs(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["endpoints", "path"], report);
    let namespace = field.get("endpointsNamespace");
    if namespace.is_set() && namespace.text().is_empty() {
        report.invalid(&namespace, "if the endpointnamespace is set, it must be a valid namespace name");
    } else if namespace.is_set() {
        label(&namespace, report);
    }
}

fn flocker(field: &Field<'_, '_>, report: &mut Report) {
    let (name, id) = (field.text_of("datasetName"), field.text_of("datasetUUID"));
    if name.is_empty() && id.is_empty() {
        report.required(field, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !id.is_empty() {
        let why = "datasetName and datasetUUID can not be specified simultaneously";
        report.invalid_text(field, "resource", why);
    }
    if name.contains('/') {
        report.invalid(&field.get("datasetName"), "must not contain '/'");
    }
}

fn claim(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["claimName"], report);
}

fn rbd(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["monitors", "image"], report);
}

fn cinder(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["volumeID"], report);
    if field.has("secretRef") {
        needs(&field.get("secretRef"), &["name"], report);
    }
}

fn persistent_cinder(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["volumeID"], report);
    if field.has("secretRef") {
        needs(&field.get("secretRef"), &["name", "namespace"], report);
    }
}

fn cephfs(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["monitors"], report);
}

fn quobyte(field: &Field<'_, '_>, report: &mut Report) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = field.get("registry");
    if registry.text().is_empty() {
        report.required(&registry, PAIRS);
    } else if field.text_of("tenant").len() >= 65 {
        report.required(&field.get("tenant"), "must be a UUID and may not exceed a length of 64 characters");
    } else {
        for pair in registry.text().split(',') {
            if !is_host_and_port(pair) {
                report.invalid(&registry, PAIRS);
            }
        }
    }
    needs(field, &["volume"], report);
}

/// Reports whether Go would split a text into a host and a port.
fn is_host_and_port(text: &str) -> bool {
    match text.strip_prefix('[') {
        Some(rest) => rest
            .split_once(']')
            .and_then(|(host, port)| Some((host, port.strip_prefix(':')?)))
            .is_some_and(|(host, port)| !host.contains('[') && !port.contains([':', '[', ']'])),
        None => text.matches(':').count() == 1 && !text.contains(['[', ']']),
    }
}

fn downward_api(field: &Field<'_, '_>, report: &mut Report) {
    mode(&field.get("defaultMode"), report);
    for item in field.get("items").list() {
        downward_file(&field.with(item), report);
    }
}

/// Validates a file of a downward API volume; upstream's path has no index.
fn downward_file(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["path"], report);
    local_non_reserved_path(&field.get("path"), report);
    if field.has("fieldRef") {
        downward::object_field(&field.get("fieldRef"), &downward::VOLUME_FIELDS, report);
        if field.has("resourceFieldRef") {
            let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
            report.invalid_text(field, "resource", why);
        }
    } else if field.has("resourceFieldRef") {
        downward::container_resource(&field.get("resourceFieldRef"), true, report);
    } else {
        report.required(field, "one of fieldRef and resourceFieldRef is required");
    }
    mode(&field.get("mode"), report);
}

fn fibre_channel(field: &Field<'_, '_>, report: &mut Report) {
    let (names, ids) = (field.get("targetWWNs"), field.get("wwids"));
    if names.is_empty() && ids.is_empty() {
        report.required(&names, "must specify either targetWWNs or wwids, but not both");
    }
    if !names.is_empty() && !ids.is_empty() {
        report.invalid(&names, "targetWWNs and wwids can not be specified simultaneously");
    }
    if !names.is_empty() {
        if field.has("lun") {
            logical_unit(&field.get("lun"), report);
        } else {
            report.required(&field.get("lun"), "lun is required if targetWWNs is specified");
        }
    }
}

fn flex_volume(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["driver"], report);
    for (key, option) in field.get("options").entries() {
        let domain = key.split_once('/').map_or(key, |(domain, _)| domain);
        let domain = format!(".{}", domain.to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            report.invalid_text(&option, key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

fn azure_file(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["secretName", "shareName"], report);
}

fn persistent_azure_file(field: &Field<'_, '_>, report: &mut Report) {
    azure_file(field, report);
    if field.has("secretNamespace") {
        needs(field, &["secretNamespace"], report);
    }
}

fn vsphere(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["volumePath"], report);
}

fn photon(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["pdID"], report);
}

fn portworx(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["volumeID"], report);
}

fn azure_disk(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["diskName", "diskURI"], report);
    report.one_of_if_set(&field.get("cachingMode"), &["None", "ReadOnly", "ReadWrite"]);
    report.one_of_if_set(&field.get("kind"), &["Dedicated", "Managed", "Shared"]);
    let uri = field.get("diskURI");
    let managed = field.text_of("kind") == "Managed";
    if managed && !uri.text().starts_with("/subscriptions/") {
        report.not_supported(
            &uri,
            &["/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"],
        );
    }
    if field.has("kind") && !managed && !uri.text().starts_with("https://") {
        report.not_supported(
            &uri,
            &["https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"],
        );
    }
}

fn storage_os(field: &Field<'_, '_>, report: &mut Report) {
    storage_os_volume(field, report);
    if field.has("secretRef") {
        needs(&field.get("secretRef"), &["name"], report);
    }
}

fn persistent_storage_os(field: &Field<'_, '_>, report: &mut Report) {
    storage_os_volume(field, report);
    if field.has("secretRef") {
        needs(&field.get("secretRef"), &["name", "namespace"], report);
    }
}

fn storage_os_volume(field: &Field<'_, '_>, report: &mut Report) {
    if field.text_of("volumeName").is_empty() {
        report.required(&field.get("volumeName"), "");
    } else {
        label(&field.get("volumeName"), report);
    }
    if !field.text_of("volumeNamespace").is_empty() {
        label(&field.get("volumeNamespace"), report);
    }
}

fn scale_io(field: &Field<'_, '_>, report: &mut Report) {
    needs(field, &["gateway", "system", "volumeName"], report);
}

fn local(field: &Field<'_, '_>, report: &mut Report) {
    let path = field.get("path");
    if path.text().is_empty() {
        report.required(&path, "");
    } else {
        path_without_backsteps(&path, path.text(), report);
    }
}

fn csi(field: &Field<'_, '_>, report: &mut Report) {
    csi_driver_name(&field.get("driver"), report);
    let secret = field.get("nodePublishSecretRef");
    if secret.is_set() {
        let name = secret.text_of("name");
        if name.is_empty() {
            report.required(&secret.get("name"), "");
        } else {
            report.each_of(&field.get("name"), name, dns_subdomain(name));
        }
    }
}

fn persistent_csi(field: &Field<'_, '_>, report: &mut Report) {
    csi_driver_name(&field.get("driver"), report);
    needs(field, &["volumeHandle"], report);
    for name in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let secret = field.get(name);
        if !secret.is_set() {
            continue;
        }
        if secret.text_of("name").is_empty() {
            report.required(&secret.get("name"), "");
        } else {
            subdomain(&secret.get("name"), report);
        }
        if secret.text_of("namespace").is_empty() {
            report.required(&secret.get("namespace"), "");
        } else {
            report.each(&secret.get("namespace"), dns_label(secret.text_of("namespace")));
        }
    }
}

fn ephemeral(field: &Field<'_, '_>, report: &mut Report) {
    let template = field.get("volumeClaimTemplate");
    if template.is_set() {
        template_metadata(&template.get("metadata"), report);
        claims::spec(&template.get("spec"), report);
    } else {
        report.required(&template, "");
    }
}

fn image(field: &Field<'_, '_>, report: &mut Report) {
    report.one_of(&field.get("pullPolicy"), &["Always", "IfNotPresent", "Never"]);
}

fn projected(field: &Field<'_, '_>, report: &mut Report) {
    mode(&field.get("defaultMode"), report);
    let mut paths = BTreeSet::new();
    for source in field.get("sources").items() {
        let before = [
            "secret",
            "configMap",
            "downwardAPI",
            "serviceAccountToken",
            "clusterTrustBundle",
            "podCertificate",
        ];
        let count = before.iter().filter(|name| source.has(name)).count();
        for name in ["secret", "configMap"] {
            if source.has(name) {
                projected_keys(field, &source.get(name), &mut paths, report);
            }
        }
        if source.has("downwardAPI") {
            let downward = source.get("downwardAPI");
            for item in downward.get("items").items() {
                downward_file(&downward.with(item.value()), report);
                unique_path(field, item.text_of("path"), item.text_of("path"), &mut paths, report);
            }
        }
        if source.has("serviceAccountToken") {
            account_token(field, &source.get("serviceAccountToken"), report);
        }
        if source.has("clusterTrustBundle") {
            trust_bundle(field, &source.get("clusterTrustBundle"), &mut paths, report);
        }
        if source.has("podCertificate") {
            pod_certificate(field, &source.get("podCertificate"), &mut paths, report);
        }
        if count > 1 {
            report.forbidden(&source, "may not specify more than 1 volume type per source");
        }
    }
}

fn unique_path<'v>(
    volume: &Field<'_, '_>,
    path: &'v str,
    shown: &str,
    paths: &mut BTreeSet<&'v str>,
    report: &mut Report,
) {
    if !path.is_empty() && !paths.insert(path) {
        report.invalid_text(volume, shown, "conflicting duplicate paths");
    }
}

fn projected_keys<'v>(
    volume: &Field<'_, '_>,
    source: &Field<'v, '_>,
    paths: &mut BTreeSet<&'v str>,
    report: &mut Report,
) {
    needs(source, &["name"], report);
    for item in source.get("items").items() {
        key_to_path(&item, report);
        unique_path(volume, item.text_of("path"), source.text_of("name"), paths, report);
    }
}

fn account_token(volume: &Field<'_, '_>, token: &Field<'_, '_>, report: &mut Report) {
    let seconds = token.get("expirationSeconds");
    if seconds.number() < 600 {
        report.invalid_number(&seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds.number() > 1 << 32 {
        report.invalid(&seconds, "may not specify a duration larger than 2^32 seconds");
    }
    let path = volume.named("path", token.member("path"));
    if path.text().is_empty() {
        report.required(&path, "");
    } else {
        local_non_reserved_path(&path, report);
    }
}

fn trust_bundle<'v>(
    volume: &Field<'_, '_>,
    bundle: &Field<'v, '_>,
    paths: &mut BTreeSet<&'v str>,
    report: &mut Report,
) {
    let (name, signer) = (bundle.get("name"), bundle.get("signerName"));
    match (name.is_set(), signer.is_set()) {
        (true, true) => report.invalid(bundle, "only one of name and signerName may be used"),
        (true, false) => {
            if name.text().is_empty() {
                report.required(&name, "must be a valid object name");
            }
            for problem in signers::trust_bundle_name(name.text()) {
                report.invalid(&name, &format!("not a valid clustertrustbundlename: {problem}"));
            }
            if bundle.has("labelSelector") {
                let why = "labelSelector must be unset if name is specified";
                report.invalid(&bundle.get("labelSelector"), why);
            }
        }
        (false, true) => {
            if signer.text().is_empty() {
                report.required(&signer, "must be a valid signer name");
            }
            signers::signer_name(&signer, report);
            labels::selector(&bundle.get("labelSelector"), report);
        }
        (false, false) => report.required(bundle, "either name or signerName must be specified"),
    }
    needs(bundle, &["path"], report);
    local_non_reserved_path(&bundle.get("path"), report);
    let path = bundle.text_of("path");
    if !paths.insert(path) {
        report.invalid_text(volume, path, "conflicting duplicate paths");
    }
}

fn pod_certificate<'v>(
    volume: &Field<'_, '_>,
    certificate: &Field<'v, '_>,
    paths: &mut BTreeSet<&'v str>,
    report: &mut Report,
) {
    const KEY_TYPES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    signers::signer_name(&certificate.get("signerName"), report);
    let key_type = certificate.get("keyType");
    if !KEY_TYPES.contains(&key_type.text()) {
        report.not_supported(&key_type, &KEY_TYPES);
    }
    let seconds = certificate.get("maxExpirationSeconds");
    if let Some(number) = seconds.integer() {
        let most =
            if signers::is_of_kubernetes(certificate.text_of("signerName")) { 86_400 } else { 7_862_400 };
        if number < 3600 {
            report.invalid(&seconds, "if provided, maxExpirationSeconds must be >= 3600");
        }
        if number > most {
            report.invalid(&seconds, &format!("if provided, maxExpirationSeconds must be <= {most}"));
        }
    }
    let names = ["credentialBundlePath", "keyPath", "certificateChainPath"];
    if names.iter().all(|name| certificate.text_of(name).is_empty()) {
        report.required(
            certificate,
            "specify at least one of credentialBundlePath, keyPath, and certificateChainPath",
        );
    }
    for name in names {
        let path = certificate.get(name);
        if !path.text().is_empty() {
            local_non_reserved_path(&path, report);
            unique_path(volume, path.text(), path.text(), paths, report);
        }
    }
}
