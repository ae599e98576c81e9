//! What services say of one another must hold: dependencies exist and go in no circle, endpoints and files are declared.

use std::collections::BTreeSet;

use super::expr::{Leaf, Template};
use super::resolve::Resolved;
use super::schema::{Body, ServiceBody};
use crate::config::diagnostic::{Diagnostic, Place};
use crate::config::similar::{closest, listed};
use crate::spec::{Binding, Probe, Service, Text};

/// Every name that a service uses must exist: dependencies without a circle, endpoints, files.
pub(super) fn services(body: &Body, resolved: &Resolved) -> Result<(), Diagnostic> {
    let of = |name: &str| body.services.iter().find(|service| service.name == name).unwrap_or(&body.client.service);
    for service in resolved.services.iter().chain([&resolved.client]) {
        let body = of(&service.name);
        for after in &service.after {
            if !resolved.services.iter().any(|other| other.name == after.service) {
                let (name, wanted) = (&service.name, &after.service);
                let fault = format!("`{name}` waits for `{wanted}`, which is no service of this arm");
                let known = resolved.services.iter().map(|service| service.name.as_str());
                let is = |template: &Template| match template {
                    Template::Fixed(Leaf::Text(Text::Literal(text))) => text == wanted,
                    other => other.exprs().any(|expr| expr.quotes(wanted)),
                };
                let said = body.after.iter().find(|(template, ..)| is(template));
                let place = said.map_or(&body.place, |(.., place)| place);
                return Err(near(Diagnostic::at(place, fault), wanted, "its services", known));
            }
        }
        let texts = service.argv.iter().chain(service.env.values()).chain(service.files.values());
        for binding in texts.flat_map(Text::bindings) {
            declared(binding, body, service, resolved)?;
        }
        if let Probe::Http { endpoint, .. } = &service.probe
            && !service.endpoints.contains(endpoint)
        {
            let fault =
                format!("the probe of `{}` asks its endpoint `{endpoint}`, which it does not declare", service.name);
            return Err(Diagnostic::at(&body.place, fault).help(format!("add `{endpoint}` to its `endpoints`")));
        }
    }
    match circle(&resolved.services) {
        None => Ok(()),
        Some(circle) => {
            let fault = format!("`after` goes in a circle: {}", circle.join(" → "));
            Err(Diagnostic::at(&of(circle[0]).place, fault).help("one of them must start without the others"))
        }
    }
}

/// A binding must be of something that a service of the arm declares.
fn declared(binding: &Binding, body: &ServiceBody, service: &Service, resolved: &Resolved) -> Result<(), Diagnostic> {
    // The expression that made it, as far as can be told from the words in it.
    let at = |words: &[&str]| -> Place {
        let found = body.exprs().into_iter().find(|expr| words.iter().all(|word| expr.quotes(word)));
        found.map_or(&body.place, |expr| expr.place()).clone()
    };
    match binding {
        Binding::Endpoint { name, service: owner, .. } => {
            let place = at(&[owner, name]);
            let Some(found) = resolved.services.iter().find(|service| service.name == *owner) else {
                let fault = format!("`{owner}` is no service of this arm: nothing has {binding}");
                let known = resolved.services.iter().map(|service| service.name.as_str());
                return Err(near(Diagnostic::at(&place, fault), owner, "its services", known));
            };
            if found.endpoints.contains(name) {
                return Ok(());
            }
            let fault = Diagnostic::at(&place, format!("`{owner}` declares no endpoint `{name}`"));
            Err(near(fault, name, "its endpoints", found.endpoints.iter().map(String::as_str)))
        }
        Binding::File { name } if !service.files.keys().any(|key| key.0 == *name) => {
            let fault = Diagnostic::at(&at(&[name]), format!("`{}` has no file `{name}`", service.name));
            Err(near(fault, name, "its files", service.files.keys().map(|key| key.0.as_str())))
        }
        _ => Ok(()),
    }
}

/// With the known name that was meant, else with all of them.
fn near<'n>(fault: Diagnostic, word: &str, what: &str, known: impl Iterator<Item = &'n str>) -> Diagnostic {
    let known: Vec<&str> = known.collect();
    match closest(word, known.iter().copied()) {
        Some(near) => fault.help(format!("did you mean `{near}`?")),
        None if known.is_empty() => fault.help(format!("{what}: none")),
        None => fault.help(format!("{what}: {}", listed(known, 24))),
    }
}

/// Services that wait for one another, from one of them back to itself.
fn circle(services: &[Service]) -> Option<Vec<&str>> {
    let mut started: BTreeSet<&str> = BTreeSet::new();
    loop {
        let ready = |service: &&Service| {
            !started.contains(service.name.as_str())
                && service.after.iter().all(|after| started.contains(after.service.as_str()))
        };
        let next: Vec<&str> = services.iter().filter(ready).map(|service| service.name.as_str()).collect();
        if next.is_empty() {
            break;
        }
        started.extend(next);
    }
    // Whoever is left waits for another who is left: following that long enough ends on a circle.
    let left = |name: &str| services.iter().find(|service| service.name == name && !started.contains(name));
    let mut path = vec![services.iter().find_map(|service| left(&service.name))?.name.as_str()];
    loop {
        let waits = left(path[path.len() - 1])?;
        let next = waits.after.iter().find_map(|after| left(&after.service))?.name.as_str();
        if let Some(start) = path.iter().position(|name| *name == next) {
            path.push(next);
            return Some(path.split_off(start));
        }
        path.push(next);
    }
}
