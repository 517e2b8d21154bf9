//! The types of expressions and of their values.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Type of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// `null_type`
    Null,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `uint`
    Uint,
    /// `double`
    Double,
    /// `string`
    Text,
    /// `bytes`
    Bytes,
    /// `google.protobuf.Duration`
    Duration,
    /// `google.protobuf.Timestamp`
    Timestamp,
    /// Type that is only known when the expression is evaluated.
    Dyn,
    /// Type of an invalid part.
    Error,
    /// A type as a value.
    Type(Arc<Type>),
    /// `list`
    List(Arc<Type>),
    /// `map`
    Map(Arc<Type>, Arc<Type>),
    /// `optional_type`
    Optional(Arc<Type>),
    /// An object with known fields.
    Object(Arc<ObjectType>),
    /// A type of a library, such as `kubernetes.Quantity`.
    Library(&'static str),
    /// Type that is not known yet.
    Unknown(u32),
}

/// An object with known fields. Types with the same name are the same type.
#[derive(Clone, Debug, Default)]
pub struct ObjectType {
    /// Name of the type.
    pub name: String,
    /// Fields, as expressions name them.
    pub fields: BTreeMap<String, Type>,
    /// True if objects may have other fields, about which nothing is known.
    pub is_open: bool,
}

impl PartialEq for ObjectType {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ObjectType {}

impl Type {
    /// Creates the type of lists with elements of a type.
    #[must_use]
    pub fn list(item: Type) -> Self {
        Self::List(Arc::new(item))
    }

    /// Creates the type of maps with keys and values of these types.
    #[must_use]
    pub fn map(key: Type, value: Type) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// Creates the type of optional values of a type.
    #[must_use]
    pub fn optional(value: Type) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// Creates an object type.
    #[must_use]
    pub fn object(name: &str, fields: impl IntoIterator<Item = (String, Type)>) -> Self {
        let fields = fields.into_iter().collect();
        Self::Object(Arc::new(ObjectType { name: name.to_owned(), fields, is_open: false }))
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Reports whether values may be null, as in protocol buffers.
    pub(crate) fn is_nullable(&self) -> bool {
        matches!(
            self,
            Self::Object(_)
                | Self::Library(_)
                | Self::Optional(_)
                | Self::Duration
                | Self::Timestamp
                | Self::Null
        )
    }

    /// Reports whether all values have the same size.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Double | Self::Duration | Self::Int | Self::Timestamp | Self::Uint => true,
            Self::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::Text => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Dyn | Self::Unknown(_) => f.write_str("dyn"),
            Self::Error => f.write_str("!error!"),
            Self::Type(inner) => write!(f, "type({inner})"),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(value) => write!(f, "optional_type({value})"),
            Self::Object(object) => f.write_str(&object.name),
            Self::Library(name) => f.write_str(name),
        }
    }
}

/// A type with the limits of a schema, on which cost estimates are based.
#[derive(Clone, Debug)]
pub struct DeclaredType {
    /// Shape of the type.
    pub shape: Shape,
    /// Maximum number of elements, entries, characters or bytes of a value.
    pub most_elements: u64,
    /// Minimum size of a value in JSON, in bytes.
    pub least_bytes: u64,
}

/// Structure of a declared type.
#[derive(Clone, Debug)]
pub enum Shape {
    /// A scalar, or a value of unknown structure.
    Scalar(Type),
    /// A list.
    List(Arc<DeclaredType>),
    /// A map with texts as keys.
    Map(Arc<DeclaredType>),
    /// An object with its fields, as expressions name them.
    Object(BTreeMap<String, Arc<DeclaredType>>),
}

/// Maximum size of requests in bytes, which limits values without a limit of their own.
const LARGEST_REQUEST: u64 = 3 * 1024 * 1024;

impl DeclaredType {
    /// Declares a scalar.
    #[must_use]
    pub fn scalar(scalar: Type, most_elements: u64, least_bytes: u64) -> Self {
        Self { shape: Shape::Scalar(scalar), most_elements, least_bytes }
    }

    /// Declares a list with this maximum number of elements, or as many as a request can hold.
    #[must_use]
    pub fn list(item: Arc<DeclaredType>, most: Option<u64>) -> Self {
        let most = most.unwrap_or_else(|| (LARGEST_REQUEST - 2) / (item.least_bytes + 1));
        Self { shape: Shape::List(item), most_elements: most, least_bytes: 2 }
    }

    /// Declares a map with this maximum number of entries, or as many as a request can hold.
    #[must_use]
    pub fn map(value: Arc<DeclaredType>, most: Option<u64>) -> Self {
        /// Size of an entry without its value.
        const ENTRY: u64 = 6;
        let most = most.unwrap_or_else(|| (LARGEST_REQUEST - 2) / (value.least_bytes + ENTRY));
        Self { shape: Shape::Map(value), most_elements: most, least_bytes: 2 }
    }

    /// Returns the maximum number of such values in one request.
    #[must_use]
    pub fn most_in_request(&self) -> u64 {
        LARGEST_REQUEST / (self.least_bytes + 1)
    }

    /// Maximum length of a text in a request, in bytes.
    pub const LONGEST_TEXT: u64 = LARGEST_REQUEST - 2;

    /// Returns the type without its limits; objects are named by their path.
    #[must_use]
    pub fn to_type(&self, name: &str) -> Type {
        match &self.shape {
            Shape::Scalar(scalar) => scalar.clone(),
            Shape::List(item) => Type::list(item.to_type(&format!("{name}.@idx"))),
            Shape::Map(value) => Type::map(Type::Text, value.to_type(&format!("{name}.@elem"))),
            Shape::Object(fields) => {
                let typed = |(field, declared): (&String, &Arc<DeclaredType>)| {
                    (field.clone(), declared.to_type(&format!("{name}.{field}")))
                };
                Type::object(name, fields.iter().map(typed))
            }
        }
    }
}
