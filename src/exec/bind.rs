//! What the host decides, decided: a value for every binding of a job. The binder of the spec's texts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::check::texts;
use super::event::Who;
use super::executor::{Address, Allocation, Place, StartError};
use super::graph::Graph;
use super::host::Host;
use crate::spec::{Binder, Binding, JobSpec, Part, Service, Unbound};

/// A job's addresses and paths.
#[derive(Debug)]
pub struct Bindings<'a> {
    spec: &'a JobSpec,
    host: &'a Host,
    scratch: &'a Path,
    addresses: BTreeMap<(Who, String), Address>,
}

/// Gives values to one instance: its own files, and its own address under its own name.
#[derive(Debug, Clone, Copy)]
pub struct InstanceBinder<'a> {
    bindings: &'a Bindings<'a>,
    who: &'a Who,
}

/// The node on which an instance of a service runs: instances go round the nodes of its group.
pub fn place(spec: &JobSpec, service: &Service, instance: u64) -> Place {
    let nodes = spec.deployment.groups.iter().find(|group| group.name == service.group).map_or(1, |group| group.nodes);
    Place { group: service.group.clone(), node: instance % nodes.max(1) }
}

/// `server`, or `server@2` beyond the first instance (no name holds an `@`): names logs and file directories.
pub fn file_stem(who: &Who) -> String {
    match who.instance {
        0 => who.service.clone(),
        instance => format!("{}@{instance}", who.service),
    }
}

impl<'a> Bindings<'a> {
    /// Gets an address for every endpoint of every instance and of the client.
    ///
    /// # Errors
    /// The allocation has no port left.
    pub fn assign(
        spec: &'a JobSpec,
        host: &'a Host,
        scratch: &'a Path,
        graph: &Graph,
        allocation: &dyn Allocation,
    ) -> Result<Self, StartError> {
        let mut addresses = BTreeMap::new();
        let client = &spec.measurement.client;
        let instances = graph.nodes.iter().map(|node| (node.who.clone(), &spec.deployment.services[node.service]));
        let client = std::iter::once((Who { service: client.name.clone(), instance: 0 }, client));
        for (who, service) in instances.chain(client) {
            let place = place(spec, service, who.instance);
            for name in &service.endpoints {
                addresses.insert((who.clone(), name.clone()), allocation.endpoint(&place)?);
            }
        }
        Ok(Self { spec, host, scratch, addresses })
    }

    /// The binder of one instance.
    pub fn of<'b>(&'b self, who: &'b Who) -> InstanceBinder<'b> {
        InstanceBinder { bindings: self, who }
    }

    /// `http://HOST:PORT` of an instance's endpoint.
    pub fn url(&self, who: &Who, endpoint: &str) -> Option<String> {
        let address = self.addresses.get(&(who.clone(), endpoint.to_owned()))?;
        Some(format!("http://{}:{}", address.host, address.port))
    }

    /// Where the services listen: `server.http` → `HOST:PORT`.
    pub fn endpoints(&self) -> BTreeMap<String, String> {
        let named = |((who, name), address): (&(Who, String), &Address)| {
            (format!("{who}.{name}"), format!("{}:{}", address.host, address.port))
        };
        self.addresses.iter().map(named).collect()
    }

    /// Every address, and every other binding that the job's texts and mounts use, by name.
    ///
    /// # Errors
    /// A binding that this host cannot fill.
    pub fn record(&self) -> Result<BTreeMap<String, String>, Unbound> {
        let mut record = BTreeMap::new();
        for ((who, name), address) in &self.addresses {
            record.insert(format!("{who}.{name}.host"), address.host.clone());
            record.insert(format!("{who}.{name}.port"), address.port.to_string());
        }
        for service in self.spec.processes() {
            let mounts = service.mounts.iter().map(|mount| &mount.source);
            for instance in 0..service.replicas {
                let who = Who { service: service.name.clone(), instance };
                for binding in texts(service).flat_map(|text| text.bindings()).chain(mounts.clone()) {
                    let name = match binding {
                        Binding::Endpoint { .. } => continue,
                        Binding::File { .. } => format!("{who}:{binding}"),
                        _ => binding.to_string(),
                    };
                    record.insert(name, self.of(&who).bind(binding)?.into_owned());
                }
            }
        }
        Ok(record)
    }

    /// Directories that bindings name and that must exist before the first start.
    pub fn directories(&self) -> Vec<PathBuf> {
        let of = |service: &Service| {
            texts(service)
                .flat_map(|text| text.bindings())
                .chain(service.mounts.iter().map(|mount| &mount.source))
                .filter_map(|binding| match binding {
                    Binding::Directory { name } => Some(self.directory(name)),
                    Binding::Cache { name } => Some(self.host.caches.join(name)),
                    _ => None,
                })
                .collect::<Vec<_>>()
        };
        self.spec.processes().flat_map(of).collect()
    }

    /// Where the client writes: the one directory that its command or environment names, else the parent of all.
    pub fn client_output(spec: &JobSpec, scratch: &Path) -> PathBuf {
        let names: std::collections::BTreeSet<&str> = texts(&spec.measurement.client)
            .flat_map(|text| text.bindings())
            .filter_map(|binding| match binding {
                Binding::Directory { name } => Some(name.as_str()),
                _ => None,
            })
            .collect();
        let out = scratch.join("out");
        match names.first() {
            Some(name) if names.len() == 1 => out.join(name),
            _ => out,
        }
    }

    fn directory(&self, name: &str) -> PathBuf {
        self.scratch.join("out").join(name)
    }
}

/// Where a file of an instance lies.
pub fn file_path(scratch: &Path, who: &Who, name: &str) -> PathBuf {
    scratch.join("files").join(file_stem(who)).join(name)
}

impl Binder for InstanceBinder<'_> {
    fn bind(&self, binding: &Binding) -> Result<Cow<'_, str>, Unbound> {
        let Bindings { spec, host, scratch, addresses } = self.bindings;
        let unbound = |why: String| Unbound { binding: binding.clone(), why };
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        Ok(match binding {
            Binding::Endpoint { name, part, service } => {
                // Of a service with several instances the first one speaks for all, except to themselves.
                let instance = if *service == self.who.service { self.who.instance } else { 0 };
                let key = (Who { service: service.clone(), instance }, name.clone());
                let address = addresses.get(&key).ok_or_else(|| unbound("no such endpoint".to_owned()))?;
                match part {
                    Part::Host => address.host.as_str().into(),
                    Part::Port => address.port.to_string().into(),
                }
            }
            Binding::File { name } => text(file_path(scratch, self.who, name)).into(),
            Binding::Directory { name } => text(self.bindings.directory(name)).into(),
            Binding::Cache { name } => text(host.caches.join(name)).into(),
            Binding::Host { name } => match host.facts.get(name) {
                Some(fact) => fact.as_str().into(),
                None => return Err(unbound(format!("add the fact `{name}` to the profile"))),
            },
            Binding::Model {} => {
                let id = &spec.deployment.model.id;
                match host.models.get(id) {
                    Some(path) => text(path.clone()).into(),
                    None if spec.deployment.substitutions.is_some() => id.as_str().into(),
                    None => return Err(unbound(format!("add the path of model `{id}` to the profile"))),
                }
            }
        })
    }
}
