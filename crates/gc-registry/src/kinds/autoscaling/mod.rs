//! The group autoscaling.

mod horizontal_pod_autoscaler;
mod metrics;

use super::kind::{Rules, Served};

pub(super) const KINDS: &[Served] = &[
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
