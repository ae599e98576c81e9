//! What arms run, as text: one line an argument, variable and file, bindings as `<name>`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;

use ixbuild::spec::{Binder, Binding, Deps, Image, JobSpec, Probe, Service, Text, Unbound};

use super::tree::{named, real};

/// Shows bindings by their names.
struct Names;

impl Binder for Names {
    fn bind(&self, binding: &Binding) -> Result<Cow<'_, str>, Unbound> {
        Ok(Cow::Owned(format!("<{binding}>")))
    }
}

fn shown(text: &Text) -> String {
    text.render(&Names).unwrap()
}

/// A process in words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Process {
    pub entrypoint: String,
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub files: BTreeMap<String, String>,
    /// `NAME VERSION`, and ` alone` without dependencies.
    pub packages: Vec<String>,
    pub after: Vec<String>,
    pub probe: String,
    pub image: Option<String>,
}

impl Process {
    pub fn of(service: &Service) -> Self {
        let texts = |map: &BTreeMap<ixbuild::spec::Key, Text>| {
            map.iter().map(|(name, text)| (name.0.clone(), shown(text))).collect()
        };
        Self {
            entrypoint: service.entrypoint.join(" "),
            argv: service.argv.iter().map(shown).collect(),
            env: texts(&service.env),
            files: texts(&service.files),
            packages: service
                .packages
                .iter()
                .map(|package| {
                    let alone = if package.deps == Deps::None { " alone" } else { "" };
                    format!("{} {}{alone}", package.name, package.version)
                })
                .collect(),
            after: service.after.iter().map(|after| after.service.clone()).collect(),
            probe: match &service.probe {
                Probe::Http { endpoint, path } => format!("GET {endpoint}{path}"),
                Probe::AliveAfter { ms } => format!("alive after {ms} ms"),
                Probe::Exit {} => "exit".to_owned(),
            },
            image: service.image.as_ref().map(|image| match image {
                Image::Locked { manifest, .. } => manifest.to_string(),
                Image::Unlocked { reference } => reference.clone(),
            }),
        }
    }
}

/// The processes by name, in start order: each stands after all that it waits for.
pub fn start_order(spec: &JobSpec) -> Vec<String> {
    let mut order: Vec<String> = Vec::new();
    let mut rest: Vec<&Service> = spec.processes().collect();
    while !rest.is_empty() {
        let ready = rest.iter().position(|service| service.after.iter().all(|after| order.contains(&after.service)));
        order.push(rest.remove(ready.expect("no circle")).name.clone());
    }
    order
}

fn describe(spec: &JobSpec) -> String {
    let mut out = String::new();
    let deployment = &spec.deployment;
    for group in &deployment.groups {
        let _ = writeln!(
            out,
            "{} × {} {} on {}, {} GB of DRAM",
            group.nodes, group.gpus_per_node, deployment.hardware.gpu, deployment.hardware.runner, group.dram_gb
        );
    }
    let _ = writeln!(out, "model {}", deployment.model.id);
    if let Some(speculative) = &deployment.speculative {
        let _ = writeln!(out, "speculative {}", serde_json::to_string(speculative).unwrap());
    }
    let measurement = &spec.measurement;
    let _ = writeln!(out, "concurrency {}", measurement.concurrency);
    let _ = writeln!(out, "workload {}", serde_json::to_string(&measurement.workload).unwrap());
    let _ = writeln!(out, "gates {}", serde_json::to_string(&measurement.gates).unwrap());
    let order = start_order(spec);
    let _ = writeln!(out, "start {}", order.join(", "));
    for name in &order {
        let service = spec.processes().find(|service| service.name == *name).unwrap();
        let process = Process::of(service);
        let _ = writeln!(out, "\n── {name}");
        if let Some(image) = &process.image {
            let _ = writeln!(out, "image {image}");
        }
        process.packages.iter().for_each(|package| writeln!(out, "package {package}").unwrap());
        if !process.after.is_empty() {
            let _ = writeln!(out, "after {}", process.after.join(", "));
        }
        let endpoints: Vec<&str> = service.endpoints.iter().map(String::as_str).collect();
        if !endpoints.is_empty() {
            let _ = writeln!(out, "endpoints {}", endpoints.join(", "));
        }
        let _ = writeln!(out, "ready {}", process.probe);
        let _ = writeln!(out, "resources {}", serde_json::to_string(&service.resources).unwrap());
        for mount in &service.mounts {
            let _ = writeln!(out, "mount <{}> at {} (read-only {})", mount.source, mount.target, mount.read_only);
        }
        process.env.iter().for_each(|(name, value)| writeln!(out, "env {name}={value}").unwrap());
        process.files.iter().for_each(|(name, text)| writeln!(out, "file {name} {text}").unwrap());
        let _ = writeln!(out, "run {}", process.entrypoint);
        process.argv.iter().for_each(|item| writeln!(out, "  {item}").unwrap());
    }
    out
}

macro_rules! arms {
    ($($test:ident: $arm:literal,)+) => { $(
        #[test]
        fn $test() {
            let text = describe(named(real("docker"), $arm));
            insta::with_settings!({ omit_expression => true, description => $arm }, {
                insta::assert_snapshot!(stringify!($test), text)
            });
        }
    )+ };
}

arms! {
    tp8_resident: "tp8-resident-c1",
    tp8_vllm_simple: "tp8-vllm-simple-c16",
    dep8_vllm_simple_behind_the_router: "tp8-ep8-dpa-vllm-simple-c80",
    dep8_mooncake_mtp: "tp8-ep8-dpa-mooncake-mtp-c12",
    tp8_lmcache: "tp8-lmcache-c8",
    eval_twin_of_dep8_mooncake_mtp: "tp8-ep8-dpa-mooncake-mtp-c12-eval",
}
