//! `${{ EXPR }}`: the only templating in recipes. minijinja's expressions, with undefined names refused and no floats.
//!
//! Numbers stay exact: `/` and numbers with a dot are refused when a recipe is read, `//` divides integers. A scalar
//! that is one whole expression keeps the type of its value; within other text the value must be text, an integer or a
//! binding. Bindings come from `endpoint(service, name)` (with `.host` and `.port`), `file(name)`, `directory(name)`,
//! `cache(name)`, `host(name)` and `model_path`. This file knows no recipe.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, LazyLock};

use minijinja::value::ValueKind;
use minijinja::{Environment, Expression, UndefinedBehavior, Value};

use super::bound::{Bound, JOINED, bound};
use super::exact;
use crate::config::diagnostic::{Diagnostic, Place};
use crate::spec::{Binding, Key, Part, Segment, Text, Tree};

/// Largest magnitude of an integer in a spec: every JSON reader keeps it exactly.
pub const MAX_INTEGER: i64 = 1 << 53;

static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.add_function("endpoint", |service: String, name: String| {
        Value::from_object(Bound::Endpoint { service: Arc::from(service), name: Arc::from(name) })
    });
    env.add_function("file", |name: String| bound(Binding::File { name }));
    env.add_function("directory", |name: String| bound(Binding::Directory { name }));
    env.add_function("cache", |name: String| bound(Binding::Cache { name }));
    env.add_function("host", |name: String| bound(Binding::Host { name }));
    env.add_function("min", |a: i64, b: i64| a.min(b));
    env.add_function("max", |a: i64, b: i64| a.max(b));
    env.add_global("model_path", bound(Binding::Model {}));
    env
});

/// The functions and globals that every expression may name.
const GLOBALS: [&str; 8] = ["endpoint", "file", "directory", "cache", "host", "min", "max", "model_path"];

/// What expressions are made of, for messages.
const SYNTAX: &str = "expressions have names, integers, quoted text, `+ - * // %`, comparisons, `and or not`, `A if C else B`, \
    and endpoint(), file(), directory(), cache(), host(), min(), max(), model_path";

/// A compiled expression and where it stands.
pub struct Expr {
    source: String,
    place: Place,
    compiled: Expression<'static, 'static>,
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${{{{ {} }}}}", self.source)
    }
}

