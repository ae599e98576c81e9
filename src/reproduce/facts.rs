//! What must be the same for two runs to be compared, and what is worth knowing if it is not. Pure.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::exec::machine::Machine;
use crate::exec::provenance::Provenance;
use crate::ids::JobHash;
use crate::sim::{REPLAY_VERSION, SIMULATOR_VERSION};
use crate::spec::{Image, JobSpec, Substitutions};

/// How a fact of the records stands to the same fact here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// Equal.
    Same,
    /// Different; it may explain a difference of the numbers.
    Differs,
    /// Different, so that the numbers are not about one thing.
    Breaks,
    /// Not known, or nothing to compare.
    Unknown,
}

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Which, such as `driver`.
    pub what: String,
    /// Of the records; several values where they differ.
    pub recorded: Vec<String>,
    /// Here.
    pub now: Option<String>,
    /// How they stand.
    pub agreement: Agreement,
    /// Why it stands so, where that is not plain.
    pub note: Option<String>,
}

impl Fact {
    fn new(what: &str, recorded: impl IntoIterator<Item = String>, now: Option<String>, otherwise: Agreement) -> Self {
        let recorded: Vec<String> = recorded.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        let agreement = match (&now, recorded.as_slice()) {
            (_, []) | (None, _) => Agreement::Unknown,
            (Some(now), known) if known.iter().all(|value| value == now) => Agreement::Same,
            _ => otherwise,
        };
        Self { what: what.to_owned(), recorded, now, agreement, note: None }
    }

    fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }
}

/// Reads a fact of a machine.
type Read = fn(&Machine) -> Option<String>;

/// The facts, in the order in which they are shown: spec, images (of a rehearsal: its simulator), GPU, driver, node.
///
/// `stated_gpu` is the GPU model that the profile states for its nodes, where this machine is not one of them.
pub fn comparability(
    job: &JobHash,
    spec: &JobSpec,
    recorded: &[&Provenance],
    here: &Machine,
    stated_gpu: Option<&str>,
) -> Vec<Fact> {
    // A spec that this version would write otherwise is not the one that it would run.
    let mut facts = vec![Fact::new("spec", [job.to_string()], Some(spec.hash().to_string()), Agreement::Breaks)];
    match &spec.deployment.substitutions {
        Some(substitutions) => facts.extend(simulation(substitutions)),
        None => {
            facts.extend(images(spec));
            facts.push(gpu(&spec.deployment.hardware.gpu, here, stated_gpu));
        }
    }
    let known = |value: Read| recorded.iter().filter_map(move |one| value(&one.machine));
    let node: [(&str, Read); 8] = [
        ("GPUs", |machine| joined(machine.gpus.iter().map(|gpu| Some(gpu.model.clone())))),
        ("driver", |machine| joined(machine.gpus.iter().map(|gpu| gpu.driver.clone()))),
        ("host", |machine| Some(machine.host.clone())),
        ("kernel", |machine| Some(machine.kernel.clone())),
        ("architecture", |machine| Some(machine.architecture.clone())),
        ("CPU", |machine| machine.cpu.clone()),
        ("cores", |machine| Some(machine.cores.to_string())),
        ("memory", |machine| machine.memory_bytes.map(|bytes| format!("{} MiB", bytes >> 20))),
    ];
    for (what, value) in node {
        let fact = Fact::new(what, known(value), value(here), Agreement::Differs);
        if !fact.recorded.is_empty() || fact.now.is_some() {
            facts.push(fact);
        }
    }
    let tool = Some(format!("ixbuild {}", env!("CARGO_PKG_VERSION")));
    facts.push(Fact::new("tool", recorded.iter().map(|one| one.tool.clone()), tool, Agreement::Differs));
    facts
}

/// Counted values: `8 × NVIDIA B200`.
fn joined(values: impl Iterator<Item = Option<String>>) -> Option<String> {
    let values: Vec<String> = values.flatten().collect();
    let distinct: BTreeSet<&String> = values.iter().collect();
    let count = |value: &String| values.iter().filter(|other| *other == value).count();
    let text: Vec<String> = distinct.into_iter().map(|value| format!("{} × {value}", count(value))).collect();
    (!text.is_empty()).then(|| text.join(", "))
}

/// Of a rehearsal, the simulator and the replay client stand for image and GPU: only the versions of this build are to be had.
fn simulation(substitutions: &Substitutions) -> [Fact; 2] {
    let version = |what, recorded: u64, now: u64| {
        Fact::new(what, [recorded.to_string()], Some(now.to_string()), Agreement::Breaks)
    };
    [
        version("simulator", substitutions.simulator_version, SIMULATOR_VERSION)
            .note("a rehearsal: no image is started, and there is no GPU to check"),
        version("replay client", substitutions.replay_version, REPLAY_VERSION),
    ]
}

/// Every image once. A digest names one content: what runs is it, or the run fails for want of it.
fn images(spec: &JobSpec) -> Vec<Fact> {
    let mut seen = BTreeSet::new();
    let mut facts = Vec::new();
    for image in spec.processes().filter_map(|service| service.image.as_ref()) {
        let fact = match image {
            Image::Locked { manifest, platform, .. } => {
                let text = format!("{manifest} {platform}");
                Fact::new("image", [text.clone()], Some(text), Agreement::Breaks)
            }
            Image::Unlocked { reference } => Fact::new("image", [reference.clone()], None, Agreement::Breaks)
                .note("known by its tag alone, which may have moved"),
        };
        if seen.insert(fact.recorded.clone()) {
            facts.push(fact);
        }
    }
    facts
}

