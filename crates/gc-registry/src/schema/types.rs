//! The schema type that built-in and custom kinds share.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

/// Schema of the values at one position in a document: of a whole object, of a field, of the items of a list. The same type
/// describes built-in kinds and the structural schemas of custom resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// Name of the OpenAPI definition, such as `io.k8s.api.core.v1.PodSpec`; `None` for anonymous schemas.
    pub name: Option<Arc<str>>,
    /// Named Go type of a value without a definition (built-in kinds).
    pub go: Option<Box<GoType>>,
    /// Type of the values.
    pub node: Node,
    /// True if `null` is a value (custom resources; built-in kinds accept `null` everywhere and drop the field).
    pub nullable: bool,
    /// Default of an absent field.
    pub default: Option<Value>,
    /// `x-kubernetes-preserve-unknown-fields`: unspecified fields are kept unchanged.
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`: an object with apiVersion, kind and metadata, which need no schema.
    pub embedded_resource: bool,
    /// Value validations, for custom resources.
    pub validations: Option<Box<Validations>>,
}

/// Shape of a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Node {
    /// Any JSON value: `RawExtension`, `JSON`, a schema without a type.
    #[default]
    Any,
    /// An object with known fields.
    Object(Object),
    /// An object whose keys are data, with a common schema for all values.
    Map(MapNode),
    /// An array.
    List(List),
    /// A string.
    String(StringFormat),
    /// A whole number.
    Integer(IntegerFormat),
    /// A number.
    Number,
    /// A boolean.
    Boolean,
    /// A whole number or a string.
    IntOrString,
    /// A quantity: a string, or a number interpreted as one.
    Quantity,
}

/// A named Go type that is not a struct, such as `v1.Protocol`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoType {
    /// Name as printed by Go.
    pub name: &'static str,
    /// Values of an enumeration, sorted; empty for other types.
    pub enumeration: Vec<&'static str>,
}

/// An object with known fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    /// Fields by name.
    pub properties: BTreeMap<Arc<str>, Property>,
    /// Names of required fields (custom resources; for built-in kinds only documentation).
    pub required: Vec<Arc<str>>,
    /// Fields that Go encodes regardless of their value (built-in kinds).
    pub always: Vec<Arc<str>>,
    /// Discriminator and members of a union (built-in kinds): `type/queuing:Queuing`.
    pub union: Option<&'static str>,
    /// Granularity of ownership in server-side apply.
    pub map_type: Ownership,
}

/// A field of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Property {
    /// Schema of its values.
    pub schema: SchemaRef,
    /// Treatment by a strategic merge patch.
    pub patch: PatchStrategy,
    /// True if the field is a unit in server-side apply although its type is not.
    pub atomic: bool,
    /// Granularity of ownership declared by the field, if any.
    pub map_type: Option<Ownership>,
    /// True for a pointer in Go: its zero value differs from its absence (built-in kinds).
    pub pointer: bool,
    /// True if Go omits the field when it is empty (built-in kinds).
    pub omit_empty: bool,
    /// True if Go encodes the field regardless of its value, so in server-side apply no manager adds or removes it.
    pub always: bool,
    /// True if the field's feature gate is off in the served version: writes drop it (built-in kinds).
    pub is_off: bool,
    /// Embedded structs that declare the field; Go's decoder names them in its errors.
    pub embedded_in: Vec<&'static str>,
}

/// An object whose keys are data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MapNode {
    /// Schema of all values.
    pub values: SchemaRef,
    /// Granularity of the map in server-side apply.
    pub map_type: Ownership,
}

/// An array.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct List {
    /// Schema of the items.
    pub items: SchemaRef,
    /// Ownership of the list in server-side apply.
    pub list_type: ListType,
}

/// Granularity of server-side apply: parts of an object, or only the whole (`x-kubernetes-map-type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ownership {
    /// Each field separately.
    #[default]
    Granular,
    /// All fields together.
    Atomic,
}

/// `x-kubernetes-list-type` with `x-kubernetes-list-map-keys`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Explicitly a single unit.
    Atomic,
    /// Not specified, so the list is a single unit.
    #[default]
    Unspecified,
    /// Unique scalars.
    Set,
    /// Objects, identified by the values of these keys.
    Map(Vec<Arc<str>>),
}

impl ListType {
    /// Reports whether items are identified and owned individually.
    #[must_use]
    pub fn is_associative(&self) -> bool {
        matches!(self, Self::Set | Self::Map(_))
    }
}

/// `x-kubernetes-patch-strategy` with `x-kubernetes-patch-merge-key`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// True if lists are merged; otherwise, they are replaced.
    pub merge: bool,
    /// True if an object is replaced as a whole.
    pub replace: bool,
    /// `retainKeys`
    pub retain_keys: bool,
    /// Field that identifies the items of a merged list of objects.
    pub merge_key: Option<Arc<str>>,
}