impl Expr {
    /// Compiles the text between `${{` and `}}`; `names` are the variables that it may use.
    ///
    /// # Errors
    /// Syntax, a division into floats, a number with a dot, a name that nothing defines.
    pub fn compile(source: &str, place: &Place, names: &BTreeSet<String>) -> Result<Self, Diagnostic> {
        let source = source.trim().to_owned();
        exact::check(&source, place)?;
        let compiled = ENGINE.compile_expression_owned(source.clone()).map_err(|error| {
            let fault = format!("`{source}` is not an expression: {}", detail(&error));
            Diagnostic::at(place, fault).help(SYNTAX)
        })?;
        let mut unknown: Vec<String> = compiled
            .undeclared_variables(false)
            .into_iter()
            .filter(|name| !names.contains(name) && !GLOBALS.contains(&name.as_str()))
            .collect();
        unknown.sort();
        if let Some(name) = unknown.first() {
            let known: Vec<&str> = names.iter().map(String::as_str).chain(GLOBALS).collect();
            let near = crate::config::similar::closest(name, known.iter().copied());
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: {}", known.join(", ")),
            };
            return Err(Diagnostic::at(place, format!("nothing defines `{name}`")).help(help));
        }
        Ok(Self { source, place: place.clone(), compiled })
    }

    /// Where it stands.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whether it quotes a word.
    pub fn quotes(&self, word: &str) -> bool {
        ['"', '\''].iter().any(|quote| self.source.contains(&format!("{quote}{word}{quote}")))
    }

    /// Its value for an arm.
    ///
    /// # Errors
    /// Undefined attributes, wrong types, and whatever else evaluation refuses; at the expression's place.
    pub fn eval(&self, variables: &Value) -> Result<Value, Diagnostic> {
        let value = self
            .compiled
            .eval(variables.clone())
            .map_err(|error| self.fault(detail(&error)).help(self.values(&error, variables)))?;
        if value.is_undefined() {
            return Err(self
                .fault("its value is undefined")
                .help("an endpoint has `.host` and `.port`; nothing else has parts"));
        }
        if value.as_str().is_some_and(|text| text.contains(JOINED)) {
            return Err(self.fault("a port, path or host fact cannot be joined inside an expression").help(
                "close the expression and let the text stand outside: `http://localhost:${{ endpoint(\"server\", \"http\").port }}`",
            ));
        }
        Ok(value)
    }

    /// Its value as a condition.
    ///
    /// # Errors
    /// Anything but true or false.
    pub fn condition(&self, variables: &Value) -> Result<bool, Diagnostic> {
        let value = self.eval(variables)?;
        match value.kind() {
            ValueKind::Bool => Ok(value.is_true()),
            other => {
                let source = &self.source;
                let with = match value.as_str() {
                    Some(text) => format!("`{source} == \"{text}\"`"),
                    None => format!("`{source} != none`"),
                };
                Err(self
                    .fault(format!("a condition must be true or false, this is {other}"))
                    .help(format!("compare it, as in {with}")))
            }
        }
    }

    /// The values that it was evaluated with, else what it could be made of.
    fn values(&self, error: &minijinja::Error, variables: &Value) -> String {
        use minijinja::ErrorKind::{UnknownFilter, UnknownFunction, UnknownMethod, UnknownTest};
        let unknown = matches!(error.kind(), UnknownFilter | UnknownFunction | UnknownMethod | UnknownTest);
        let mut names: Vec<String> = self.compiled.undeclared_variables(false).into_iter().collect();
        names.sort();
        let of =
            |name: String| Some(format!("{name} = {}", variables.get_attr(&name).ok().filter(|v| !v.is_undefined())?));
        match names.into_iter().filter_map(of).collect::<Vec<_>>().join(", ") {
            values if values.is_empty() || unknown => SYNTAX.to_owned(),
            values => format!("it was evaluated with {values}"),
        }
    }

    /// A fault at this expression.
    pub fn fault(&self, what: impl fmt::Display) -> Diagnostic {
        Diagnostic::at(&self.place, format!("`{}`: {what}", self.source))
    }
}

fn detail(error: &minijinja::Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}

/// A scalar of a recipe after its expressions are evaluated.
#[derive(Debug, Clone, PartialEq)]
pub enum Leaf {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// A number with a fraction, digit for digit.
    Decimal(String),
    /// Text, with or without bindings.
    Text(Text),
    /// One whole binding, which may stand for a number.
    Binding(Binding),
    /// A list or map that an expression gave.
    Tree(Tree),
}

/// For messages.
impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Leaf::Null => f.write_str("null"),
            Leaf::Bool(value) => write!(f, "{value}"),
            Leaf::Integer(value) => write!(f, "{value}"),
            Leaf::Decimal(digits) => f.write_str(digits),
            Leaf::Text(Text::Literal(text)) => write!(f, "the text `{text}`"),
            Leaf::Text(_) => f.write_str("text that is known at run time"),
            Leaf::Binding(binding) => write!(f, "<{binding}>"),
            Leaf::Tree(_) => f.write_str("a list or a map"),
        }
    }
}

/// A scalar as a recipe writes it, its expressions compiled.
#[derive(Debug)]
pub enum Template {
    /// No expression in it.
    Fixed(Leaf),
    /// One whole expression.
    Whole(Expr),
    /// Text around expressions.
    Mixed(Vec<Piece>),
}

/// A part of a mixed template.
#[derive(Debug)]
pub enum Piece {
    /// As written.
    Literal(String),
    /// An expression.
    Expr(Expr),
}

