//! A built-in kind: one trait, and its members as a value.

use serde_json::Value;

use super::access::{Members, at, remove, text};
use super::context::Context;
use super::defaults::normal;
use super::field::Field;
use super::metadata::Metadata;
use super::printers::{Column, Row};
use super::report::Report;
use super::shared::selector_text::label_selector_text;
use super::shared::{disabled, warnings};
use crate::target::Target;

/// Presence of `spec` and `status` in a kind. If present, they are written even when empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    /// Neither, or they are omitted when empty.
    Neither,
    Spec,
    /// Both; only the subresource writes the status, together with labels and annotations.
    Status,
    /// Both; only the subresource writes the status, and nothing else.
    StatusOnly,
}

impl Parts {
    pub(crate) fn has_status(self) -> bool {
        matches!(self, Self::Status | Self::StatusOnly)
    }

    pub(crate) fn written(self) -> &'static [&'static str] {
        match self {
            Self::Neither => &[],
            Self::Spec => &["spec"],
            Self::Status | Self::StatusOnly => &["spec", "status"],
        }
    }
}

/// Changes that increase `metadata.generation`, which starts at 1.
#[derive(Clone, Copy)]
pub(crate) enum Generation {
    /// None: there is no generation, and the client's value is kept.
    Never,
    /// A change at one of these paths.
    Counts(&'static [&'static [&'static str]]),
    /// A change at one of these paths, even of a field that is then dropped because its feature is off.
    CountsSent(&'static [&'static [&'static str]]),
}

impl Generation {
    pub(crate) const SPEC: Self = Self::Counts(&[&["spec"]]);

    pub(crate) fn is_counted(self) -> bool {
        !matches!(self, Self::Never)
    }

    pub(crate) fn counts_sent(self) -> bool {
        matches!(self, Self::CountsSent(_))
    }

    /// Reports whether an update changes anything that is counted.
    pub(crate) fn is_raised(self, new: &Value, old: &Value) -> bool {
        match self {
            Self::Never => false,
            Self::Counts(paths) | Self::CountsSent(paths) => {
                paths.iter().any(|path| !means_the_same(at(new, path), at(old, path)))
            }
        }
    }
}

/// Reports whether two values are equal to a reader: absent, `null`, and an empty list are the same.
pub(crate) fn means_the_same(a: Option<&Value>, b: Option<&Value>) -> bool {
    let says_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match (a, b) {
        (None, None) => true,
        (Some(value), None) | (None, Some(value)) => says_nothing(value),
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            a.iter().all(|(key, value)| means_the_same(Some(value), b.get(key)))
                && b.iter().all(|(key, value)| a.contains_key(key) || says_nothing(value))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| means_the_same(Some(a), Some(b)))
        }
        (Some(a), Some(b)) => a == b || says_nothing(a) && says_nothing(b),
    }
}

/// Message of most kinds for a selector with an unknown field, with `{}` for the field.
pub(crate) const UNKNOWN_FIELD_LABEL: &str = "field label not supported: {}";

/// Returns the text at the path that is the name of a label.
pub(crate) fn text_label(name: &str, object: &Value) -> String {
    let path: Vec<&str> = name.split('.').collect();
    text(object, &path).to_owned()
}

/// Rules of one kind. Members without a default are required of every kind.
pub(crate) trait Kind: 'static {
    const PARTS: Parts;
    const GENERATION: Generation;

    /// Rules for the metadata of the kind's objects.
    const METADATA: Metadata = Metadata::DEFAULT;

    /// Name under which kube-apiserver stores its objects, if it is not the name of the resource; a conflict names it.
    const FOLDER: Option<&'static str> = None;

    /// Columns of its tables.
    const COLUMNS: &'static [Column];

    /// Path of its pod template.
    const TEMPLATE: Option<&'static [&'static str]> = None;

