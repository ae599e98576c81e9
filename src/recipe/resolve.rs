//! A compiled body and an arm's values: services, client and files as the spec holds them.
//!
//! Versions come from the row and from `configs/clients.yaml`, digests from the lock; a recipe has neither.

use std::collections::BTreeMap;

use minijinja::Value;

use super::expr::{Leaf, Template};
use super::schema::{
    ArgBody, Body, FileBody, Form, JsonBody, PackageBody, ProbeBody, RowComponent, ServiceBody, leaf_text,
};
use super::tools::{Tool, Tools};
use crate::config::diagnostic::{Diagnostic, Place};
use crate::lock::{self, HubKey, Lock, PackageKey};
use crate::matrix::arm::{Arm, KvOffload};
use crate::spec::{After, Deps, Key, Pinned, Probe, Python, Segment, Service, Text, Tree, Workload};
use crate::speculative::is_reserved;

/// What a recipe makes of an arm: the parts of a spec that it decides.
#[derive(Debug)]
pub struct Resolved {
    /// Sorted by name.
    pub services: Vec<Service>,
    /// The client or eval client.
    pub client: Service,
    /// The workload.
    pub workload: Workload,
    /// Seconds that a service may take to be ready, where the recipe says it; not hashed.
    pub ready_timeout_s: BTreeMap<String, u64>,
}

/// Evaluates a body for an arm.
pub struct Resolver<'r> {
    /// The arm.
    pub arm: &'r Arm,
    /// Its values as expressions see them.
    pub variables: &'r Value,
    /// Digests.
    pub lock: &'r Lock,
    /// Load generators and harnesses.
    pub tools: &'r Tools,
}

