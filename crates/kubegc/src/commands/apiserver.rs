//! `kubegc apiserver`: the embedded API server alone.

pub(crate) use gc_embedded::apiserver::{Options, run};
