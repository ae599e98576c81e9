//! A merged recipe body as typed parts with compiled expressions: what is left to do for an arm is evaluation.
//!
//! Args are a map, and its order is argv's. The ending of a key chooses the form:
//!
//! | key | value | argv |
//! |---|---|---|
//! | `port` | `8000` | `--port 8000` |
//! | `streaming` | `true` | `--streaming` |
//! | `port` | `null` or `false` | nothing: an inherited flag is removed |
//! | `config` | a map or a list | `--config {"compact":"json"}` |
//! | `ratio=` | `0.80` | `--ratio=0.80` |
//! | `header[]` | `[a, b]` | `--header a --header b` |
//! | `urls...` | `[a, b]` | `--urls a b` |
//! | `-n` | `2` | `-n 2` |
//!
//! Numbers keep their digits (`0.80` stays `0.80`). This file holds the types; `compile` makes them, `resolve` evaluates
//! them.

use std::collections::BTreeSet;

use super::expr::{Expr, Leaf, Template};
use crate::config::diagnostic::Place;
use crate::config::golden::Thinking;
use crate::spec::{ClientOutput, Deps, Engine, Instances, Python, Text};

/// A recipe's body for one choice of overlays.
#[derive(Debug)]
pub struct Body {
    /// The services in file order.
    pub services: Vec<ServiceBody>,
    /// The client, or the eval client for eval arms.
    pub client: ClientBody,
    /// How drafts are made; absent without speculation.
    pub speculative: Option<SpeculativeBody>,
    /// The Python of the row's image; present where something is installed into it.
    pub python: Option<Python>,
}

/// One service.
#[derive(Debug)]
pub struct ServiceBody {
    /// Its name.
    pub name: String,
    /// Where it is named.
    pub place: Place,
    /// Set for engine processes.
    pub engine: Option<Engine>,
    /// Whether it runs in the row's image; else in an environment of its tools.
    pub image: bool,
    /// Entries of `configs/clients.yaml` that make up its environment.
    pub tools: Vec<(String, Place)>,
    /// Components of the row that are added to its image.
    pub packages: Vec<PackageBody>,
    /// The program and its fixed first arguments.
    pub entrypoint: Vec<String>,
    /// Arguments without a flag, before the others.
    pub positional: Vec<Template>,
    /// Flags in order.
    pub args: Vec<ArgBody>,
    /// Environment.
    pub env: Vec<(String, Template)>,
    /// Files by name.
    pub files: Vec<(String, FileBody)>,
    /// Endpoint names.
    pub endpoints: BTreeSet<String>,
    /// What must be ready first, and where that is said.
    pub after: Vec<(Template, Instances, Place)>,
    /// When it is ready.
    pub probe: ProbeBody,
    /// How long readiness may take, seconds; not hashed.
    pub ready_timeout_s: Option<u64>,
    /// GPUs.
    pub gpus: Option<Template>,
    /// Everything else that it may use of the host.
    pub resources: crate::spec::Resources,
    /// Mounts.
    pub mounts: Vec<crate::spec::Mount>,
    /// Instances.
    pub replicas: u64,
}

impl ServiceBody {
    /// Every expression of its argv, environment and files.
    pub fn exprs(&self) -> Vec<&Expr> {
        let mut found: Vec<&Expr> = self.positional.iter().flat_map(Template::exprs).collect();
        self.args.iter().for_each(|arg| arg.value.exprs(&mut found));
        found.extend(self.env.iter().flat_map(|(_, template)| template.exprs()));
        for (_, file) in &self.files {
            match file {
                FileBody::Json(json) => json.exprs(&mut found),
                FileBody::Text(template, _) => found.extend(template.exprs()),
            }
        }
        found
    }
}

/// The load generator or eval harness.
#[derive(Debug)]
pub struct ClientBody {
    /// As a process.
    pub service: ServiceBody,
    /// How its output is read.
    pub output: ClientOutput,
    /// Data set id.
    pub dataset: String,
    /// Part of the data set.
    pub split: Option<String>,
    /// Seed.
    pub seed: Option<u64>,
    /// Seconds of measured load.
    pub duration_s: Option<Template>,
    /// Highest error ratio, digits.
    pub max_error_ratio: Option<String>,
    /// Lowest score, digits.
    pub min_score: Option<String>,
}

/// How drafts are made.
#[derive(Debug)]
pub struct SpeculativeBody {
    /// The drafting method.
    pub method: String,
    /// N.
    pub tokens: Template,
    /// The golden curve and where it is named.
    pub curve: (String, Place),
    /// Thinking mode of the workload.
    pub thinking: Thinking,
}

/// A component of the row as a package.
#[derive(Debug)]
pub struct PackageBody {
    /// Which component gives the version.
    pub component: RowComponent,
    /// Its name in the package index.
    pub name: String,
    /// With or without its dependencies.
    pub deps: Deps,
    /// Where it is named.
    pub place: Place,
}

/// The components that a row can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowComponent {
    /// The KV-offload backend.
    KvOffloadBackend,
    /// The router.
    Router,
}

/// One entry of an args map.
#[derive(Debug)]
pub struct ArgBody {
    /// With its dashes.
    pub flag: String,
    /// How flag and value are joined.
    pub form: Form,
    /// What it is set to.
    pub value: JsonBody,
    /// Where it is written.
    pub place: Place,
}

/// How a flag and its value become argv.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `--flag value`.
    Spaced,
    /// `--flag=value`.
    Joined,
    /// `--flag a --flag b`.
    Repeated,
    /// `--flag a b`.
    Multiple,
}

/// A JSON value whose scalars are templates.
#[derive(Debug)]
pub enum JsonBody {
    /// A scalar and where it stands.
    Leaf(Template, Place),
    /// A list.
    List(Vec<JsonBody>),
    /// A map; the order does not count.
    Map(Vec<(String, JsonBody)>),
}

impl JsonBody {
    fn exprs<'b>(&'b self, found: &mut Vec<&'b Expr>) {
        match self {
            JsonBody::Leaf(template, _) => found.extend(template.exprs()),
            JsonBody::List(items) => items.iter().for_each(|item| item.exprs(found)),
            JsonBody::Map(entries) => entries.iter().for_each(|(_, value)| value.exprs(found)),
        }
    }
}

/// A file's content.
#[derive(Debug)]
pub enum FileBody {
    /// Printed as compact JSON.
    Json(JsonBody),
    /// Text.
    Text(Template, Place),
}

/// When a service is ready.
#[derive(Debug)]
pub enum ProbeBody {
    /// HTTP 2xx.
    Http {
        /// Endpoint name.
        endpoint: String,
        /// Path.
        path: String,
    },
    /// Alive for so long.
    AliveAfter {
        /// Milliseconds.
        ms: u64,
    },
    /// Ended with status 0.
    Exit,
}

/// A leaf as the text of argv or the environment; nothing for null.
pub fn leaf_text(leaf: Leaf) -> Option<Text> {
    use crate::spec::Segment;
    Some(match leaf {
        Leaf::Null => return None,
        Leaf::Bool(value) => Text::Literal(value.to_string()),
        Leaf::Integer(value) => Text::Literal(value.to_string()),
        Leaf::Decimal(digits) => Text::Literal(digits),
        Leaf::Text(text) => text,
        Leaf::Binding(binding) => Text::from_segments(vec![Segment::Bind(binding)]),
        Leaf::Tree(json) => Text::Json { json },
    })
}