impl Resolver<'_> {
    /// All of it.
    ///
    /// # Errors
    /// The first expression that does not evaluate, or value that does not fit; unknown tools; a package of a component
    /// that the row does not name.
    pub fn body(&self, body: &Body) -> Result<Resolved, Diagnostic> {
        let mut services = body.services.iter().map(|s| self.service(s, body.python)).collect::<Result<Vec<_>, _>>()?;
        services.sort_by(|a, b| a.name.cmp(&b.name));
        let client = self.service(&body.client.service, body.python)?;
        let duration_s = match &body.client.duration_s {
            Some(template) => Some(self.count(template, "duration-s", &body.client.service)?),
            None => None,
        };
        let processes = body.services.iter().chain([&body.client.service]);
        let ready = processes.filter_map(|service| Some((service.name.clone(), service.ready_timeout_s?)));
        let dataset = Pinned {
            revision: self.lock.revision(&HubKey::dataset(&body.client.dataset)).map(str::to_owned),
            id: body.client.dataset.clone(),
        };
        Ok(Resolved {
            services,
            client,
            workload: Workload { dataset, duration_s, seed: body.client.seed, split: body.client.split.clone() },
            ready_timeout_s: ready.collect(),
        })
    }

    /// A template that must give a whole number that is not negative.
    ///
    /// # Errors
    /// Any other value.
    pub fn count(&self, template: &Template, what: &str, service: &ServiceBody) -> Result<u64, Diagnostic> {
        match template.eval(self.variables)? {
            Leaf::Integer(value) if value >= 0 => Ok(value.unsigned_abs()),
            other => {
                let place = template.exprs().next().map_or(&service.place, |expr| expr.place());
                Err(Diagnostic::at(place, format!("`{what}` of `{}` is {other}", service.name))
                    .help("it must be a whole number"))
            }
        }
    }

    fn service(&self, body: &ServiceBody, python: Option<Python>) -> Result<Service, Diagnostic> {
        let mut argv = Vec::new();
        for positional in &body.positional {
            argv.extend(leaf_text(positional.eval(self.variables)?));
        }
        for arg in &body.args {
            self.arg(arg, &mut argv)?;
        }
        let mut env = BTreeMap::new();
        for (name, template) in &body.env {
            let leaf = template.eval(self.variables)?;
            if let (Leaf::Bool(value), Some(expr)) = (&leaf, template.exprs().next()) {
                return Err(expr.fault(format!("{name} is a boolean, the environment holds text")).help(format!(
                    "choose the word that the program reads, such as `\"1\" if … else \"0\"`; it is {value} here"
                )));
            }
            if let Some(text) = leaf_text(leaf) {
                env.insert(Key::from(name.as_str()), text);
            }
        }
        let mut files = BTreeMap::new();
        for (name, file) in &body.files {
            let text = match file {
                FileBody::Json(json) => Text::Json { json: self.json(json)? },
                FileBody::Text(template, _) => {
                    leaf_text(template.eval(self.variables)?).unwrap_or(Text::Literal(String::new()))
                }
            };
            files.insert(Key::from(name.as_str()), text);
        }
        let mut after = Vec::new();
        for (template, instances, place) in &body.after {
            match template.eval(self.variables)? {
                Leaf::Text(Text::Literal(service)) => after.push(After { instances: *instances, service }),
                other => {
                    let fault = format!("`after` of `{}` is {other}", body.name);
                    return Err(Diagnostic::at(place, fault).help("it must be the name of a service"));
                }
            }
        }
        after.sort_by(|a, b| a.service.cmp(&b.service));
        after.dedup();
        self.no_policy(body, &argv)?;
        let mut resources = body.resources.clone();
        if let Some(gpus) = &body.gpus {
            resources.gpus = self.count(gpus, "gpus", body)?;
        }
        let image = self.arm.row.entry.image.as_str();
        let mut packages = Vec::new();
        // `compile` has seen to it that a recipe which installs into its image says which Python that has.
        for (package, python) in body.packages.iter().filter_map(|package| Some((package, python?))) {
            packages.push(self.lock.package(&self.package(package, python)?, package.deps, image));
        }
        let tools = body.tools.iter().map(|(name, place)| self.tool(name, place)).collect::<Result<Vec<_>, _>>()?;
        if let Some((other, (_, place))) =
            tools.iter().zip(&body.tools).find(|(tool, _)| tool.python != tools[0].python)
        {
            return Err(Diagnostic::at(place, format!("the tools of `{}` want different Pythons", body.name))
                .related(&tools[0].place, tools[0].python.to_string())
                .related(&other.place, other.python.to_string())
                .help("they share one environment: give them one Python"));
        }
        let keys: Vec<PackageKey> = tools.iter().map(|tool| tool.key()).collect();
        let environment = lock::environment(&keys);
        packages.extend(keys.iter().map(|key| self.lock.package(key, Deps::Closure, &environment)));
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Service {
            after,
            argv,
            endpoints: body.endpoints.clone(),
            engine: body.engine,
            entrypoint: body.entrypoint.clone(),
            env,
            files,
            group: super::NODE.to_owned(),
            image: body.image.then(|| self.lock.image(image)),
            mounts: body.mounts.clone(),
            name: body.name.clone(),
            packages,
            probe: match &body.probe {
                ProbeBody::Http { endpoint, path } => Probe::Http { endpoint: endpoint.clone(), path: path.clone() },
                ProbeBody::AliveAfter { ms } => Probe::AliveAfter { ms: *ms },
                ProbeBody::Exit => Probe::Exit {},
            },
            replicas: body.replicas,
            resources,
        })
    }

    /// Expressions cannot spell a reserved flag either.
    fn no_policy(&self, body: &ServiceBody, argv: &[Text]) -> Result<(), Diagnostic> {
        for text in argv {
            let lead = match text {
                Text::Literal(text) => text,
                Text::Segments { text } => match text.first() {
                    Some(Segment::Literal(text)) => text,
                    _ => continue,
                },
                Text::Json { .. } => continue,
            };
            if is_reserved(lead) {
                let fault = Diagnostic::at(&body.place, format!("a recipe cannot pass {lead}"));
                return Err(
                    fault.help("the speculative policy sets it, from the golden curve that `speculative` names")
                );
            }
        }
        Ok(())
    }

    fn tool(&self, name: &str, place: &Place) -> Result<&Tool, Diagnostic> {
        self.tools.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.tools.names().collect();
            Diagnostic::at(place, format!("there is no tool `{name}`"))
                .help(format!("configs/clients.yaml has: {}", known.join(", ")))
        })
    }

    fn package(&self, body: &PackageBody, python: Python) -> Result<PackageKey, Diagnostic> {
        let version = match body.component {
            RowComponent::Router => self.arm.row.router.as_ref().map(|router| router.version.as_str()),
            RowComponent::KvOffloadBackend => match &self.arm.row.kv_offload {
                Some(KvOffload::Dram { backend, .. }) => backend.version.as_deref(),
                _ => None,
            },
        };
        let version = version.ok_or_else(|| {
            Diagnostic::at(&body.place, format!("the row gives no version for the package {}", body.name))
                .related(&self.arm.row.place, "in this row")
                .help("name the component and its version in the row; backends built into the engine need no package")
        })?;
        Ok(PackageKey { name: body.name.clone(), version: version.to_owned(), python })
    }

    fn arg(&self, arg: &ArgBody, argv: &mut Vec<Text>) -> Result<(), Diagnostic> {
        let flag = || Text::Literal(arg.flag.clone());
        let items = match (&arg.value, arg.form) {
            (JsonBody::List(items), Form::Repeated | Form::Multiple) => {
                let texts = items.iter().map(|item| self.value(item)).collect::<Result<Vec<_>, _>>()?;
                texts.into_iter().flatten().collect()
            }
            (JsonBody::Leaf(template, _), Form::Repeated | Form::Multiple) => match template.eval(self.variables)? {
                Leaf::Null => Vec::new(),
                leaf => {
                    let fault = Diagnostic::at(&arg.place, format!("{} takes a list, this is {leaf}", arg.flag));
                    return Err(fault.help("write it in brackets, or leave out the ending of the key"));
                }
            },
            (JsonBody::Leaf(template, _), _) => match template.eval(self.variables)? {
                Leaf::Null | Leaf::Bool(false) => Vec::new(),
                Leaf::Bool(true) => {
                    argv.push(flag());
                    return Ok(());
                }
                leaf => leaf_text(leaf).into_iter().collect(),
            },
            (json, _) => self.value(json)?.into_iter().collect::<Vec<_>>(),
        };
        if items.is_empty() {
            return Ok(());
        }
        match arg.form {
            Form::Spaced | Form::Multiple => {
                argv.push(flag());
                argv.extend(items);
            }
            Form::Joined => {
                for item in items {
                    argv.push(joined(&arg.flag, item).ok_or_else(|| {
                        Diagnostic::at(&arg.place, format!("{}= cannot carry JSON", arg.flag))
                            .help("leave out the `=`: JSON goes into an argument of its own")
                    })?);
                }
            }
            Form::Repeated => argv.extend(items.into_iter().flat_map(|item| [flag(), item])),
        }
        Ok(())
    }

    fn value(&self, json: &JsonBody) -> Result<Option<Text>, Diagnostic> {
        match json {
            JsonBody::Leaf(template, _) => Ok(leaf_text(template.eval(self.variables)?)),
            json => Ok(Some(Text::Json { json: self.json(json)? })),
        }
    }

    fn json(&self, body: &JsonBody) -> Result<Tree, Diagnostic> {
        Ok(match body {
            JsonBody::Leaf(template, place) => match template.eval(self.variables)? {
                Leaf::Null => Tree::Null,
                Leaf::Bool(value) => Tree::Bool(value),
                Leaf::Integer(value) => Tree::Integer(value),
                Leaf::Decimal(decimal) => Tree::Decimal { decimal },
                Leaf::Text(Text::Literal(text)) => Tree::String(text),
                Leaf::Text(Text::Segments { text }) => Tree::Segments { text },
                Leaf::Text(Text::Json { .. }) => {
                    return Err(Diagnostic::at(place, "a JSON text within JSON").help("write it as part of the value"));
                }
                // Within JSON a port is a number; a path or a host fact is text.
                Leaf::Binding(number @ crate::spec::Binding::Endpoint { part: crate::spec::Part::Port, .. }) => {
                    Tree::Number { number }
                }
                Leaf::Binding(binding) => Tree::Segments { text: vec![Segment::Bind(binding)] },
                Leaf::Tree(tree) => tree,
            },
            JsonBody::List(items) => Tree::List(items.iter().map(|item| self.json(item)).collect::<Result<_, _>>()?),
            JsonBody::Map(entries) => {
                let read = |(key, value): &(String, JsonBody)| Ok((Key::from(key.as_str()), self.json(value)?));
                Tree::Map { map: entries.iter().map(read).collect::<Result<_, Diagnostic>>()? }
            }
        })
    }
}

/// `--flag=value` as one argument; nothing for JSON.
fn joined(flag: &str, value: Text) -> Option<Text> {
    match value {
        Text::Literal(text) => Some(Text::Literal(format!("{flag}={text}"))),
        Text::Segments { text } => {
            let lead = Segment::Literal(format!("{flag}="));
            Some(Text::from_segments(std::iter::once(lead).chain(text).collect()))
        }
        Text::Json { .. } => None,
    }
}
