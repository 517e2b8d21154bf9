//! The group autoscaling.

mod conversion;
mod horizontal_pod_autoscaler;
mod metrics;

pub(super) use conversion::{to_v1, to_v2};

use super::kind::{Rules, ServedKind};

pub(super) const KINDS: &[ServedKind] = &[
    (
        "v1",
        "horizontalpodautoscalers",
        Rules::of::<horizontal_pod_autoscaler::HorizontalPodAutoscaler<true>>(),
    ),
    (
        "v2",
        "horizontalpodautoscalers",
        Rules::of::<horizontal_pod_autoscaler::HorizontalPodAutoscaler<false>>(),
    ),
];
