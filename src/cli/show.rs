//! `ixbuild show`: an arm or a job as text, JSON, or a shell script.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::Globals;
use super::attempts;
use super::error::Error;
use super::exit;
use super::printer::Printer;
use super::project::Project;
use super::script::{script, start_order};
use super::selection::{is_hash, one_arm};
use crate::compose::Composed;
use crate::ids::JobHash;
use crate::spec::{Acceptance, Deps, Image, JobSpec, Probe, Service, Text};
use crate::store::StoreView;

const NOTES: &str = "\
The script starts every service, waits until it is ready, and runs the client, in a subshell; ports and paths of the \
host are variables at its top. With --json: `id`, `job`, `spec` (what is hashed), `attempts` (each `manifest`, \
`outcome`, `counts`, `exclusion`, `failed_gates`, `reasons`, `result`, `gates`, `provenance` and more), `n` (records that \
count) and `median` (the value of all of them).

Examples:
  ixbuild show tp8-ep8-dpa-mooncake-mtp-c12              services, flags, files, attempts
  ixbuild show tp8-ep8-dpa-mooncake-mtp-c12 --format sh  a script to paste into a shell
  ixbuild show tp8-resident-mtp-c1-eval                  an arm's eval twin
  ixbuild show job:15cd --json                           a recorded job";

/// Show what an arm runs, before any run; of a recorded job also its attempts and results
#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub struct ShowArgs {
    /// An arm (its eval twin ends in `-eval`) or a job hash
    #[arg(value_name = "ARM|HASH")]
    what: String,
    /// `sh` is a script with the commands, environment and files, fit to paste into a shell
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How a spec is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Json,
    Sh,
}

impl ShowArgs {
    /// Whether one JSON object is wanted.
    pub(super) fn wants_json(&self) -> bool {
        self.json || self.format == Format::Json
    }
}

pub(super) fn show(args: &ShowArgs, globals: &Globals, printer: Printer) -> Result<u8, Error> {
    let store = globals.store()?;
    let (id, spec) = if is_hash(&args.what) {
        let hash = store.resolve(&args.what)?;
        let bytes = store.spec(&hash)?.ok_or_else(|| Error::usage(format!("the store has no spec of {hash}")))?;
        let spec = serde_json::from_slice::<JobSpec>(&bytes)
            .map_err(|error| Error::environment(format!("the spec of {hash} cannot be read: {error}")))?;
        (None, spec)
    } else {
        let project = Project::open(globals)?;
        let arm = one_arm(&project, &args.what)?;
        printer.note(&format!("profile {}", project.profile.name));
        match project.composer().compose(&arm)? {
            Composed::Job(job) => (Some(arm.id), job.spec),
            Composed::Blocked(blocked) => {
                return Err(Error::refused(format!("{} has no spec: {}", arm.id, blocked.why)).hint(blocked.unblock));
            }
        }
    };
    let hash = spec.hash();
    match (args.json, args.format) {
        (true, _) | (_, Format::Json) => {
            let (attempts, value) = attempts::json(&hash, &store)?;
            let (n, median) = value.map_or((0, None), |value| (value.n, Some(value.result)));
            let shown = json!({"id": id, "job": hash, "spec": spec, "attempts": attempts, "n": n, "median": median});
            printer.data(&shown.to_string());
        }
        (_, Format::Sh) => {
            let name = id.as_ref().map_or_else(String::new, |id| format!("{id} · "));
            printer.data(script(&spec, &format!("{name}{hash}")).trim_end());
        }
        (_, Format::Text) => {
            if let Some(id) = &id {
                printer.data(&format!("arm         {id}"));
            }
            printer.data(&text(&spec, &hash));
            printer.data(&attempts::text(&hash, &store)?);
        }
    }
    Ok(exit::OK)
}

