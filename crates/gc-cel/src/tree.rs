//! The tree of an expression.

use std::sync::Arc;

/// A part of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    /// Number of the node within its tree; the numbers are dense.
    pub(crate) id: usize,
    /// Position that errors point at, as a byte offset: an operator, a bracket, or the start of anything else.
    pub(crate) at: usize,
    /// The node's content.
    pub(crate) expression: Expression,
}

/// Part of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(String),
    Bytes(Vec<u8>),
    Name(String),
    /// `operand.field`, or its optional with `?`.
    Select {
        operand: Box<Node>,
        field: String,
        optional: bool,
    },
    /// `operand[index]`, or its optional with `?`.
    Index {
        operand: Box<Node>,
        index: Box<Node>,
        optional: bool,
    },
    /// `has(operand.field)`
    Has {
        operand: Box<Node>,
        field: String,
    },
    /// A call of a function, or of a method with its target. Functions of a namespace, such as `sets.contains`, have no target.
    Call {
        target: Option<Box<Node>>,
        name: String,
        arguments: Vec<Node>,
    },
    /// A macro over the elements of a list, the keys of a map, or the value of an optional.
    Macro {
        kind: Macro,
        range: Box<Node>,
        names: Vec<Arc<str>>,
        bodies: Vec<Node>,
    },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    /// An object of a named type with its fields.
    Struct {
        name: String,
        fields: Vec<(String, Node)>,
    },
    /// `?value` in a list, a map or an object: left out if the optional is empty.
    Optional(Box<Node>),
    Not(Box<Node>),
    Negate(Box<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
    Condition(Box<[Node; 3]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Macro {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformMap,
    TransformMapEntry,
    SortBy,
    OptMap,
    OptFlatMap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    /// Returns the name of the operator's function.
    pub(crate) fn function(self) -> &'static str {
        match self {
            Self::Or => "_||_",
            Self::And => "_&&_",
            Self::Equal => "_==_",
            Self::NotEqual => "_!=_",
            Self::Less => "_<_",
            Self::LessOrEqual => "_<=_",
            Self::Greater => "_>_",
            Self::GreaterOrEqual => "_>=_",
            Self::In => "@in",
            Self::Add => "_+_",
            Self::Subtract => "_-_",
            Self::Multiply => "_*_",
            Self::Divide => "_/_",
            Self::Remainder => "_%_",
        }
    }
}

impl Node {
    /// Returns the direct parts; for a call, the target comes first.
    pub(crate) fn parts(&self) -> Vec<&Node> {
        match &self.expression {
            Expression::Call { target, arguments, .. } => {
                target.as_deref().into_iter().chain(arguments).collect()
            }
            Expression::Select { operand, .. }
            | Expression::Has { operand, .. }
            | Expression::Optional(operand)
            | Expression::Not(operand)
            | Expression::Negate(operand) => vec![operand],
            Expression::Index { operand, index, .. } => vec![operand, index],
            Expression::Macro { range, bodies, .. } => std::iter::once(&**range).chain(bodies).collect(),
            Expression::List(items) => items.iter().collect(),
            Expression::Map(entries) => entries.iter().flat_map(|(key, value)| [key, value]).collect(),
            Expression::Struct { fields, .. } => fields.iter().map(|(_, value)| value).collect(),
            Expression::Binary(_, left, right) => vec![left, right],
            Expression::Condition(parts) => parts.iter().collect(),
            _ => Vec::new(),
        }
    }
}