/// The GPU model that the spec asks for, and the one that there is.
fn gpu(wanted: &str, here: &Machine, stated: Option<&str>) -> Fact {
    let models: Vec<&str> = match stated {
        Some(model) => vec![model],
        None => here.gpus.iter().map(|gpu| gpu.model.as_str()).collect(),
    };
    let distinct: BTreeSet<&str> = models.iter().copied().collect();
    let now = if distinct.is_empty() { "none".to_owned() } else { Vec::from_iter(distinct).join(", ") };
    let fits = !models.is_empty() && models.iter().all(|model| is_model(model, wanted));
    let agreement = if fits { Agreement::Same } else { Agreement::Breaks };
    Fact { what: "GPU".to_owned(), recorded: vec![wanted.to_owned()], now: Some(now), agreement, note: None }
}

/// Whether a driver's name is of the model that specs call so: `NVIDIA B200` is `b200`, `NVIDIA GB200` is not, and
/// `NVIDIA H100 80GB HBM3` is `h100`.
fn is_model(name: &str, wanted: &str) -> bool {
    let plain = |text: &str| text.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    let words: Vec<String> = name.split(|c: char| !c.is_ascii_alphanumeric()).map(plain).collect();
    let wanted = plain(wanted);
    // Several words may be one in the spec: `RTX 6000`, `rtx6000`.
    (0..words.len()).any(|from| (from..words.len()).any(|to| words[from..=to].concat() == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::machine::Gpu;

    fn machine(host: &str, model: Option<&str>, driver: &str) -> Machine {
        let gpu = |model: &str| Gpu { model: model.to_owned(), uuid: None, driver: Some(driver.to_owned()) };
        Machine {
            host: host.to_owned(),
            kernel: "Linux 6.8".to_owned(),
            architecture: "x86_64".to_owned(),
            cpu: Some("EPYC".to_owned()),
            cores: 2,
            memory_bytes: Some(16 << 30),
            gpus: model.map(|model| vec![gpu(model); 8]).unwrap_or_default(),
        }
    }

    #[test]
    fn a_model_is_a_word_of_the_drivers_name() {
        for (name, wanted, fits) in [
            ("NVIDIA B200", "b200", true),
            ("NVIDIA GB200", "b200", false),
            ("NVIDIA GB200", "gb200", true),
            ("NVIDIA H100 80GB HBM3", "h100", true),
            ("NVIDIA H100 80GB HBM3", "h10", false),
            ("AMD Instinct MI355X", "mi355x", true),
            ("NVIDIA RTX 6000 Ada", "rtx6000", true),
            ("", "b200", false),
        ] {
            assert_eq!(is_model(name, wanted), fits, "{name} for {wanted}");
        }
    }

    #[test]
    fn another_gpu_or_none_breaks_the_comparison() {
        let fact = |model, stated| gpu("b200", &machine("a", model, "570"), stated);
        assert_eq!(fact(Some("NVIDIA B200"), None).agreement, Agreement::Same);
        let other = fact(Some("NVIDIA H200"), None);
        assert_eq!((other.agreement, other.now.as_deref()), (Agreement::Breaks, Some("NVIDIA H200")));
        let none = fact(None, None);
        assert_eq!((none.agreement, none.now.as_deref()), (Agreement::Breaks, Some("none")));
        assert_eq!(fact(Some("NVIDIA H200"), Some("b200")).agreement, Agreement::Same, "what the profile states wins");
    }

    #[test]
    fn counted_values_are_told_once() {
        let gpus = machine("a", Some("NVIDIA B200"), "570").gpus;
        assert_eq!(joined(gpus.iter().map(|gpu| Some(gpu.model.clone()))).as_deref(), Some("8 × NVIDIA B200"));
        assert_eq!(joined(std::iter::empty()), None);
    }

    #[test]
    fn a_simulator_that_is_not_this_one_breaks_the_comparison() {
        let with = |simulator_version| Substitutions {
            client: Default::default(),
            engine: Default::default(),
            programs: Default::default(),
            replay_version: REPLAY_VERSION,
            simulator_version,
        };
        assert!(simulation(&with(SIMULATOR_VERSION)).iter().all(|fact| fact.agreement == Agreement::Same));
        assert_eq!(simulation(&with(SIMULATOR_VERSION + 1))[0].agreement, Agreement::Breaks);
    }

    #[test]
    fn records_that_differ_from_here_are_told_with_all_their_values() {
        let recorded = ["570.1", "570.2", "570.1"].map(str::to_owned);
        let fact = Fact::new("driver", recorded, Some("570.2".to_owned()), Agreement::Differs);
        assert_eq!((fact.agreement, fact.recorded.len()), (Agreement::Differs, 2));
        assert_eq!(Fact::new("driver", [], Some("1".to_owned()), Agreement::Differs).agreement, Agreement::Unknown);
    }
}
