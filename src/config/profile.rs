//! A profile: where and how specs run, and what a rehearsal substitutes. Only substitutions reach the hash.
//!
//! `rehearsal` and `docker` are built in; others stand in `configs/profiles/NAME.yaml`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;

use super::diagnostic::{Diagnostic, Diagnostics, Source};
use super::document::{self, Node, place};
use super::inputs::Inputs;
use super::similar::{closest, listed};
use crate::spec::{Key, Substitutions, Tree};

/// The profile of a command without `--profile` and `$IXBUILD_PROFILE`.
pub const DEFAULT: &str = "docker";

/// GPU-hours above which a run asks first, unless its profile says otherwise: one eight-GPU node for an hour.
pub const ASK_ABOVE_GPU_HOURS: u64 = 8;

const BUILT_IN: [(&str, &str); 2] =
    [("docker", include_str!("profiles/docker.yaml")), ("rehearsal", include_str!("profiles/rehearsal.yaml"))];

/// Where and how.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Profile {
    /// The name that it was asked for by.
    #[serde(skip)]
    pub name: String,
    /// What starts services.
    pub executor: ExecutorKind,
    /// Jobs at a time.
    #[serde(default = "one")]
    pub jobs: usize,
    /// Valid records that make a hit.
    #[serde(default = "one")]
    pub records: usize,
    /// What a job takes, for estimates.
    #[serde(default)]
    pub estimate: Estimate,
    /// GPU-hours above which a run asks first, where it is not [`ASK_ABOVE_GPU_HOURS`].
    #[serde(default)]
    ask_above_gpu_hours: Option<u64>,
    /// What a rehearsal substitutes; absent when everything is real.
    #[serde(default)]
    pub substitute: Option<Substitute>,
    /// How often to ask and how long to wait.
    pub timing: Timing,
    /// Facts of the host that specs bind, such as `rdma-devices`.
    #[serde(default)]
    pub host: BTreeMap<String, String>,
    /// Model id → folder.
    #[serde(default)]
    pub models: BTreeMap<String, PathBuf>,
    /// Environment variables that processes get from ours and nothing records.
    #[serde(default)]
    pub secrets: Vec<String>,
}

/// What starts services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecutorKind {
    /// Processes of this machine.
    Local,
    /// Containers.
    Docker,
}

/// How often to ask and how long to wait. Never hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Timing {
    /// Milliseconds between readiness checks.
    pub poll_ms: u64,
    /// Seconds that a service may take to be ready, where its recipe does not say.
    pub ready_timeout_s: u64,
    /// Seconds between TERM and KILL.
    pub grace_s: u64,
    /// Milliseconds between counter scrapes.
    pub scrape_ms: u64,
    /// Seconds that the client may take.
    pub client_timeout_s: u64,
}

/// What a job takes beside its measured load, for estimates. Never hashed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Estimate {
    /// Seconds from start to the first measured request, and for the end.
    #[serde(default)]
    pub start_up_s: u64,
    /// Seconds of load, where it is not the workload's duration.
    #[serde(default)]
    pub load_s: Option<u64>,
}

/// What stands in for the real thing.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Substitute {
    /// Program → the part that plays it.
    pub programs: BTreeMap<String, String>,
    /// Settings of the simulator.
    #[serde(default)]
    pub engine: BTreeMap<String, Setting>,
    /// Settings of the replay client.
    #[serde(default)]
    pub client: BTreeMap<String, Setting>,
}

/// A setting of a simulator.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a setting is a switch, a number or a word")]
pub enum Setting {
    /// A switch.
    Switch(bool),
    /// A count, or a quantity in the unit that its name says.
    Count(i64),
    /// A number with a fraction; the spec holds its shortest digits.
    Fraction(f64),
    /// A word.
    Word(String),
}

/// What the YAML reader says, at its place.
fn fault(source: &Arc<Source>, error: &serde_yaml::Error) -> Diagnostic {
    let said = error.without_snippet().to_string();
    // It ends with the place in words, which the diagnostic shows itself.
    let message = said.split(" at line ").next().unwrap_or_default().trim_start_matches("error: ");
    let message =
        message.split_once("line ").and_then(|(_, rest)| rest.split_once(": ")).map_or(message, |(_, rest)| rest);
    let unquoted = |text: &str| text.split('`').nth(1).map(str::to_owned);
    let (message, help) = match (message, message.split_once(", expected one of ")) {
        (_, Some((fault, known))) => {
            let known: Vec<&str> = known.split(", ").collect();
            let near = unquoted(fault).and_then(|word| closest(&word, known.iter().copied()).map(str::to_owned));
            let help =
                near.map_or_else(|| format!("one of {}", listed(known, 24)), |near| format!("did you mean `{near}`?"));
            (fault.to_owned(), help)
        }
        (message, None) => match (message.strip_prefix("missing field "), message.strip_prefix("invalid ")) {
            (Some(field), _) => (message.to_owned(), format!("add {field}")),
            (None, Some("u64" | "u32" | "usize")) => {
                ("this must be a whole number, not negative".to_owned(), "write decimal digits".to_owned())
            }
            _ => (message.to_owned(), "the README lists a profile's fields".to_owned()),
        },
    };
    let span = error.location().map(|location| location.span());
    let start = span.and_then(|span| span.byte_offset()).map_or(0, |at| at as usize);
    let length = span.and_then(|span| span.byte_len()).map_or(0, |length| length as usize);
    Diagnostic::at(&place(source, start..start + length), message).help(help)
}

fn one() -> usize {
    1
}

