//! Parses tokens into the tree of an expression.

use std::sync::Arc;

use crate::declarations;
use crate::issue::Issue;
use crate::lex::{KEYWORDS, PlacedToken, Token, tokens};
use crate::tree::{Expression, Macro, Node, Operator};

/// Maximum nesting of an expression.
const DEEPEST: usize = 100;

/// Maximum depth of an expression's tree, which chains of operators increase as well: evaluating, searching and dropping the tree
/// recurse to that depth.
const DEEPEST_TREE: usize = 150;

/// Maximum length of an expression in bytes.
const LONGEST: usize = 64 * 1024;

/// Precedence of `||` and `&&`.
const OR: usize = 0;
const AND: usize = 1;

/// Possible starts of an expression, as the grammar's error lists them.
const STARTS: &str = "'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";

/// An expression, and the depth of its tree.
type Deep = (Node, usize);

/// A parsed expression.
pub(crate) struct ParsedExpression {
    pub(crate) root: Node,
    /// Number of nodes.
    pub(crate) nodes: usize,
}

/// Parses an expression; fails with the list of issues.
pub(crate) fn parse(text: &str) -> Result<ParsedExpression, Vec<Issue>> {
    if text.len() > LONGEST {
        let why = format!("expression code point size exceeds limit: size: {}, limit {LONGEST}", text.len());
        return Err(vec![Issue::new(0, why)]);
    }
    let (tokens, mut issues) = tokens(text);
    let mut parser = Parser { tokens, text, next: 0, depth: 0, nodes: 0 };
    let parsed = parser.expression().and_then(|(root, _)| match parser.tokens.get(parser.next) {
        None => Ok(root),
        Some(_) => Err(parser.unexpected("<EOF>")),
    });
    match parsed {
        Ok(root) if issues.is_empty() => Ok(ParsedExpression { root, nodes: parser.nodes }),
        Ok(_) => Err(issues),
        Err(issue) => {
            issues.push(issue);
            Err(issues)
        }
    }
}

/// Reports whether an expression contains a name.
pub(crate) fn mentions(text: &str, name: &str) -> bool {
    let (tokens, issues) = tokens(text);
    issues.is_empty()
        && tokens.iter().any(|placed| matches!(&placed.token, Token::Name(found) if found == name))
}

struct Parser<'t> {
    tokens: Vec<PlacedToken>,
    text: &'t str,
    next: usize,
    depth: usize,
    nodes: usize,
}

