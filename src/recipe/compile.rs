//! A merged recipe body, read into the types of `schema` with every expression compiled.
//!
//! All faults of a body are reported at once, each in the file that wrote it. This file evaluates nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::expr::{Leaf, Template};
use super::scalar;
use super::schema::{
    Body, ClientBody, FileBody, JsonBody, PackageBody, ProbeBody, RowComponent, ServiceBody, SpeculativeBody,
};
use crate::config::diagnostic::{Diagnostic, Diagnostics, Place};
use crate::config::document::{Node, Scalar, Value};
use crate::config::fields::{self, Faults, Fields};
use crate::config::golden::Thinking;
use crate::spec::python::NotAPython;
use crate::spec::{ClientOutput, Deps, Engine, Instances, Python};
use crate::speculative::RESERVED_ENV;

/// Compiles a merged body. `names` are the variables of its expressions; `eval` chooses the client.
///
/// # Errors
/// Every unknown field, wrong kind, faulty expression and reserved setting.
pub fn compile(body: &Node, names: &BTreeSet<String>, eval: bool) -> Result<Body, Diagnostics> {
    let faults = Faults::default();
    let reader = Reader { names, faults: &faults };
    let read = Fields::open(body, "a recipe", &super::overlay::BODY, &faults).and_then(|fields| {
        let services = fields.required("services").map(|node| reader.services(node));
        let speculative = fields.optional("speculative").map(|node| reader.speculative(node));
        let client = fields.required(if eval { "eval" } else { "client" }).and_then(|node| reader.client(node));
        let python = fields.optional("python").map(|node| python(node, &faults));
        let body =
            Body { services: services?, client: client?, speculative: speculative.flatten(), python: python.flatten() };
        let into_image =
            body.services.iter().chain([&body.client.service]).find_map(|service| service.packages.first());
        if let (Some(package), None) = (into_image, python) {
            faults.push(
                Diagnostic::at(&package.place, format!("which Python has the image that {} goes into?", package.name))
                    .help("write it into the recipe, `python: 3.12`: it decides which wheel is locked"),
            );
        }
        Some(body)
    });
    faults.or(read).and_then(|body| body.ok_or_else(Diagnostics::default))
}

/// A Python, as `3.12`.
pub(super) fn python(node: &Node, faults: &Faults) -> Option<Python> {
    let text = node.scalar_text().unwrap_or_default();
    let fault = |error: NotAPython| faults.push(Diagnostic::at(&node.place, error.to_string()));
    text.parse().map_err(fault).ok()
}

pub(super) struct Reader<'r> {
    names: &'r BTreeSet<String>,
    pub(super) faults: &'r Faults,
}

/// The name of the load generator as a process.
const CLIENT: &str = "client";

const PROCESS: [&str; 16] = [
    "engine",
    "image",
    "tools",
    "packages",
    "entrypoint",
    "positional",
    "args",
    "env",
    "files",
    "endpoints",
    "after",
    "probe",
    "resources",
    "mounts",
    "replicas",
    "group",
];

