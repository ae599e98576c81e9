//! What a spec must satisfy to be run at all. A spec may come from anywhere, a store or another machine, so nothing is
//! taken on trust: names become file names, counts become processes. Pure.

use std::collections::BTreeSet;

use crate::spec::{Binding, JobSpec, Probe, Service, Text, is_name};

/// More instances than any job has; a spec that asks for more is a mistake, and would only exhaust the host.
pub const MOST_INSTANCES: u64 = 4096;

/// Why a spec cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A name that cannot be a file name.
    #[error("{kind} `{name}`: a name has letters, digits, `.`, `_` and `-`, and starts with a letter or digit")]
    Name {
        /// What is named.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// Two processes of one name.
    #[error("two processes are called `{0}`")]
    Duplicate(String),
    /// No program.
    #[error("{0} has no program: its entrypoint is empty")]
    NoProgram(String),
    /// Text that no process can be given.
    #[error("{service}: {what} holds a NUL character, which no process can be given")]
    Nul {
        /// The service.
        service: String,
        /// Where.
        what: String,
    },
    /// An environment variable that is none.
    #[error("{service}: `{name}` is no name for an environment variable")]
    Variable {
        /// The service.
        service: String,
        /// The name.
        name: String,
    },
    /// A service without an instance, or with too many.
    #[error("{service} has {replicas} replicas; from 1 to {MOST_INSTANCES} instances make up a job")]
    Replicas {
        /// The service.
        service: String,
        /// What it asks for.
        replicas: u64,
    },
    /// A client that is several processes.
    #[error("the client {0} must be one process: the measurement ends when it ends")]
    SeveralClients(String),
    /// A group that is not there, or has no node.
    #[error("{service} runs on group `{group}`, which {why}")]
    Group {
        /// The service.
        service: String,
        /// The group.
        group: String,
        /// What is wrong.
        why: &'static str,
    },
    /// A start dependency on nothing.
    #[error("{service} starts after `{after}`, which is no service of the job")]
    UnknownAfter {
        /// The service.
        service: String,
        /// What it waits for.
        after: String,
    },
    /// Services that wait for each other.
    #[error("services wait for each other: {}", .0.join(" after "))]
    Cycle(Vec<String>),
    /// An endpoint that its service does not have.
    #[error("{service} {what} the endpoint `{owner}.{endpoint}`, which does not exist")]
    Endpoint {
        /// The service that refers to it.
        service: String,
        /// How it refers to it.
        what: &'static str,
        /// Whose endpoint.
        owner: String,
        /// Its name.
        endpoint: String,
    },
    /// A file that its service does not have.
    #[error("{service} refers to its file `{file}`, which does not exist")]
    File {
        /// The service.
        service: String,
        /// The file.
        file: String,
    },
}

/// Checks names, counts and references; the order of services is `graph`'s affair.
///
/// # Errors
/// The first fault.
pub fn check(spec: &JobSpec) -> Result<(), Fault> {
    let mut names = BTreeSet::new();
    let mut instances = 0_u64;
    for service in spec.processes() {
        named("service", &service.name)?;
        if !names.insert(service.name.as_str()) {
            return Err(Fault::Duplicate(service.name.clone()));
        }
        instances = instances.saturating_add(service.replicas);
        if service.replicas == 0 || instances > MOST_INSTANCES {
            return Err(Fault::Replicas { service: service.name.clone(), replicas: service.replicas });
        }
        check_service(spec, service)?;
    }
    let client = &spec.measurement.client;
    if client.replicas != 1 {
        return Err(Fault::SeveralClients(client.name.clone()));
    }
    Ok(())
}

fn check_service(spec: &JobSpec, service: &Service) -> Result<(), Fault> {
    let of = || service.name.clone();
    if service.entrypoint.first().is_none_or(String::is_empty) {
        return Err(Fault::NoProgram(of()));
    }
    let group = |why| Fault::Group { service: of(), group: service.group.clone(), why };
    match spec.deployment.groups.iter().find(|group| group.name == service.group) {
        None => return Err(group("the job does not have")),
        Some(found) if found.nodes == 0 => return Err(group("has no node")),
        Some(_) => {}
    }
    for name in &service.endpoints {
        named("endpoint", name)?;
    }
    for key in service.files.keys() {
        named("file", &key.0)?;
    }
    for key in service.env.keys() {
        if key.0.is_empty() || key.0.contains(['=', '\0']) {
            return Err(Fault::Variable { service: of(), name: key.0.clone() });
        }
    }
    for (index, word) in service.entrypoint.iter().enumerate() {
        if word.contains('\0') {
            return Err(Fault::Nul { service: of(), what: format!("entrypoint word {index}") });
        }
    }
    for binding in texts(service).flat_map(Text::bindings).chain(service.mounts.iter().map(|mount| &mount.source)) {
        check_binding(spec, service, binding)?;
    }
    let own = |endpoint: &str, what| match service.endpoints.contains(endpoint) {
        true => Ok(()),
        false => Err(Fault::Endpoint { service: of(), what, owner: of(), endpoint: endpoint.to_owned() }),
    };
    if let Probe::Http { endpoint, .. } = &service.probe {
        own(endpoint, "is probed at")?;
    }
    if service.engine.is_some() {
        own(super::counters::ENDPOINT, "is an engine, whose counters are read at")?;
    }
    Ok(())
}