/// Formats of strings that affect decoding or validation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StringFormat {
    /// None.
    #[default]
    Plain,
    /// `byte`: base64.
    Byte,
    /// RFC 3339, in whole seconds (`metav1.Time`) for built-in kinds.
    DateTime,
    /// RFC 3339 with microseconds (`metav1.MicroTime`).
    MicroTime,
    /// Go duration (`metav1.Duration`).
    Duration,
    /// Any other format, by the name that a definition uses.
    Other(Arc<str>),
}

/// Formats of whole numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntegerFormat {
    /// 32 bits.
    Int32,
    /// 64 bits.
    #[default]
    Int64,
}

/// Value validations of structural schemas, with the keywords of `openAPIV3Schema`. The branches of `allOf` and similar keywords
/// are whole schemas, which validate but do not prune or default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Validations {
    /// `enum`
    pub enumeration: Option<Vec<Value>>,
    /// `minimum`
    pub minimum: Option<f64>,
    /// `exclusiveMinimum`
    pub exclusive_minimum: bool,
    /// `maximum`
    pub maximum: Option<f64>,
    /// `exclusiveMaximum`
    pub exclusive_maximum: bool,
    /// `multipleOf`
    pub multiple_of: Option<f64>,
    /// `minLength`, in characters
    pub min_length: Option<u64>,
    /// `maxLength`, in characters
    pub max_length: Option<u64>,
    /// `pattern`
    pub pattern: Option<Arc<str>>,
    /// `format` of a number that the type of the schema does not express.
    pub number_format: Option<&'static str>,
    /// True if `anyOf` permits an integer or a string.
    pub is_integer_or_string: bool,
    /// `minItems`
    pub min_items: Option<u64>,
    /// `maxItems`
    pub max_items: Option<u64>,
    /// `uniqueItems`
    pub unique_items: bool,
    /// `minProperties`
    pub min_properties: Option<u64>,
    /// `maxProperties`
    pub max_properties: Option<u64>,
    /// `allOf`
    pub all_of: Vec<SchemaRef>,
    /// `anyOf`
    pub any_of: Vec<SchemaRef>,
    /// `oneOf`
    pub one_of: Vec<SchemaRef>,
    /// `not`
    pub not: Option<SchemaRef>,
    /// `x-kubernetes-validations`: kept and shown, but not evaluated here.
    pub rules: Vec<Value>,
}

/// A shared schema: given inline, or a named definition that is looked up at its first use, so that recursive definitions
/// terminate, and a kind costs nothing before it is used.
#[derive(Clone)]
pub struct SchemaRef(Reference);

#[derive(Clone)]
enum Reference {
    Inline(Arc<Schema>),
    Named { name: Arc<str>, found: OnceLock<Arc<Schema>> },
}

impl SchemaRef {
    /// Refers to a definition of the built-in types, which is looked up at its first use.
    pub(super) fn named(name: Arc<str>) -> Self {
        Self(Reference::Named { name, found: OnceLock::new() })
    }

    /// Returns the schema for sharing.
    #[must_use]
    pub fn shared(&self) -> &Arc<Schema> {
        match &self.0 {
            Reference::Inline(schema) => schema,
            Reference::Named { name, found } => found.get_or_init(|| super::builtin::definition(name)),
        }
    }
}

impl Deref for SchemaRef {
    type Target = Schema;
    fn deref(&self) -> &Schema {
        self.shared()
    }
}

impl From<Schema> for SchemaRef {
    fn from(schema: Schema) -> Self {
        Self(Reference::Inline(Arc::new(schema)))
    }
}

impl From<Arc<Schema>> for SchemaRef {
    fn from(schema: Arc<Schema>) -> Self {
        Self(Reference::Inline(schema))
    }
}

impl Default for SchemaRef {
    fn default() -> Self {
        Schema::default().into()
    }
}

// Prints the name if there is one, because definitions may contain themselves.
impl fmt::Debug for SchemaRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Reference::Inline(schema) => schema.fmt(f),
            Reference::Named { name, .. } => write!(f, "SchemaRef({name})"),
        }
    }
}

impl PartialEq for SchemaRef {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Reference::Inline(a), Reference::Inline(b)) => a == b,
            (Reference::Named { name: a, .. }, Reference::Named { name: b, .. }) => a == b,
            _ => false,
        }
    }
}

impl Schema {
    /// Creates an anonymous schema with a shape.
    #[must_use]
    pub fn of(node: Node) -> Self {
        Self { node, ..Self::default() }
    }

    /// Returns the schema of a field, or of the value of a key; `None` if nothing is known about it.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Schema> {
        match &self.node {
            Node::Object(object) => object.properties.get(name).map(|property| &*property.schema),
            Node::Map(map) => Some(&map.values),
            _ => None,
        }
    }
}

/// Returns the zero value of a scalar; `None` if it is null.
pub(super) fn scalar(node: &Node) -> Option<Value> {
    match node {
        Node::String(StringFormat::Plain | StringFormat::Other(_)) => Some("".into()),
        Node::Integer(_) | Node::Number => Some(0.into()),
        Node::Boolean => Some(false.into()),
        _ => None,
    }
}