impl Reader<'_> {
    fn services(&self, node: &Node) -> Vec<ServiceBody> {
        let Some(fields) = Fields::open_any(node, "`services`", self.faults) else { return Vec::new() };
        let present = fields.entries().iter().filter(|(_, value)| !value.is_null());
        present
            .filter_map(|(key, value)| {
                let name = self.name(key, "a service")?;
                if name == CLIENT {
                    let fault = format!("a service cannot be called `{CLIENT}`: that is the load generator");
                    self.faults.push(Diagnostic::at(&key.place, fault).help("give it another name"));
                }
                let fields = Fields::open(value, "a service", &PROCESS, self.faults)?.at(&key.place);
                self.service(name, &key.place, &fields)
            })
            .collect()
    }

    /// A name that becomes part of paths.
    fn name<'n>(&self, node: &'n Node, what: &str) -> Option<&'n str> {
        let name = fields::string(node, &format!("the name of {what}"), self.faults)?;
        if crate::spec::is_name(name) {
            return Some(name);
        }
        let fault = Diagnostic::at(&node.place, format!("`{name}` cannot be the name of {what}"));
        self.faults.push(fault.help("a name has letters, digits, `.`, `_` and `-`, and starts with a letter or digit"));
        None
    }

    fn endpoints(&self, nodes: Option<&[Node]>) -> BTreeSet<String> {
        nodes.unwrap_or_default().iter().filter_map(|node| self.name(node, "an endpoint")).map(str::to_owned).collect()
    }

    fn service(&self, name: &str, place: &Place, fields: &Fields<'_, '_>) -> Option<ServiceBody> {
        let engines =
            [("vllm", Engine::Vllm), ("sglang", Engine::Sglang), ("trt", Engine::Trt), ("atom", Engine::Atom)];
        let entrypoint = fields.required("entrypoint").and_then(|_| fields.optional_strings("entrypoint"));
        for words in ["entrypoint", "positional"] {
            self.no_reserved(fields.entry(words).and_then(|(_, node)| node.as_list()));
        }
        let image = fields.optional_choice("image", &[("row", true)]).unwrap_or(false);
        let tools = self.named(fields, "tools");
        if image != tools.is_empty() {
            fields.fault(
                format!("`{name}` must run either in the row's image or with tools"),
                "write `image: row`, or `tools: [NAME]` with a name from configs/clients.yaml",
            );
        }
        let (probe, ready_timeout_s) = self.probe(fields.optional("probe"));
        let (gpus, resources) = self.resources(fields.optional("resources"));
        Some(ServiceBody {
            name: name.to_owned(),
            place: place.clone(),
            engine: fields.optional_choice("engine", &engines),
            image,
            tools,
            packages: self.packages(fields.optional("packages")),
            positional: self.templates(fields.optional_list("positional")),
            args: self.args(fields.optional("args")),
            env: self.env(fields.optional("env")),
            files: self.files(fields.optional("files")),
            endpoints: self.endpoints(fields.optional_list("endpoints")),
            after: self.after(fields.optional_list("after")),
            probe,
            ready_timeout_s,
            gpus,
            resources,
            mounts: self.mounts(fields.optional_list("mounts")),
            replicas: fields.optional_integer("replicas", 1..=1024).unwrap_or(1),
            entrypoint: entrypoint?.into_iter().map(str::to_owned).collect(),
        })
    }

    fn client(&self, node: &Node) -> Option<ClientBody> {
        let mut known = PROCESS.to_vec();
        known.extend(["output", "workload", "gates"]);
        let fields = Fields::open(node, "a client", &known, self.faults)?;
        let service = self.service(CLIENT, &node.place, &fields);
        let output = fields.choice("output", &[("aiperf", ClientOutput::Aiperf), ("swebench", ClientOutput::Swebench)]);
        let workload = fields.required("workload").and_then(|node| {
            Fields::open(node, "a workload", &["dataset", "split", "seed", "duration-s"], self.faults)
        });
        let dataset = workload.as_ref().and_then(|fields| fields.string("dataset"));
        let workload = workload?;
        let gates = fields
            .optional("gates")
            .and_then(|node| Fields::open(node, "gates", &["max-error-ratio", "min-score"], self.faults));
        let bound = |name: &str| gates.as_ref().and_then(|gates| gates.optional_decimal(name)).map(str::to_owned);
        Some(ClientBody {
            output: output?,
            dataset: dataset?.to_owned(),
            split: workload.optional_string("split").map(str::to_owned),
            seed: workload.optional_integer("seed", 0..=u64::from(u32::MAX)),
            duration_s: workload.optional("duration-s").and_then(|node| self.template(node)),
            max_error_ratio: bound("max-error-ratio"),
            min_score: bound("min-score"),
            service: service?,
        })
    }

    fn speculative(&self, node: &Node) -> Option<SpeculativeBody> {
        let known = ["method", "tokens", "curve", "thinking"];
        let fields = Fields::open(node, "`speculative`", &known, self.faults)?;
        let (method, tokens) =
            (fields.string("method"), fields.required("tokens").and_then(|node| self.template(node)));
        let (curve, thinking) = (fields.string("curve"), fields.optional_boolean("thinking"));
        let place = fields.optional("curve").map_or(&node.place, |node| &node.place);
        Some(SpeculativeBody {
            method: method?.to_owned(),
            tokens: tokens?,
            curve: (curve?.to_owned(), place.clone()),
            thinking: match thinking {
                Some(true) => Thinking::On,
                Some(false) => Thinking::Off,
                None => Thinking::None,
            },
        })
    }

    fn env(&self, node: Option<&Node>) -> Vec<(String, Template)> {
        let Some(fields) = node.and_then(|node| Fields::open_any(node, "`env`", self.faults)) else {
            return Vec::new();
        };
        let mut env = Vec::new();
        for (key, value) in fields.entries().iter().filter(|(_, value)| !value.is_null()) {
            let name = key.scalar_text().unwrap_or_default();
            if RESERVED_ENV.contains(&name) {
                self.reserved(&key.place, name);
            } else if let Some(Scalar::Bool(_)) = value.resolve() {
                self.faults.push(
                    Diagnostic::at(&value.place, format!("{name} is a boolean, the environment holds text"))
                        .help("quote the word that the program reads: \"true\", \"1\" or \"on\""),
                );
            } else if let Some(template) = self.template(value) {
                env.push((name.to_owned(), template));
            }
        }
        env
    }

    pub(super) fn reserved(&self, place: &Place, name: &str) {
        self.faults.push(
            Diagnostic::at(place, format!("a recipe cannot set {name}"))
                .help("the speculative policy sets it, from the golden curve that `speculative` names"),
        );
    }

    fn files(&self, node: Option<&Node>) -> Vec<(String, FileBody)> {
        let Some(fields) = node.and_then(|node| Fields::open_any(node, "`files`", self.faults)) else {
            return Vec::new();
        };
        let mut files = Vec::new();
        for (key, value) in fields.entries().iter().filter(|(_, value)| !value.is_null()) {
            let Some(name) = self.name(key, "a file") else { continue };
            let Some(file) = Fields::open(value, "a file", &["json", "text"], self.faults) else { continue };
            let body = match (file.optional("json"), file.optional("text")) {
                (Some(json), None) => self.json(json).map(FileBody::Json),
                (None, Some(text)) => self.template(text).map(|template| FileBody::Text(template, text.place.clone())),
                _ => {
                    file.fault(format!("`{name}` needs exactly one of json and text"), "keep one of them");
                    None
                }
            };
            files.extend(body.map(|body| (name.to_owned(), body)));
        }
        files
    }

    pub(super) fn json(&self, node: &Node) -> Option<JsonBody> {
        match &node.value {
            Value::Scalar { .. } => self.template(node).map(|template| JsonBody::Leaf(template, node.place.clone())),
            Value::List(items) => Some(JsonBody::List(items.iter().filter_map(|item| self.json(item)).collect())),
            Value::Map(entries) => {
                let read = |(key, value): &(Node, Node)| Some((key.scalar_text()?.to_owned(), self.json(value)?));
                Some(JsonBody::Map(entries.iter().filter_map(read).collect()))
            }
        }
    }

    fn template(&self, node: &Node) -> Option<Template> {
        scalar::template(node, self.names).map_err(|fault| self.faults.push(fault)).ok()
    }

    fn templates(&self, nodes: Option<&[Node]>) -> Vec<Template> {
        nodes.unwrap_or_default().iter().filter_map(|node| self.template(node)).collect()
    }

    fn named(&self, fields: &Fields<'_, '_>, name: &str) -> Vec<(String, Place)> {
        let items = fields.optional_list(name).unwrap_or_default();
        let read = |item: &Node| Some((fields::string(item, "a name", self.faults)?.to_owned(), item.place.clone()));
        items.iter().filter_map(read).collect()
    }

    fn after(&self, nodes: Option<&[Node]>) -> Vec<(Template, Instances, Place)> {
        let read = |node: &Node| match node.as_map() {
            None => Some((self.template(node)?, Instances::All, node.place.clone())),
            Some(_) => {
                let fields = Fields::open(node, "a dependency", &["service", "instances"], self.faults)?;
                let choices = [("all", Instances::All), ("any", Instances::Any)];
                let instances = fields.optional_choice("instances", &choices).unwrap_or(Instances::All);
                let service = fields.required("service")?;
                Some((self.template(service)?, instances, service.place.clone()))
            }
        };
        nodes.unwrap_or_default().iter().filter_map(read).collect()
    }

    fn packages(&self, node: Option<&Node>) -> Vec<PackageBody> {
        let known = ["kv-offload-backend", "router"];
        let Some(fields) = node.and_then(|node| Fields::open(node, "`packages`", &known, self.faults)) else {
            return Vec::new();
        };
        let mut packages = Vec::new();
        for (key, value) in fields.entries().iter().filter(|(_, value)| !value.is_null()) {
            let component = match key.scalar_text() {
                Some("router") => RowComponent::Router,
                _ => RowComponent::KvOffloadBackend,
            };
            let Some(package) = Fields::open(value, "a package", &["name", "deps"], self.faults) else { continue };
            let deps = package.optional_choice("deps", &[("none", Deps::None)]).unwrap_or(Deps::Closure);
            if let Some(name) = package.string("name") {
                packages.push(PackageBody { component, name: name.to_owned(), deps, place: key.place.clone() });
            }
        }
        packages
    }

    fn probe(&self, node: Option<&Node>) -> (ProbeBody, Option<u64>) {
        let known = ["http", "endpoint", "alive-after-ms", "exit", "timeout-s"];
        let Some(fields) = node.and_then(|node| Fields::open(node, "a probe", &known, self.faults)) else {
            return (ProbeBody::Exit, None);
        };
        let timeout = fields.optional_integer("timeout-s", 1..=86_400);
        let kinds = ["http", "alive-after-ms", "exit"].into_iter().filter(|kind| fields.optional(kind).is_some());
        if kinds.count() != 1 {
            fields.fault("a probe is exactly one of http, alive-after-ms and exit", "keep one of them");
        }
        let probe = if let Some(path) = fields.optional_string("http") {
            let endpoint = fields.optional_string("endpoint").unwrap_or("http").to_owned();
            ProbeBody::Http { endpoint, path: path.to_owned() }
        } else if let Some(ms) = fields.optional_integer("alive-after-ms", 1..=3_600_000) {
            ProbeBody::AliveAfter { ms }
        } else {
            ProbeBody::Exit
        };
        (probe, timeout)
    }

    fn resources(&self, node: Option<&Node>) -> (Option<Template>, crate::spec::Resources) {
        let mut resources = crate::spec::Resources::default();
        let known = ["gpus", "ipc", "shm-mib", "capabilities", "devices", "ulimits"];
        let Some(fields) = node.and_then(|node| Fields::open(node, "`resources`", &known, self.faults)) else {
            return (None, resources);
        };
        let words = |name: &str| fields.optional_strings(name).unwrap_or_default().into_iter().map(str::to_owned);
        resources.capabilities = words("capabilities").collect();
        resources.devices = words("devices").collect();
        resources.ipc = fields.optional_string("ipc").map(str::to_owned);
        resources.shm_mib = fields.optional_integer("shm-mib", 1..=1 << 24);
        if let Some(limits) = fields.optional("ulimits").and_then(|n| Fields::open_any(n, "`ulimits`", self.faults)) {
            let read = |(key, value): &(Node, Node)| match self.template(value)? {
                Template::Fixed(Leaf::Integer(limit)) if limit >= -1 => Some((key.scalar_text()?.into(), limit)),
                _ => {
                    fields::wrong_kind(value, "a limit", "an integer, -1 for unlimited", self.faults);
                    None
                }
            };
            resources.ulimits = limits.entries().iter().filter_map(read).collect::<BTreeMap<_, _>>();
        }
        (fields.optional("gpus").and_then(|node| self.template(node)), resources)
    }

    fn mounts(&self, nodes: Option<&[Node]>) -> Vec<crate::spec::Mount> {
        use crate::spec::Binding;
        let read = |node: &Node| {
            let fields = Fields::open(node, "a mount", &["source", "target", "read-only"], self.faults)?;
            let source = fields.choice("source", &[("model", ())]).map(|()| Binding::Model {});
            let (target, read_only) = (fields.string("target"), fields.optional_boolean("read-only"));
            Some(crate::spec::Mount {
                source: source?,
                target: target?.to_owned(),
                read_only: read_only.unwrap_or(true),
            })
        };
        nodes.unwrap_or_default().iter().filter_map(read).collect()
    }
}