impl Template {
    /// The expressions in it.
    pub fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let (whole, pieces) = match self {
            Template::Fixed(_) => (None, &[][..]),
            Template::Whole(expr) => (Some(expr), &[][..]),
            Template::Mixed(pieces) => (None, pieces.as_slice()),
        };
        let within = pieces.iter().filter_map(|piece| match piece {
            Piece::Literal(_) => None,
            Piece::Expr(expr) => Some(expr),
        });
        whole.into_iter().chain(within)
    }

    /// Splits a scalar's text at its `${{ … }}`.
    ///
    /// # Errors
    /// An unclosed `${{`, and what [`Expr::compile`] refuses.
    pub fn compile(text: &str, place: &Place, names: &BTreeSet<String>) -> Result<Self, Diagnostic> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(start) = rest.find("${{") {
            let Some(length) = rest[start + 3..].find("}}") else {
                return Err(Diagnostic::at(place, "`${{` without its `}}`").help("close the expression with `}}`"));
            };
            if start > 0 {
                pieces.push(Piece::Literal(rest[..start].to_owned()));
            }
            let inner = &rest[start + 3..start + 3 + length];
            pieces.push(Piece::Expr(Expr::compile(inner, &narrow(place, inner), names)?));
            rest = &rest[start + 3 + length + 2..];
        }
        if !rest.is_empty() || pieces.is_empty() {
            pieces.push(Piece::Literal(rest.to_owned()));
        }
        if pieces.len() > 1 {
            return Ok(Template::Mixed(pieces));
        }
        Ok(match pieces.remove(0) {
            Piece::Literal(text) => Template::Fixed(Leaf::Text(Text::Literal(text))),
            Piece::Expr(expr) => Template::Whole(expr),
        })
    }

    /// Its value for an arm.
    ///
    /// # Errors
    /// What [`Expr::eval`] refuses; floats; within text, values that are not text.
    pub fn eval(&self, variables: &Value) -> Result<Leaf, Diagnostic> {
        match self {
            Template::Fixed(leaf) => Ok(leaf.clone()),
            Template::Whole(expr) => leaf(expr, &expr.eval(variables)?),
            Template::Mixed(pieces) => {
                let mut segments = Vec::with_capacity(pieces.len());
                for piece in pieces {
                    match piece {
                        Piece::Literal(text) => segments.push(Segment::Literal(text.clone())),
                        Piece::Expr(expr) => match leaf(expr, &expr.eval(variables)?)? {
                            Leaf::Text(Text::Literal(text)) => segments.push(Segment::Literal(text)),
                            Leaf::Text(Text::Segments { text }) => segments.extend(text),
                            Leaf::Integer(value) => segments.push(Segment::Literal(value.to_string())),
                            Leaf::Binding(binding) => segments.push(Segment::Bind(binding)),
                            _ => {
                                return Err(expr
                                    .fault("only text and integers can stand within text")
                                    .help("let the expression be the whole value, or choose the text: `\"a\" if C else \"b\"`"));
                            }
                        },
                    }
                }
                Ok(Leaf::Text(Text::from_segments(segments)))
            }
        }
    }
}

fn leaf(expr: &Expr, value: &Value) -> Result<Leaf, Diagnostic> {
    if let Some(bound) = value.downcast_object_ref::<Bound>() {
        return Ok(match bound {
            Bound::One(binding) => Leaf::Binding(binding.clone()),
            Bound::Endpoint { service, name } => Leaf::Text(Text::from_segments(vec![
                Segment::Bind(Bound::half(service, name, Part::Host)),
                Segment::Literal(":".to_owned()),
                Segment::Bind(Bound::half(service, name, Part::Port)),
            ])),
        });
    }
    Ok(match tree(expr, value)? {
        Tree::Null => Leaf::Null,
        Tree::Bool(value) => Leaf::Bool(value),
        Tree::Integer(value) => Leaf::Integer(value),
        Tree::String(text) => Leaf::Text(Text::Literal(text)),
        tree => Leaf::Tree(tree),
    })
}

