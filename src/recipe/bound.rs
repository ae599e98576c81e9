//! Bindings as values of the expression language: opaque, so that nothing can be computed from what only the host knows.

use std::fmt;
use std::sync::Arc;

use minijinja::Value;
use minijinja::value::{Enumerator, Object, ObjectRepr};

use crate::spec::{Binding, Part};

/// Stands where a binding was turned into text inside an expression; no YAML or process text can hold it.
pub(super) const JOINED: &str = "\0";

/// A binding as a value.
pub(super) fn bound(binding: Binding) -> Value {
    Value::from_object(Bound::One(binding))
}

/// A binding as a value of the expression language.
#[derive(Debug, Clone)]
pub(super) enum Bound {
    /// Whole.
    One(Binding),
    /// Of which an expression takes `.host` or `.port`, or both as `host:port`.
    Endpoint { service: Arc<str>, name: Arc<str> },
}

impl Bound {
    /// One half of an endpoint's address.
    pub(super) fn half(service: &str, name: &str, part: Part) -> Binding {
        Binding::Endpoint { name: name.to_owned(), part, service: service.to_owned() }
    }
}

impl Object for Bound {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let Bound::Endpoint { service, name } = &**self else { return None };
        match key.as_str()? {
            "host" => Some(bound(Self::half(service, name, Part::Host))),
            "port" => Some(bound(Self::half(service, name, Part::Port))),
            _ => None,
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::NonEnumerable
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(JOINED)
    }
}