    /// Path of the object that describes its pods: the template, or the pod itself.
    const PODS: Option<&'static [&'static str]> = Self::TEMPLATE;

    /// Subresources, other than the status, whose body is the whole object.
    const SUBRESOURCES: &'static [&'static str] = &[];

    /// Fields that lists and watches can select by, other than name and namespace.
    const FIELD_LABELS: &'static [&'static str] = &[];

    /// Message for a selector with another field, with `{}` for the field.
    const UNKNOWN_FIELD_LABEL: &'static str = UNKNOWN_FIELD_LABEL;

    /// Returns the cells of an object in these columns.
    fn cells(row: &Row<'_>) -> Vec<Value>;

    /// Returns the `conditions` of an object's row.
    fn row_conditions(_object: &Value) -> Vec<Value> {
        Vec::new()
    }

    /// Normalizes a decoded object to the form in which a typed server writes it.
    fn normalize(target: Target<'_>, object: &mut Value) {
        normal::normalize(target, object);
    }

    /// Sets the defaults that upstream sets when it decodes an object.
    fn defaults(members: &mut Members);

    /// Drops fields of features that are off by default.
    fn drop_disabled(members: &mut Members) {
        if let Some(path) = Self::TEMPLATE {
            disabled::template(members, path);
        }
    }

    /// Handles the status in a create.
    fn reset_status(object: &mut Value) {
        remove(object, &["status"]);
    }

    /// Sets or removes further fields in a create, before defaults are set once more.
    fn prepare_create(_object: &mut Value, _context: &Context<'_>) {}

    /// Sets the last fields in a create.
    fn complete_create(_object: &mut Value) {}

    /// Keeps or sets further fields in an update; the status has already been kept.
    fn prepare_update(_new: &mut Value, _old: &Value, _context: &Context<'_>) {}

    /// Keeps or sets further fields in an update of the status; the spec has already been kept.
    fn prepare_status(_new: &mut Value, _old: &Value, _context: &Context<'_>) {}

    /// Keeps and sets fields in an update of another subresource.
    fn prepare_subresource(_subresource: &str, _new: &mut Value, _old: &Value, _context: &Context<'_>) {}

    /// Adds warnings about settings that work, but not as their author may expect.
    fn warnings(new: &Value, old: Option<&Value>, texts: &mut Vec<String>) {
        if let Some(path) = Self::TEMPLATE {
            warnings::template(path, new, old, texts);
        }
    }

    /// Returns the value of one of the field labels.
    fn field_label(name: &str, object: &Value) -> String {
        text_label(name, object)
    }

    /// Returns the selector of its pods, as shown in a Scale.
    fn scale_selector(object: &Value) -> String {
        at(object, &["spec", "selector"]).map(label_selector_text).unwrap_or_default()
    }

    /// Checks an object that is about to be created, after defaulting and preparation.
    fn validate(object: &Field<'_, '_>, report: &mut Report);

    /// Checks a prepared update against the stored object.
    fn validate_update(new: &Field<'_, '_>, _old: &Field<'_, '_>, report: &mut Report) {
        Self::validate(new, report);
    }

    /// Checks an update of the status.
    fn validate_status(_new: &Field<'_, '_>, _old: &Field<'_, '_>, _report: &mut Report) {}

    /// Checks an update of another subresource.
    fn validate_subresource(
        _subresource: &str,
        _new: &Field<'_, '_>,
        _old: &Field<'_, '_>,
        _report: &mut Report,
    ) {
    }
}

/// The rules of one kind as a value, with the trait's members under the same names.
pub(crate) struct Rules {
    pub(crate) parts: Parts,
    pub(crate) generation: Generation,
    pub(crate) metadata: Metadata,
    pub(crate) folder: Option<&'static str>,
    pub(crate) pods: Option<&'static [&'static str]>,
    pub(crate) columns: &'static [Column],
    pub(crate) subresources: &'static [&'static str],
    pub(crate) field_labels: &'static [&'static str],
    pub(crate) unknown_field_label: &'static str,
    pub(crate) cells: fn(&Row<'_>) -> Vec<Value>,
    pub(crate) row_conditions: fn(&Value) -> Vec<Value>,
    pub(crate) normalize: fn(Target<'_>, &mut Value),
    pub(crate) defaults: fn(&mut Members),
    pub(crate) drop_disabled: fn(&mut Members),
    pub(crate) reset_status: fn(&mut Value),
    pub(crate) prepare_create: fn(&mut Value, &Context<'_>),
    pub(crate) complete_create: fn(&mut Value),
    pub(crate) prepare_update: fn(&mut Value, &Value, &Context<'_>),
    pub(crate) prepare_status: fn(&mut Value, &Value, &Context<'_>),
    pub(crate) prepare_subresource: fn(&str, &mut Value, &Value, &Context<'_>),
    pub(crate) warnings: fn(&Value, Option<&Value>, &mut Vec<String>),
    pub(crate) field_label: fn(&str, &Value) -> String,
    pub(crate) scale_selector: fn(&Value) -> String,
    pub(crate) validate: fn(&Field<'_, '_>, &mut Report),
    pub(crate) validate_update: fn(&Field<'_, '_>, &Field<'_, '_>, &mut Report),
    pub(crate) validate_status: fn(&Field<'_, '_>, &Field<'_, '_>, &mut Report),
    pub(crate) validate_subresource: fn(&str, &Field<'_, '_>, &Field<'_, '_>, &mut Report),
}

impl Rules {
    pub(crate) const fn of<K: Kind>() -> Self {
        Self {
            parts: K::PARTS,
            generation: K::GENERATION,
            metadata: K::METADATA,
            folder: K::FOLDER,
            pods: K::PODS,
            columns: K::COLUMNS,
            subresources: K::SUBRESOURCES,
            field_labels: K::FIELD_LABELS,
            unknown_field_label: K::UNKNOWN_FIELD_LABEL,
            cells: K::cells,
            row_conditions: K::row_conditions,
            normalize: K::normalize,
            defaults: K::defaults,
            drop_disabled: K::drop_disabled,
            reset_status: K::reset_status,
            prepare_create: K::prepare_create,
            complete_create: K::complete_create,
            prepare_update: K::prepare_update,
            prepare_status: K::prepare_status,
            prepare_subresource: K::prepare_subresource,
            warnings: K::warnings,
            field_label: K::field_label,
            scale_selector: K::scale_selector,
            validate: K::validate,
            validate_update: K::validate_update,
            validate_status: K::validate_status,
            validate_subresource: K::validate_subresource,
        }
    }
}

/// A row of a group's table: version, resource, rules.
pub(crate) type ServedKind = (&'static str, &'static str, Rules);