fn check_binding(spec: &JobSpec, service: &Service, binding: &Binding) -> Result<(), Fault> {
    match binding {
        Binding::Endpoint { name, service: owner, .. } => {
            let known =
                spec.processes().any(|process| process.name == *owner && process.endpoints.contains(name.as_str()));
            if known {
                return Ok(());
            }
            Err(Fault::Endpoint {
                service: service.name.clone(),
                what: "refers to",
                owner: owner.clone(),
                endpoint: name.clone(),
            })
        }
        Binding::File { name } if service.files.keys().any(|key| key.0 == *name) => Ok(()),
        Binding::File { name } => Err(Fault::File { service: service.name.clone(), file: name.clone() }),
        Binding::Directory { name } => named("directory", name),
        Binding::Cache { name } => named("cache", name),
        Binding::Host { .. } | Binding::Model {} => Ok(()),
    }
}

/// Every text of a service: argv, environment, files.
pub fn texts(service: &Service) -> impl Iterator<Item = &Text> {
    service.argv.iter().chain(service.env.values()).chain(service.files.values())
}

/// Refuses what cannot be one component of a path.
fn named(kind: &'static str, name: &str) -> Result<(), Fault> {
    match is_name(name) {
        true => Ok(()),
        false => Err(Fault::Name { kind, name: name.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::actor::{service, spec};
    use crate::spec::{Part, Segment};

    fn fault(change: impl FnOnce(&mut JobSpec)) -> Fault {
        let mut spec = spec(vec![service("server", &[])], service("client", &[]));
        check(&spec).unwrap();
        change(&mut spec);
        check(&spec).unwrap_err()
    }

    #[test]
    fn hostile_names_never_become_paths() {
        for name in ["", ".", "..", "../x", "a/b", "/etc", "-rf", "a\0", "ä", &"x".repeat(200)] {
            let found = fault(|spec| spec.deployment.services[0].name = name.to_owned());
            assert!(matches!(found, Fault::Name { kind: "service", .. }), "{name}: {found}");
            let found = fault(|spec| {
                let directory = Binding::Directory { name: name.to_owned() };
                spec.measurement.client.argv = vec![Text::Segments { text: vec![Segment::Bind(directory)] }];
            });
            assert!(matches!(found, Fault::Name { kind: "directory", .. }), "{name}: {found}");
            let found = fault(|spec| {
                spec.deployment.services[0].files.insert(name.into(), Text::Literal(String::new()));
            });
            assert!(matches!(found, Fault::Name { kind: "file", .. }), "{name}: {found}");
        }
    }

    #[test]
    fn every_reference_must_lead_somewhere() {
        let endpoint = Binding::Endpoint { name: "http".into(), part: Part::Port, service: "router".into() };
        let found = fault(|spec| {
            spec.measurement.client.argv = vec![Text::Segments { text: vec![Segment::Bind(endpoint)] }];
        });
        assert_eq!(found.to_string(), "client refers to the endpoint `router.http`, which does not exist");
        let found = fault(|spec| spec.deployment.services[0].group = "decode".to_owned());
        assert_eq!(found.to_string(), "server runs on group `decode`, which the job does not have");
        let probe = Probe::Http { endpoint: "http".to_owned(), path: "/health".to_owned() };
        let found = fault(|spec| spec.deployment.services[0].probe = probe);
        assert_eq!(found.to_string(), "server is probed at the endpoint `server.http`, which does not exist");
    }

    #[test]
    fn counts_and_programs_are_checked() {
        assert!(matches!(fault(|spec| spec.deployment.services[0].replicas = u64::MAX), Fault::Replicas { .. }));
        assert!(matches!(fault(|spec| spec.deployment.services[0].replicas = 0), Fault::Replicas { .. }));
        assert!(matches!(fault(|spec| spec.measurement.client.replicas = 2), Fault::SeveralClients(_)));
        assert!(matches!(fault(|spec| spec.deployment.services[0].entrypoint.clear()), Fault::NoProgram(_)));
        assert!(matches!(fault(|spec| spec.measurement.client.name = "server".into()), Fault::Duplicate(_)));
        let found = fault(|spec| {
            spec.deployment.services[0].env.insert("A=B".into(), Text::Literal(String::new()));
        });
        assert!(matches!(found, Fault::Variable { .. }));
    }
}
