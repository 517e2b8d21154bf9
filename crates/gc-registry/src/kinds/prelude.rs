//! Imports for the file of a kind.

pub(crate) use serde_json::{Value, json};

pub(crate) use crate::kinds::access::{
    Members, at, child, existing, fill, fill_absent, fill_zero, flag, integer, is_unset, items, keep,
    keep_metadata, keep_own_metadata, list, members, put, remove, text,
};
pub(crate) use crate::kinds::context::Context;
pub(crate) use crate::kinds::field::Field;
pub(crate) use crate::kinds::kind::{Generation, Kind, Parts, text_label};
pub(crate) use crate::kinds::metadata::{Metadata, MetadataCheck};
pub(crate) use crate::kinds::printers::Says::{Field as F, Text as T};
pub(crate) use crate::kinds::printers::{
    Column, Column as H, NONE, Row, UNSET, int_or_string, shortened, shown_labels, shown_selector,
};
pub(crate) use crate::kinds::report::{IMMUTABLE, NOT_NEGATIVE, POSITIVE, Report, quoted};
pub(crate) use crate::kinds::shared::{disabled, warnings};
