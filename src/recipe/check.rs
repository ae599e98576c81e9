//! What services say of one another must hold: dependencies exist and go in no circle, endpoints and files are declared.

use std::collections::BTreeSet;

use super::resolve::Resolved;
use super::schema::Body;
use crate::config::diagnostic::Diagnostic;
use crate::config::similar::closest;
use crate::spec::{Binding, Probe, Service, Text};

/// Every name that a service uses must exist: dependencies without a circle, endpoints, files.
pub(super) fn services(body: &Body, resolved: &Resolved) -> Result<(), Diagnostic> {
    let place_of = |name: &str| {
        body.services.iter().find(|service| service.name == name).map_or(&body.client.service.place, |s| &s.place)
    };
    let find = |name: &str| resolved.services.iter().find(|service| service.name == name);
    for service in resolved.services.iter().chain([&resolved.client]) {
        let place = place_of(&service.name);
        for after in &service.after {
            if find(&after.service).is_none() {
                let known = resolved.services.iter().map(|service| service.name.as_str());
                let fault = Diagnostic::at(
                    place,
                    format!("`{}` waits for `{}`, which is no service of this arm", service.name, after.service),
                );
                return Err(match closest(&after.service, known.clone()) {
                    Some(near) => fault.help(format!("did you mean `{near}`?")),
                    None => fault.help(format!("its services: {}", known.collect::<Vec<_>>().join(", "))),
                });
            }
        }
        let texts = service.argv.iter().chain(service.env.values()).chain(service.files.values());
        for binding in texts.flat_map(Text::bindings) {
            let missing = match binding {
                Binding::Endpoint { name, service, .. } => find(service).is_none_or(|s| !s.endpoints.contains(name)),
                Binding::File { name } => !service.files.contains_key(&name.as_str().into()),
                _ => false,
            };
            if missing {
                return Err(Diagnostic::at(
                    place,
                    format!("`{}` uses {binding}, which nothing declares", service.name),
                )
                .help("declare the endpoint under the service's `endpoints`, the file under its `files`"));
            }
        }
        if let Probe::Http { endpoint, .. } = &service.probe
            && !service.endpoints.contains(endpoint)
        {
            return Err(Diagnostic::at(
                place,
                format!("the probe of `{}` asks its endpoint `{endpoint}`, which it does not declare", service.name),
            )
            .help(format!("add `endpoints: [{endpoint}]`")));
        }
    }
    let mut started: BTreeSet<&str> = BTreeSet::new();
    while started.len() < resolved.services.len() {
        let ready = |service: &&Service| {
            !started.contains(service.name.as_str())
                && service.after.iter().all(|after| started.contains(after.service.as_str()))
        };
        let next: Vec<&str> = resolved.services.iter().filter(ready).map(|service| service.name.as_str()).collect();
        if next.is_empty() {
            let rest: Vec<&str> =
                resolved.services.iter().map(|s| s.name.as_str()).filter(|n| !started.contains(n)).collect();
            return Err(Diagnostic::at(
                place_of(rest[0]),
                format!("`after` goes in a circle among {}", rest.join(", ")),
            )
            .help("one of them must start without the others"));
        }
        started.extend(next);
    }
    Ok(())
}
