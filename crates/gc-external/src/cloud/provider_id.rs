//! Canonical form of `spec.providerID`.

/// Returns the form in which a provider ID is compared. Azure and vSphere ignore the case of their IDs and write it in varying
/// ways; the ID of an EC2 or OpenStack instance is unique without the zone or region before it, which may be missing. Other IDs are
/// compared as they are.
pub(crate) fn canonical(id: &str) -> String {
    let Some((scheme, rest)) = id.split_once("://") else { return id.to_owned() };
    let last = rest.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    match scheme.to_ascii_lowercase().as_str() {
        "azure" | "vsphere" => id.to_ascii_lowercase(),
        "aws" if last.len() > 2 && last.starts_with("i-") => format!("aws://{last}"),
        "openstack" if !last.is_empty() => format!("openstack://{last}"),
        _ => id.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_compared_as_their_cloud_compares_them() {
        let azure =
            "azure:///subscriptions/S/resourceGroups/MC_rg/providers/Microsoft.Compute/virtualMachines/vm-0";
        for (one, other, same) in [
            (azure, &*azure.to_lowercase(), true),
            (azure, &*azure.replace("vm-0", "vm-1"), false),
            ("vsphere://4201A1B2-0000", "vsphere://4201a1b2-0000", true),
            ("aws:///eu-central-1a/i-0AB", "aws:////i-0ab", true),
            ("aws:///eu-central-1a/i-0ab", "aws:///eu-central-1a/i-0ac", false),
            ("aws:///eu-central-1a/fargate-A", "aws:///eu-central-1a/fargate-a", false),
            ("openstack:///9f2b", "openstack://region/9F2B", true),
            ("openstack:///", "openstack://region/", false),
            ("gce://project/zone/name", "gce://project/zone/Name", false),
            ("rack://1", "rack://1", true),
            ("rack", "RACK", false),
        ] {
            assert_eq!(canonical(one) == canonical(other), same, "{one} {other}");
            assert_eq!(canonical(&canonical(one)), canonical(one), "{one}");
        }
    }
}