impl Profile {
    /// Finds a profile by name and reads it.
    ///
    /// # Errors
    /// No such profile; faults in its file.
    pub fn load(inputs: &Inputs, name: &str) -> Result<Self, Diagnostics> {
        let path = format!("configs/profiles/{name}.yaml");
        let source = match (BUILT_IN.iter().find(|(known, _)| *known == name), inputs.get(&path)) {
            (Some(_), Some(source)) => {
                return Err(Diagnostic::new(format!("{}: `{name}` is built in", source.name))
                    .help("give your profile another name")
                    .into());
            }
            (Some((_, text)), None) => &Source::new(format!("the built-in profile {name}"), *text),
            (None, Some(source)) => source,
            (None, None) => return Err(Self::unknown(inputs, name).into()),
        };
        // Syntax, and keys that stand twice.
        let root = document::parse(source)?;
        let mut profile: Self = serde_yaml::from_str(&source.text).map_err(|error| fault(source, &error))?;
        name.clone_into(&mut profile.name);
        profile.check(&root)?;
        Ok(profile)
    }

    /// What the types leave room for: counts of nothing, and numbers that a spec cannot hold.
    fn check(&self, root: &Node) -> Result<(), Diagnostics> {
        let mut faults: Vec<(Vec<&str>, &str, &str)> = Vec::new();
        for (name, count) in [("jobs", self.jobs), ("records", self.records)] {
            if count == 0 {
                faults.push((vec![name], "at least 1 is needed", "write `1`"));
            }
        }
        let substitute = self.substitute.iter();
        let settings = substitute.flat_map(|s| [("engine", &s.engine), ("client", &s.client)]);
        for (part, (name, setting)) in settings.flat_map(|(part, map)| map.iter().map(move |entry| (part, entry))) {
            let wrong = match setting {
                Setting::Count(value) => value.unsigned_abs() > 1 << 53,
                Setting::Fraction(value) => !value.is_finite(),
                Setting::Switch(_) | Setting::Word(_) => false,
            };
            if wrong {
                let fault = "a spec holds integers within ±2^53 and finite fractions";
                faults.push((vec!["substitute", part, name], fault, "write a smaller number"));
            }
        }
        let at = |path: &[&str]| path.iter().try_fold(root, |node, name| node.get(name)).unwrap_or(root).place.clone();
        let found = faults.iter().map(|(path, fault, help)| Diagnostic::at(&at(path), *fault).help(*help));
        Diagnostics(found.collect()).or(())
    }

    fn unknown(inputs: &Inputs, name: &str) -> Diagnostic {
        let own = inputs
            .in_folder("configs/profiles", ".yaml")
            .filter_map(|(path, _)| path.strip_prefix("configs/profiles/")?.strip_suffix(".yaml"));
        let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).chain(own).collect();
        let fault = Diagnostic::new(format!("there is no profile `{name}`"));
        match closest(name, known.iter().copied()) {
            Some(near) => fault.help(format!("did you mean `{near}`?")),
            None => fault.help(format!("known: {}; others go to configs/profiles/NAME.yaml", known.join(", "))),
        }
    }

    /// Whether records made under it are rehearsals.
    pub fn rehearses(&self) -> bool {
        self.substitute.is_some()
    }

    /// GPU-hours above which a run asks first; none for rehearsals, which take none.
    pub fn ask_above_gpu_hours(&self) -> Option<u64> {
        (!self.rehearses()).then(|| self.ask_above_gpu_hours.unwrap_or(ASK_ABOVE_GPU_HOURS))
    }

    /// What the spec says of the substitutions.
    pub fn substitutions(&self, simulator_version: u64, replay_version: u64) -> Option<Substitutions> {
        let substitute = self.substitute.as_ref()?;
        let settings = |from: &BTreeMap<String, Setting>| {
            let tree = |setting: &Setting| match setting {
                Setting::Switch(value) => Tree::Bool(*value),
                Setting::Count(value) => Tree::Integer(*value),
                Setting::Fraction(value) => Tree::Decimal { decimal: format!("{value:?}") },
                Setting::Word(text) => Tree::String(text.clone()),
            };
            from.iter().map(|(name, value)| (Key::from(name.as_str()), tree(value))).collect()
        };
        Some(Substitutions {
            client: settings(&substitute.client),
            engine: settings(&substitute.engine),
            programs: substitute.programs.iter().map(|(k, v)| (Key::from(k.as_str()), v.clone())).collect(),
            replay_version,
            simulator_version,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let inputs = Inputs::from_texts([("configs/profiles/mine.yaml".to_owned(), text.to_owned())]);
        Profile::load(&inputs, "mine").unwrap_err().to_string()
    }

    #[test]
    fn faults_stand_at_their_place() {
        for (text, said) in [
            ("executor: local\nfoo: 1\n", "2:1: unknown field `foo`"),
            ("x: 1\n", "1:1: unknown field `x`"),
            ("executor: loca\n", "1:11: unknown variant `loca`"),
            ("executor: local\ntiming: {poll-ms: 20}\n", "2:10: missing field `ready-timeout-s`"),
            ("executor: local\njobs: -1\n", "2:7: this must be a whole number, not negative"),
            ("", "1:1: the file is empty"),
        ] {
            assert_eq!(refusal(text), format!("configs/profiles/mine.yaml:{said}"), "{text}");
        }
    }

    #[test]
    fn an_unknown_profile_gets_the_near_name() {
        let fault = Profile::load(&Inputs::default(), "rehersal").unwrap_err();
        assert_eq!(fault.0[0].help.as_deref(), Some("did you mean `rehearsal`?"));
        let inputs = Inputs::from_texts([("configs/profiles/docker.yaml".to_owned(), String::new())]);
        assert!(Profile::load(&inputs, "docker").unwrap_err().to_string().contains("`docker` is built in"));
    }
}