fn tree(expr: &Expr, value: &Value) -> Result<Tree, Diagnostic> {
    if let Some(bound) = value.downcast_object_ref::<Bound>() {
        return Ok(match bound {
            Bound::One(binding) => Tree::Segments { text: vec![Segment::Bind(binding.clone())] },
            Bound::Endpoint { .. } => {
                let fault = expr.fault("an endpoint inside a list is neither text nor a number");
                return Err(fault.help("choose its `.host` or `.port`"));
            }
        });
    }
    match value.kind() {
        ValueKind::None => Ok(Tree::Null),
        ValueKind::Bool => Ok(Tree::Bool(value.is_true())),
        ValueKind::Number => match i64::try_from(value.clone()) {
            Ok(number) if value.is_integer() && number.abs() <= MAX_INTEGER => Ok(Tree::Integer(number)),
            _ => Err(expr.fault(format!("{value} is not an integer within ±2^53")).help(
                "specs hold exact numbers that every JSON reader keeps; write it as text if the program reads text",
            )),
        },
        ValueKind::String => Ok(Tree::String(value.as_str().unwrap_or_default().to_owned())),
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter().map_err(|error| expr.fault(detail(&error)))?;
            Ok(Tree::List(items.map(|item| tree(expr, &item)).collect::<Result<_, _>>()?))
        }
        ValueKind::Map => {
            let keys = value.try_iter().map_err(|error| expr.fault(detail(&error)))?;
            let mut map = BTreeMap::new();
            for key in keys {
                let text = || expr.fault("a map's keys must be text").help("put them in quotes");
                let name = key.as_str().ok_or_else(text)?.to_owned();
                let item = value.get_item(&key).map_err(|error| expr.fault(detail(&error)))?;
                map.insert(Key(name), tree(expr, &item)?);
            }
            Ok(Tree::Map { map })
        }
        other => Err(expr.fault(format!("{other} cannot stand in a spec")).help(SYNTAX)),
    }
}

/// The place of a part of a scalar, when its text stands there unescaped; else the scalar's.
fn narrow(place: &Place, part: &str) -> Place {
    let span = place.span.clone();
    let found = place.source.text.get(span.clone()).and_then(|text| text.find(part));
    let lead = part.len() - part.trim_start().len();
    match found {
        Some(at) if !part.trim().is_empty() => {
            let start = span.start + at + lead;
            Place { source: Arc::clone(&place.source), span: start..start + part.trim().len() }
        }
        _ => place.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diagnostic::Source;

    fn eval(text: &str) -> Result<Leaf, String> {
        let source = Source::new("r.yaml", text);
        let place = Place { span: 0..text.len(), source };
        let names = ["conc", "gb", "name"].map(str::to_owned).into();
        let variables = [("conc", Value::from(12)), ("gb", Value::from(2399)), ("name", Value::from("x"))];
        let variables = Value::from(BTreeMap::from(variables));
        Template::compile(text, &place, &names).and_then(|t| t.eval(&variables)).map_err(|d| d.to_string())
    }

    #[test]
    fn a_whole_expression_keeps_its_type() {
        assert_eq!(eval("${{ gb * 1000000000 // 8 }}"), Ok(Leaf::Integer(299_875_000_000)));
        assert_eq!(eval("${{ conc > 3 }}"), Ok(Leaf::Bool(true)));
        assert_eq!(eval("${{ name }}"), Ok(Leaf::Text(Text::Literal("x".into()))));
        assert_eq!(eval("plain"), Ok(Leaf::Text(Text::Literal("plain".into()))));
        assert_eq!(eval("${{ [conc, none] }}"), Ok(Leaf::Tree(Tree::List(vec![Tree::Integer(12), Tree::Null]))));
    }

    #[test]
    fn text_around_expressions_is_joined_and_bindings_stay_typed() {
        assert_eq!(eval("${{ gb // 8 }}GB"), Ok(Leaf::Text(Text::Literal("299GB".into()))));
        let url = eval("http://localhost:${{ endpoint('server', 'http').port }}/").unwrap();
        let port = Binding::Endpoint { name: "http".into(), part: Part::Port, service: "server".into() };
        assert_eq!(
            url,
            Leaf::Text(Text::Segments {
                text: vec![
                    Segment::Literal("http://localhost:".into()),
                    Segment::Bind(port),
                    Segment::Literal("/".into())
                ]
            })
        );
    }

    #[test]
    fn what_is_not_exact_or_not_known_is_refused_at_its_place() {
        for (text, want) in [
            ("${{ conc / 2 }}", "divides into a float"),
            ("${{ 0.5 }}", "is a float"),
            ("a ${{ concc }}", "r.yaml:1:7: nothing defines `concc`"),
            ("${{ conc", "without its"),
            ("${{ conc + }}", "not an expression"),
            ("${{ 9007199254740993 }}", "not an integer within"),
            ("${{ file('a') ~ 'b' }}", "cannot be joined"),
            ("${{ endpoint('a', 'b').prt }}", "undefined"),
        ] {
            let fault = eval(text).unwrap_err();
            assert!(fault.contains(want), "{text}: {fault}");
        }
    }
}