impl Parser<'_> {
    fn node(&mut self, at: usize, expression: Expression) -> Node {
        self.nodes += 1;
        Node { id: self.nodes - 1, at, expression }
    }

    /// Returns the position of the next token.
    fn place(&self) -> usize {
        self.tokens.get(self.next).map_or(self.text.len(), |placed| placed.at)
    }

    fn found(&self) -> &str {
        self.tokens.get(self.next).map_or("<EOF>", |placed| &self.text[placed.at..placed.end])
    }

    fn unexpected(&self, wanted: &str) -> Issue {
        Issue::syntax(self.place(), format!("mismatched input '{}' expecting {wanted}", self.found()))
    }

    fn too_deep(&self, most: usize) -> Issue {
        Issue::new(self.place(), format!("nested deeper than {most}"))
    }

    fn sign(&self) -> Option<&'static str> {
        match self.tokens.get(self.next)?.token {
            Token::Sign(sign) => Some(sign),
            _ => None,
        }
    }

    fn eat(&mut self, sign: &str) -> bool {
        let found = self.sign() == Some(sign);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), Issue> {
        if self.eat(sign) {
            return Ok(());
        }
        if self.next == self.tokens.len() {
            return Err(Issue::syntax(self.place(), format!("missing '{sign}' at '<EOF>'")));
        }
        Err(self.unexpected(&format!("'{sign}'")))
    }

    fn expression(&mut self) -> Result<Deep, Issue> {
        if self.depth == DEEPEST {
            return Err(self.too_deep(DEEPEST));
        }
        self.depth += 1;
        let condition = self.binary(OR)?;
        let at = self.place();
        let expression = if self.eat("?") {
            let yes = self.binary(OR)?;
            self.expect(":")?;
            let no = self.expression()?;
            let depth = self.deeper(&[condition.1, yes.1, no.1])?;
            let parts = Box::new([condition.0, yes.0, no.0]);
            (self.node(at, Expression::Condition(parts)), depth)
        } else {
            condition
        };
        self.depth -= 1;
        Ok(expression)
    }

    /// Returns the operator at this position, and its precedence.
    fn operator(&self) -> Option<(Operator, usize)> {
        let (sign, operator) = match &self.tokens.get(self.next)?.token {
            Token::Name(name) if name == "in" => ("in", Operator::In),
            Token::Sign(sign) => (*sign, operator_of(sign)?),
            _ => return None,
        };
        let level = match sign {
            "||" => OR,
            "&&" => AND,
            "+" | "-" => 3,
            "*" | "/" | "%" => 4,
            _ => 2,
        };
        Some((operator, level))
    }

    /// Parses an operand, and the following operators of at least the requested precedence.
    fn binary(&mut self, least: usize) -> Result<Deep, Issue> {
        let mut left = self.unary()?;
        while let Some((operator, level)) = self.operator().filter(|(_, level)| *level >= least) {
            if level <= AND {
                left = self.chain(operator, level, left)?;
                continue;
            }
            let at = self.place();
            self.next += 1;
            let right = self.binary(level + 1)?;
            left = self.joined(operator, at, left, right)?;
        }
        Ok(left)
    }

    /// Parses a chain of `&&` or `||`: long chains are common, and may be associated in any order.
    fn chain(&mut self, operator: Operator, level: usize, first: Deep) -> Result<Deep, Issue> {
        let mut last = first;
        let mut sides = Vec::new();
        while self.operator() == Some((operator, level)) {
            let at = self.place();
            self.next += 1;
            let right = self.binary(level + 1)?;
            sides.push((std::mem::replace(&mut last, right), at));
        }
        sides.push((last, 0));
        self.balanced(operator, sides)
    }

    /// Returns the depth of an expression around parts of these depths.
    fn deeper(&self, parts: &[usize]) -> Result<usize, Issue> {
        match parts.iter().max() {
            Some(deepest) if *deepest >= DEEPEST_TREE => Err(self.too_deep(DEEPEST_TREE)),
            deepest => Ok(deepest.map_or(1, |deepest| deepest + 1)),
        }
    }

    fn joined(&mut self, operator: Operator, at: usize, left: Deep, right: Deep) -> Result<Deep, Issue> {
        let depth = self.deeper(&[left.1, right.1])?;
        let expression = Expression::Binary(operator, Box::new(left.0), Box::new(right.0));
        Ok((self.node(at, expression), depth))
    }

    /// Builds a chain of one operator as a tree of minimum depth. Each side is given with the position of the operator after it.
    fn balanced(&mut self, operator: Operator, mut sides: Vec<(Deep, usize)>) -> Result<Deep, Issue> {
        while sides.len() > 1 {
            let mut pairs = Vec::with_capacity(sides.len().div_ceil(2));
            let mut rest = sides.into_iter();
            while let Some((left, at)) = rest.next() {
                pairs.push(match rest.next() {
                    Some((right, after)) => (self.joined(operator, at, left, right)?, after),
                    None => (left, at),
                });
            }
            sides = pairs;
        }
        sides.pop().map(|(side, _)| side).ok_or_else(|| self.unexpected("an operand"))
    }

    fn unary(&mut self) -> Result<Deep, Issue> {
        let mut signs = Vec::new();
        while let Some(sign @ ("!" | "-")) = self.sign() {
            if signs.len() == DEEPEST {
                return Err(self.too_deep(DEEPEST));
            }
            signs.push((sign, self.place()));
            self.next += 1;
        }
        // The sign of a number belongs to the literal.
        let literal = self.tokens.get(self.next).map(|placed| &placed.token);
        if let (Some(("-", at)), Some(Token::Literal(number))) = (signs.last().copied(), literal) {
            let negative = match number {
                Expression::Int(value) => Some(Expression::Int(value.wrapping_neg())),
                Expression::Double(value) => Some(Expression::Double(-value)),
                _ => None,
            };
            if let Some(negative) = negative {
                signs.pop();
                self.next += 1;
                let literal = self.node(at, negative);
                let operand = self.members((literal, 1))?;
                return self.signed(&signs, operand);
            }
        }
        let primary = self.primary()?;
        let operand = self.members(primary)?;
        self.signed(&signs, operand)
    }

    fn signed(&mut self, signs: &[(&str, usize)], operand: Deep) -> Result<Deep, Issue> {
        let (mut expression, mut depth) = operand;
        for (sign, at) in signs.iter().rev() {
            depth = self.deeper(&[depth])?;
            let inner = Box::new(expression);
            let outer = if *sign == "!" { Expression::Not(inner) } else { Expression::Negate(inner) };
            expression = self.node(*at, outer);
        }
        Ok((expression, depth))
    }

    /// Parses the fields, calls and indexes after an operand.
    fn members(&mut self, operand: Deep) -> Result<Deep, Issue> {
        let (mut expression, mut depth) = operand;
        loop {
            let Some(sign @ ("." | "[" | "{")) = self.sign() else {
                return Ok((expression, depth));
            };
            let at = self.place();
            if sign == "{" {
                let Some(name) = qualified(&expression) else { return Ok((expression, depth)) };
                self.next += 1;
                let (fields, deepest) = self.fields()?;
                depth = self.deeper(&[deepest])?;
                expression = self.node(at, Expression::Struct { name, fields });
                continue;
            }
            self.next += 1;
            depth = self.deeper(&[depth])?;
            let optional = self.eat("?");
            if sign == "." {
                let field = self.name(if optional { ".?" } else { "." })?;
                let open = self.place();
                if !optional && self.eat("(") {
                    let arguments = self.list(")")?;
                    depth = depth.max(self.deeper(&[arguments.1])?);
                    expression = self.method(expression, field, arguments.0, open)?;
                } else {
                    let operand = Box::new(expression);
                    expression = self.node(at, Expression::Select { operand, field, optional });
                }
            } else {
                let index = self.expression()?;
                self.expect("]")?;
                depth = depth.max(self.deeper(&[index.1])?);
                let (operand, index) = (Box::new(expression), Box::new(index.0));
                expression = self.node(at, Expression::Index { operand, index, optional });
            }
        }
    }

    fn name(&mut self, after: &str) -> Result<String, Issue> {
        if let Some(PlacedToken { token: Token::Name(name), .. }) = self.tokens.get(self.next) {
            let name = name.clone();
            self.next += 1;
            return Ok(name);
        }
        let why = match self.tokens.get(self.next) {
            Some(_) => format!("no viable alternative at input '{after}{}'", self.found()),
            None => format!("no viable alternative at input '{after}'"),
        };
        Err(Issue::syntax(self.place(), why))
    }

    /// Parses the items up to a closing sign; also returns the depth of the deepest one.
    fn list(&mut self, end: &'static str) -> Result<(Vec<Node>, usize), Issue> {
        let (mut items, mut deepest) = (Vec::new(), 0);
        while !self.eat(end) {
            let (item, depth) = if end == "]" { self.perhaps()? } else { self.argument(end)? };
            deepest = deepest.max(depth);
            items.push(item);
            if !self.eat(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok((items, deepest))
    }

    fn argument(&mut self, end: &str) -> Result<Deep, Issue> {
        let first = self.next;
        self.expression().map_err(|issue| {
            if self.next == first && issue.message.contains("mismatched input") {
                self.unexpected(&format!("{{'[', '{{', '(', '{end}', '.', '-', '!', {STARTS}"))
            } else {
                issue
            }
        })
    }

    /// Parses a value, or `?` and an optional value.
    fn perhaps(&mut self) -> Result<Deep, Issue> {
        let at = self.place();
        let optional = self.eat("?");
        self.optional_value(at, optional)
    }

    /// Parses the value of an item, entry or field. An `optional` one is left out if it has no value.
    fn optional_value(&mut self, at: usize, optional: bool) -> Result<Deep, Issue> {
        let (value, depth) = self.expression()?;
        if !optional {
            return Ok((value, depth));
        }
        let depth = self.deeper(&[depth])?;
        Ok((self.node(at, Expression::Optional(Box::new(value))), depth))
    }

    /// Parses the entries of a map after its opening brace.
    fn entries(&mut self) -> Result<(Vec<(Node, Node)>, usize), Issue> {
        let (mut entries, mut deepest) = (Vec::new(), 0);
        while !self.eat("}") {
            let at = self.place();
            let optional = self.eat("?");
            let key = self.expression()?;
            self.expect(":")?;
            let (value, depth) = self.optional_value(at, optional)?;
            deepest = deepest.max(key.1).max(depth);
            entries.push((key.0, value));
            if !self.eat(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok((entries, deepest))
    }

    /// Parses the fields of an object after its opening brace.
    fn fields(&mut self) -> Result<(Vec<(String, Node)>, usize), Issue> {
        let (mut fields, mut deepest) = (Vec::new(), 0);
        while !self.eat("}") {
            let at = self.place();
            let optional = self.eat("?");
            let name = self.name("{")?;
            self.expect(":")?;
            let (value, depth) = self.optional_value(at, optional)?;
            deepest = deepest.max(depth);
            fields.push((name, value));
            if !self.eat(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok((fields, deepest))
    }

    fn primary(&mut self) -> Result<Deep, Issue> {
        // A leading dot marks a name as absolute, which makes no difference here.
        self.eat(".");
        let at = self.place();
        if self.eat("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if self.eat("[") {
            let (items, depth) = self.list("]")?;
            let depth = self.deeper(&[depth])?;
            return Ok((self.node(at, Expression::List(items)), depth));
        }
        if self.eat("{") {
            let (entries, depth) = self.entries()?;
            let depth = self.deeper(&[depth])?;
            return Ok((self.node(at, Expression::Map(entries)), depth));
        }
        match self.tokens.get(self.next).map(|placed| placed.token.clone()) {
            // The minimum integer is only valid as the negation of a literal that is otherwise too large.
            Some(Token::Literal(Expression::Int(i64::MIN))) => Err(Issue::new(at, "invalid int literal")),
            Some(Token::Literal(literal)) => {
                self.next += 1;
                Ok((self.node(at, literal), 1))
            }
            Some(Token::Name(name)) => {
                let word = &self.text[at..self.tokens[self.next].end];
                if KEYWORDS.contains(&word) {
                    return Err(Issue::new(at, format!("reserved identifier: {name}")));
                }
                self.next += 1;
                let open = self.place();
                if !self.eat("(") {
                    return Ok((self.node(at, Expression::Name(name)), 1));
                }
                let (arguments, depth) = self.list(")")?;
                let depth = self.deeper(&[depth])?;
                Ok((self.function(name, arguments, open)?, depth))
            }
            _ => Err(self.unexpected(&format!("{{'[', '{{', '(', '.', '-', '!', {STARTS}"))),
        }
    }

    fn function(&mut self, name: String, mut arguments: Vec<Node>, open: usize) -> Result<Node, Issue> {
        if name != "has" || arguments.len() != 1 {
            return Ok(self.node(open, Expression::Call { target: None, name, arguments }));
        }
        match arguments.pop() {
            Some(Node { expression: Expression::Select { operand, field, optional: false }, .. }) => {
                Ok(self.node(open, Expression::Has { operand, field }))
            }
            _ => Err(Issue::new(open, "invalid argument to has() macro")),
        }
    }

    /// Builds the call of a method, which may be a macro or a function in a namespace.
    fn method(&mut self, target: Node, name: String, arguments: Vec<Node>, at: usize) -> Result<Node, Issue> {
        if let Some(namespace) = qualified(&target) {
            let full = format!("{namespace}.{name}");
            if declarations::is_namespaced(&full) {
                return Ok(self.node(at, Expression::Call { target: None, name: full, arguments }));
            }
        }
        let Some((kind, names)) = macro_of(&name, &arguments) else {
            return Ok(self.node(at, Expression::Call { target: Some(Box::new(target)), name, arguments }));
        };
        let mut arguments = arguments.into_iter();
        let mut variables: Vec<Arc<str>> = Vec::new();
        for argument in arguments.by_ref().take(names) {
            match argument.expression {
                Expression::Name(name) if variables.iter().any(|known| **known == *name) => {
                    return Err(Issue::new(argument.at, format!("duplicate variable name: {name}")));
                }
                Expression::Name(name) => variables.push(name.into()),
                _ => return Err(Issue::new(argument.at, "argument must be a simple name")),
            }
        }
        let bodies = arguments.collect();
        let expression = Expression::Macro { kind, range: Box::new(target), names: variables, bodies };
        Ok(self.node(at, expression))
    }
}

/// Returns the macro with this name and number of arguments, and the number of names that it binds.
fn macro_of(name: &str, arguments: &[Node]) -> Option<(Macro, usize)> {
    Some(match (name, arguments.len()) {
        ("all", 2) => (Macro::All, 1),
        ("all", 3) => (Macro::All, 2),
        ("exists", 2) => (Macro::Exists, 1),
        ("exists", 3) => (Macro::Exists, 2),
        ("exists_one" | "existsOne", 2) => (Macro::ExistsOne, 1),
        ("exists_one" | "existsOne", 3) => (Macro::ExistsOne, 2),
        ("map", 2 | 3) => (Macro::Map, 1),
        ("filter", 2) => (Macro::Filter, 1),
        ("transformList", 3 | 4) => (Macro::Map, 2),
        ("transformMap", 3 | 4) => (Macro::TransformMap, 2),
        ("transformMapEntry", 3 | 4) => (Macro::TransformMapEntry, 2),
        ("sortBy", 2) => (Macro::SortBy, 1),
        ("optMap", 2) => (Macro::OptMap, 1),
        ("optFlatMap", 2) => (Macro::OptFlatMap, 1),
        _ => return None,
    })
}

/// Returns the dotted name that an expression spells, if it does.
pub(crate) fn qualified(node: &Node) -> Option<String> {
    match &node.expression {
        Expression::Name(name) => Some(name.clone()),
        Expression::Select { operand, field, optional: false } => {
            qualified(operand).map(|operand| format!("{operand}.{field}"))
        }
        _ => None,
    }
}

fn operator_of(sign: &str) -> Option<Operator> {
    Some(match sign {
        "||" => Operator::Or,
        "&&" => Operator::And,
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        "+" => Operator::Add,
        "-" => Operator::Subtract,
        "*" => Operator::Multiply,
        "/" => Operator::Divide,
        "%" => Operator::Remainder,
        _ => return None,
    })
}
