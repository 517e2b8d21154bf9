//! The values of expressions.

use std::cmp::Ordering;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::budget::{Budget, EvalError, failed};
use crate::text;
use crate::time::{Timestamp, parse_duration};

/// Result of an expression, or of a part of one.
pub(crate) type Evaluation<'v> = Result<Val<'v>, EvalError>;

/// The part of a value's schema that expressions see.
pub trait Typing: std::fmt::Debug {
    /// Reports whether numbers are doubles, even if they are whole.
    fn is_double(&self) -> bool;
    /// Returns the `format` of a text, if any.
    fn format(&self) -> Option<&str>;
    /// Reports whether the value is an object with known fields; one that is null counts as missing.
    fn is_object(&self) -> bool;
    /// Returns the schema of a list's elements.
    fn item(&self) -> Option<&dyn Typing>;
    /// Returns the schema of a member of a map or an object.
    fn field(&self, name: &str) -> Option<&dyn Typing>;
}

/// A value. Values from a document are borrowed.
#[derive(Clone, Debug)]
pub enum Val<'v> {
    /// `null`
    Null,
    /// `bool`
    Bool(bool),
    /// `int`
    Int(i64),
    /// `uint`
    Uint(u64),
    /// `double`
    Double(f64),
    /// `string`
    Text(Rc<str>),
    /// `bytes`
    Bytes(Rc<[u8]>),
    /// Duration in nanoseconds.
    Duration(i64),
    /// `timestamp`
    Timestamp(Timestamp),
    /// Quantity in billionths.
    Quantity(i128),
    /// A URL.
    Url(Rc<crate::url::Url>),
    /// An address.
    Ip(std::net::IpAddr),
    /// A network: an address and the length of its prefix.
    Cidr(std::net::IpAddr, u8),
    /// A semantic version.
    Semver(Rc<crate::semver::Semver>),
    /// A format of texts.
    Format(&'static str),
    /// An authorizer, or a check under construction.
    Check(Rc<crate::authority::Check<'v>>),
    /// The decision of an authorizer.
    Decision(bool),
    /// An array or an object of a document.
    Json(&'v Value, Option<&'v dyn Typing>),
    /// A list created by the expression.
    List(Rc<Vec<Val<'v>>>),
    /// A map created by the expression, in its order.
    Map(Rc<Vec<(Val<'v>, Val<'v>)>>),
    /// An optional value.
    Optional(Option<Rc<Val<'v>>>),
    /// The name of a type.
    Type(&'static str),
}

impl<'v> Val<'v> {
    /// Creates a value from a document, typed by its schema.
    #[must_use]
    pub fn of(value: &'v Value, schema: Option<&'v dyn Typing>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Number(number) => match number.as_i64() {
                Some(whole) if !schema.is_some_and(Typing::is_double) => Self::Int(whole),
                _ => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => typed_text(text, schema),
            Value::Array(_) | Value::Object(_) => Self::Json(value, schema),
        }
    }

    /// Creates a text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// Creates a map with these entries, in order.
    #[must_use]
    pub fn map(entries: Vec<(Self, Self)>) -> Self {
        Self::Map(Rc::new(entries))
    }

    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(Rc::new(items))
    }

    /// Returns the name of the value's type in messages.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Check(check) => check.type_name(),
            Self::Decision(_) => "kubernetes.authorization.Decision",
            Self::Url(_) => "kubernetes.URL",
            Self::Ip(_) => "net.IP",
            Self::Cidr(..) => "net.CIDR",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Json(Value::Array(_), _) | Self::List(_) => "list",
            Self::Json(..) | Self::Map(_) => "map",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
        }
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Self::List(_) | Self::Json(Value::Array(_), _))
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self, Self::Map(_) | Self::Json(Value::Object(_), _))
    }

    /// Returns one element of a list.
    pub(crate) fn item(&self, index: usize) -> Option<Val<'v>> {
        match self {
            Self::List(items) => items.get(index).cloned(),
            Self::Json(Value::Array(items), schema) => {
                items.get(index).map(|item| Val::of(item, schema.and_then(Typing::item)))
            }
            _ => None,
        }
    }

    /// Returns the elements of a list.
    pub(crate) fn items(&self) -> Option<Vec<Val<'v>>> {
        match self {
            Self::List(items) => Some(items.to_vec()),
            Self::Json(Value::Array(items), schema) => {
                let item_schema = schema.and_then(Typing::item);
                Some(items.iter().map(|item| Val::of(item, item_schema)).collect())
            }
            _ => None,
        }
    }

    /// Returns the entries of a map.
    pub(crate) fn entries(&self) -> Option<Vec<(Val<'v>, Val<'v>)>> {
        match self {
            Self::Map(entries) => Some(entries.to_vec()),
            Self::Json(Value::Object(map), schema) => Some(
                map.iter()
                    .map(|(name, value)| {
                        (Val::text(name), Val::of(value, schema.and_then(|schema| schema.field(name))))
                    })
                    .collect(),
            ),
            _ => None,
        }
    }

    /// Returns the number of elements, entries, characters or bytes.
    pub(crate) fn size(&self) -> Option<usize> {
        match self {
            Self::List(items) => Some(items.len()),
            Self::Map(entries) => Some(entries.len()),
            Self::Json(Value::Array(items), _) => Some(items.len()),
            Self::Json(Value::Object(map), _) => Some(map.len()),
            Self::Text(text) => Some(text.chars().count()),
            Self::Bytes(bytes) => Some(bytes.len()),
            _ => None,
        }
    }

    /// Returns a part of a value: an item or a member, or `None` if it is absent.
    pub(crate) fn part(&self, key: &Val<'v>) -> Result<Option<Val<'v>>, EvalError> {
        if self.is_list() {
            return Ok(index_of(key)?.and_then(|index| self.item(index)));
        }
        Ok(self.member(key))
    }

    /// Returns a member of a map; `None` if it is absent, or the value is not a map.
    pub(crate) fn member(&self, key: &Val<'v>) -> Option<Val<'v>> {
        match (self, key) {
            (Self::Json(Value::Object(map), schema), Self::Text(name)) => map
                .get(&**name)
                .filter(|value| !value.is_null() || !schema.is_some_and(Typing::is_object))
                .map(|value| Val::of(value, schema.and_then(|schema| schema.field(name)))),
            (Self::Check(check), Self::Text(name)) => check.member(name),
            (Self::Map(entries), key) => {
                entries.iter().find(|(found, _)| found.is_same(key)).map(|(_, value)| value.clone())
            }
            _ => None,
        }
    }

    /// Reports whether two values are equal. Each comparison of parts costs.
    pub(crate) fn equals(&self, other: &Val<'v>, budget: &mut Budget) -> Result<bool, EvalError> {
        budget.spend(1)?;
        match (self, other) {
            (Self::Json(a, _), Self::Json(b, _)) if std::ptr::eq(*a, *b) => return Ok(true),
            (Self::Optional(Some(a)), Self::Optional(Some(b))) => return a.equals(b, budget),
            (Self::Optional(a), Self::Optional(b)) => return Ok(a.is_none() && b.is_none()),
            _ => {}
        }
        if (self.is_list() && other.is_list()) || (self.is_map() && other.is_map()) {
            if self.size() != other.size() {
                return Ok(false);
            }
            budget.spend(self.size().unwrap_or_default())?;
        }
        if let (Some(a), Some(b)) = (self.items(), other.items()) {
            for (a, b) in a.iter().zip(&b) {
                if !a.equals(b, budget)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        if let (Some(a), true) = (self.entries(), other.is_map()) {
            for (key, value) in &a {
                match (self.member(key), other.member(key)) {
                    (None, None) => {}
                    (Some(_), Some(found)) if value.equals(&found, budget)? => {}
                    _ => return Ok(false),
                }
            }
            return Ok(true);
        }
        Ok(self.is_same(other))
    }

    /// Reports whether two scalar values are equal.
    fn is_same(&self, other: &Val<'v>) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Type(a), Self::Type(b)) | (Self::Format(a), Self::Format(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a, a_bits), Self::Cidr(b, b_bits)) => a == b && a_bits == b_bits,
            _ => self.compare(other) == Some(Ordering::Equal),
        }
    }

    /// Returns the index of the first item that equals this value.
    pub(crate) fn place_in(
        &self,
        items: &[Val<'v>],
        budget: &mut Budget,
    ) -> Result<Option<usize>, EvalError> {
        for (index, item) in items.iter().enumerate() {
            if item.equals(self, budget)? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Charges the budget for values that an expression created, for each occurrence; documents are free.
    pub(crate) fn weigh(&self, levels: usize, budget: &mut Budget) -> Result<(), EvalError> {
        let inner = || levels.checked_sub(1).ok_or_else(|| EvalError::Failed("nested too deeply".into()));
        match self {
            Self::List(items) => {
                budget.spend(items.len())?;
                let inner = inner()?;
                items.iter().try_for_each(|item| item.weigh(inner, budget))
            }
            Self::Map(entries) => {
                budget.spend(entries.len())?;
                let inner = inner()?;
                entries.iter().try_for_each(|(_, value)| value.weigh(inner, budget))
            }
            Self::Optional(Some(value)) => value.weigh(inner()?, budget),
            _ => Ok(()),
        }
    }

    /// Compares two values, if they have an order.
    pub(crate) fn compare(&self, other: &Val<'v>) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Some(a.cmp(b)),
            (Self::Quantity(a), Self::Quantity(b)) => Some(a.cmp(b)),
            (Self::Semver(a), Self::Semver(b)) => Some(a.compare(b)),
            _ => match (self.whole(), other.whole()) {
                (Some(a), Some(b)) => Some(a.cmp(&b)),
                _ => self.number()?.partial_cmp(&other.number()?),
            },
        }
    }

    fn whole(&self) -> Option<i128> {
        match self {
            Self::Int(value) => Some((*value).into()),
            Self::Uint(value) => Some((*value).into()),
            _ => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "numbers are compared across types as doubles")]
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Uint(value) => Some(*value as f64),
            Self::Double(value) => Some(*value),
            _ => None,
        }
    }
}

/// Returns the index that a value stands for, which may be a whole number of any type; `None` if no list has that many items.
fn index_of(key: &Val<'_>) -> Result<Option<usize>, EvalError> {
    #[expect(clippy::cast_possible_truncation, reason = "a whole number within the range of the type")]
    let index = match key {
        Val::Int(index) => Ok(*index),
        Val::Uint(index) => i64::try_from(*index).map_err(|_| index.to_string()),
        Val::Double(index) if index.fract() == 0.0 && index.abs() < 9.2e18 => Ok(*index as i64),
        Val::Double(index) => Err(text::double(*index)),
        other => return failed(format!("unsupported index type '{}' in list", other.type_name())),
    };
    match index {
        Ok(index) => Ok(usize::try_from(index).ok()),
        Err(shown) => failed(format!("unsupported index value {shown} in list")),
    }
}

fn typed_text<'v>(text: &'v str, schema: Option<&'v dyn Typing>) -> Val<'v> {
    if let Some(format) = schema.and_then(Typing::format) {
        let typed = match format {
            "date-time" => Timestamp::parse(text).and_then(Result::ok).map(Val::Timestamp),
            "date" => Timestamp::parse(&format!("{text}T00:00:00Z")).and_then(Result::ok).map(Val::Timestamp),
            "duration" => parse_duration(text).map(Val::Duration),
            "byte" => STANDARD.decode(text).ok().map(|bytes| Val::Bytes(bytes.into())),
            _ => None,
        };
        if let Some(typed) = typed {
            return typed;
        }
    }
    Val::text(text)
}