/// A spec for reading.
pub(super) fn text(spec: &JobSpec, hash: &JobHash) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("{name:<12}{value}"));
    let (deployment, measurement) = (&spec.deployment, &spec.measurement);
    line("job", hash.to_string());
    line("deployment", spec.deployment_digest().to_string());
    line("measurement", spec.measurement_digest().to_string());
    line("model", pinned(&deployment.model));
    let group = deployment.groups.first();
    line(
        "hardware",
        format!(
            "{} × {} on {}, {} GB of DRAM for KV offload",
            spec.gpus(),
            deployment.hardware.gpu,
            deployment.hardware.runner,
            group.map_or(0, |group| group.dram_gb)
        ),
    );
    if let Some(speculative) = &deployment.speculative {
        let acceptance = match &speculative.acceptance {
            Acceptance::Real {} => "real verification".to_owned(),
            Acceptance::Synthetic { cell, length } => {
                let cell: Vec<String> = cell.iter().map(|(name, value)| format!("{} {value}", name.0)).collect();
                format!("synthetic acceptance length {length} ({})", cell.join(", "))
            }
        };
        line("speculative", format!("{}, {} tokens, {acceptance}", speculative.method, speculative.tokens));
    }
    if deployment.substitutions.is_some() {
        line("rehearsal", "yes: engine, router and KV store are simulated".to_owned());
    }
    for setting in &spec.what_if {
        line("what-if", setting.clone());
    }
    if spec.exploratory {
        line("exploratory", "yes: real verification, for want of a golden acceptance length".to_owned());
    }
    if !spec.what_if.is_empty() || spec.exploratory {
        line("publishable", format!("no ({})", spec.unpublishable().join("; ")));
    }
    line("concurrency", measurement.concurrency.to_string());
    let workload = &measurement.workload;
    let duration = workload.duration_s.map(|s| format!(", {s} s")).unwrap_or_default();
    let seed = workload.seed.map(|seed| format!(", seed {seed}")).unwrap_or_default();
    line("workload", format!("{}{duration}{seed}", pinned(&workload.dataset)));
    for service in start_order(spec).into_iter().chain([&measurement.client]) {
        lines.push(String::new());
        lines.push(process(service, service.name == measurement.client.name));
    }
    lines.join("\n")
}

fn pinned(pinned: &crate::spec::Pinned) -> String {
    match &pinned.revision {
        Some(revision) => format!("{} at {revision}", pinned.id),
        None => format!("{} (unlocked)", pinned.id),
    }
}

fn process(service: &Service, client: bool) -> String {
    let mut lines = vec![format!("── {}", service.name)];
    if let Some(image) = &service.image {
        lines.push(match image {
            Image::Locked { manifest, platform, .. } => format!("  image    {manifest} {platform}"),
            Image::Unlocked { reference } => format!("  image    {reference} (unlocked)"),
        });
    }
    for package in &service.packages {
        let deps = if package.deps == Deps::None { ", without dependencies" } else { "" };
        let locked = match (&package.files, &package.closure) {
            (None, _) => " (unlocked)",
            (Some(_), None) if package.deps == Deps::Closure => " (dependencies unlocked)",
            _ => "",
        };
        lines.push(format!("  package  {} {}{deps}{locked}", package.name, package.version));
    }
    let after: Vec<&str> = service.after.iter().map(|after| after.service.as_str()).collect();
    if !after.is_empty() {
        lines.push(format!("  after    {}", after.join(", ")));
    }
    lines.push(match &service.probe {
        Probe::Http { endpoint, path } => format!("  ready    when GET {path} on {endpoint} answers"),
        Probe::AliveAfter { ms } => format!("  ready    when alive for {} s", *ms as f64 / 1000.0),
        Probe::Exit {} if client => "  done     when it ended with status 0".to_owned(),
        Probe::Exit {} => "  ready    when it ended with status 0".to_owned(),
    });
    for (name, text) in &service.env {
        lines.push(format!("  env      {}={}", name.0, plain(text)));
    }
    for (name, text) in &service.files {
        lines.push(format!("  file     {}: {}", name.0, plain(text)));
    }
    lines.push(format!("  run      {}", service.entrypoint.join(" ")));
    let argv: Vec<String> = service.argv.iter().map(plain).collect();
    let mut at = 0;
    while at < argv.len() {
        let mut line = argv[at].clone();
        at += 1;
        while line.starts_with('-') && at < argv.len() && !argv[at].starts_with('-') {
            line.push(' ');
            line.push_str(&argv[at]);
            at += 1;
        }
        lines.push(format!("             {line}"));
    }
    lines.join("\n")
}

/// A text with its bindings as `<server.http.port>`.
fn plain(text: &Text) -> String {
    struct Names;
    impl crate::spec::Binder for Names {
        fn bind(&self, binding: &crate::spec::Binding) -> Result<std::borrow::Cow<'_, str>, crate::spec::Unbound> {
            Ok(format!("<{binding}>").into())
        }
    }
    text.render(&Names).unwrap_or_default()
}
