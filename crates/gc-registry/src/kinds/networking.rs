//! The group networking.k8s.io.

mod ingress;
mod ingress_class;
mod ip_address;
mod network_policy;
mod service_cidr;

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] = &[
    ("v1", "ingressclasses", Rules::of::<ingress_class::IngressClass>()),
    ("v1", "ingresses", Rules::of::<ingress::Ingress>()),
    ("v1", "ipaddresses", Rules::of::<ip_address::IpAddress>()),
    ("v1", "networkpolicies", Rules::of::<network_policy::NetworkPolicy>()),
    ("v1", "servicecidrs", Rules::of::<service_cidr::ServiceCidr>()),
];
