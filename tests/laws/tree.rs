//! The committed project as texts that a test can change, and what is composed from them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use ixbuild::cli::error::Error;
use ixbuild::compose::{Blocked, Composed};
use ixbuild::config::diagnostic::Diagnostics;
use ixbuild::config::inputs::Inputs;
use ixbuild::ids::{ArmId, JobHash};
use ixbuild::matrix::arm::Arm;
use ixbuild::matrix::expand::ExpandError;
use ixbuild::matrix::filter::{Filter, Sweep};
use ixbuild::project::Project;
use ixbuild::spec::JobSpec;
use serde_json::{Value, json};

pub const MASTER: &str = "configs/nvidia-master.yaml";
pub const RUNNERS: &str = "configs/runners.yaml";
pub const RECIPE: &str = "configs/recipes/dsv4-fp4-b200-vllm.yaml";
pub const GOLDEN: &str = "golden_al_distribution/dsv4_mtp.yaml";
pub const LOCK: &str = "ixbuild.lock";
pub const KEY: &str = "dsv4-fp4-b200-vllm-agentic";

/// A fragment of `configs/recipes/lib/`.
pub fn lib(name: &str) -> String {
    format!("configs/recipes/lib/{name}.yaml")
}

/// Job hashes by arm id; eval twins end in `-eval`.
pub type Jobs = BTreeMap<String, JobHash>;

/// A project's texts by path.
#[derive(Clone)]
pub struct Tree(pub BTreeMap<String, String>);

static REAL: LazyLock<Tree> = LazyLock::new(|| {
    let inputs = Inputs::read(Path::new(env!("CARGO_MANIFEST_DIR")), "").unwrap();
    Tree(inputs.all().map(|(path, source)| (path.to_owned(), source.text.clone())).collect())
});

static DOCKER: LazyLock<BTreeMap<String, JobSpec>> = LazyLock::new(|| Tree::real().specs("docker"));
static REHEARSAL: LazyLock<BTreeMap<String, JobSpec>> = LazyLock::new(|| Tree::real().specs("rehearsal"));

/// The committed project's specs: 68 arms and their eval twins; a rehearsal cannot play evals.
pub fn real(profile: &str) -> &'static BTreeMap<String, JobSpec> {
    match profile {
        "docker" => &DOCKER,
        "rehearsal" => &REHEARSAL,
        other => panic!("no such profile here: {other}"),
    }
}

/// The names of specs.
pub fn hashes(specs: &BTreeMap<String, JobSpec>) -> Jobs {
    specs.iter().map(|(id, spec)| (id.clone(), spec.hash())).collect()
}

static DOCKER_JOBS: LazyLock<Jobs> = LazyLock::new(|| hashes(real("docker")));
static REHEARSAL_JOBS: LazyLock<Jobs> = LazyLock::new(|| hashes(real("rehearsal")));

/// The committed project's jobs.
pub fn real_jobs(profile: &str) -> &'static Jobs {
    match profile {
        "docker" => &DOCKER_JOBS,
        "rehearsal" => &REHEARSAL_JOBS,
        other => panic!("no such profile here: {other}"),
    }
}

/// The spec whose arm id ends so.
pub fn named<'s>(specs: &'s BTreeMap<String, JobSpec>, suffix: &str) -> &'s JobSpec {
    let mut found = specs.iter().filter(|(id, _)| id.ends_with(&format!("/{suffix}")));
    let (Some((_, spec)), None) = (found.next(), found.next()) else { panic!("not exactly one arm is `{suffix}`") };
    spec
}

impl Tree {
    /// As committed.
    pub fn real() -> Self {
        REAL.clone()
    }

    /// One file.
    pub fn text(&self, path: &str) -> &str {
        self.0.get(path).unwrap_or_else(|| panic!("no {path}"))
    }

    /// With a file of this text.
    pub fn with(mut self, path: &str, text: impl Into<String>) -> Self {
        self.0.insert(path.to_owned(), text.into());
        self
    }

    /// Without a file.
    pub fn without(mut self, path: &str) -> Self {
        assert!(self.0.remove(path).is_some(), "no {path}");
        self
    }

    /// With the one place in a file that reads `from` changed. A test whose edit hits nothing would prove nothing.
    pub fn edit(self, path: &str, from: &str, to: &str) -> Self {
        let text = self.text(path);
        assert_eq!(text.matches(from).count(), 1, "`{from}` in {path}");
        let text = text.replace(from, to);
        self.with(path, text)
    }

    /// With every place in a file that reads `from` changed.
    pub fn edit_all(self, path: &str, from: &str, to: &str) -> Self {
        let text = self.text(path);
        assert!(text.contains(from), "`{from}` in {path}");
        let text = text.replace(from, to);
        self.with(path, text)
    }

    /// With every entry of the lock pinned to a digest or revision made from its name and `salt`.
    pub fn locked(self, pick: impl Fn(&str) -> bool, salt: &str) -> Self {
        let mut lock: Value = serde_json::from_str(self.text(LOCK)).unwrap();
        let digest = |of: &str| ixbuild::ids::Digest::of(format!("{of}{salt}").as_bytes());
        for section in ["images", "packages", "hub"] {
            for (name, entry) in lock[section].as_object_mut().unwrap().iter_mut().filter(|(name, _)| pick(name)) {
                *entry = match section {
                    "images" => {
                        json!({"config": digest("config"), "manifest": digest(name), "platform": "linux/amd64"})
                    }
                    "packages" => json!({"files": {"a.whl": digest(name)}}),
                    _ => json!({"revision": digest(name).hex()[..40]}),
                };
            }
        }
        self.with(LOCK, serde_json::to_string_pretty(&lock).unwrap())
    }

    /// As a snapshot.
    pub fn inputs(&self) -> Inputs {
        Inputs::from_texts(self.0.clone())
    }

    /// Read under a profile.
    pub fn project(&self, profile: &str) -> Result<Project, Diagnostics> {
        Project::load(self.inputs(), profile)
    }

    /// Every arm, then its eval twin; each composed.
    pub fn try_compose(&self, profile: &str) -> Result<Vec<(ArmId, Composed)>, Error> {
        let project = self.project(profile)?;
        let mut faults = Diagnostics::default();
        let mut composed = Vec::new();
        for arm in every_arm(&project)? {
            match project.composer().compose(&arm) {
                Ok(made) => composed.push((arm.id, made)),
                Err(found) => faults.absorb_new(found),
            }
        }
        Ok(faults.or(composed)?)
    }

    /// The specs of every arm that has one, by id.
    pub fn specs(&self, profile: &str) -> BTreeMap<String, JobSpec> {
        let composed = self.try_compose(profile).unwrap_or_else(|error| panic!("{}", error.render(false)));
        let specs = composed.into_iter().filter_map(|(id, made)| match made {
            Composed::Job(job) => Some((id.to_string(), job.spec)),
            Composed::Blocked(_) => None,
        });
        specs.collect()
    }

    /// Why arms are blocked, by id.
    pub fn blocked(&self, profile: &str) -> BTreeMap<String, Blocked> {
        let composed = self.try_compose(profile).unwrap_or_else(|error| panic!("{}", error.render(false)));
        let blocked = composed.into_iter().filter_map(|(id, made)| match made {
            Composed::Job(_) => None,
            Composed::Blocked(blocked) => Some((id.to_string(), blocked)),
        });
        blocked.collect()
    }

    /// The names of the specs of every arm that has one, by id.
    pub fn jobs(&self, profile: &str) -> Jobs {
        hashes(&self.specs(profile))
    }

    /// What a command would print of this project's faults.
    pub fn refusal(&self, profile: &str) -> String {
        match self.try_compose(profile) {
            Ok(_) => panic!("nothing is wrong with this project"),
            Err(error) => error.render(false),
        }
    }
}

/// Every arm of the matrix, then its eval twin.
pub fn every_arm(project: &Project) -> Result<Vec<Arm>, ExpandError> {
    let arms = project.arms(&Filter::Sweep(Sweep::default()))?;
    let twin = |arm: &Arm| Arm { id: ArmId(format!("{}-eval", arm.id).into()), eval: true, ..arm.clone() };
    Ok(arms.into_iter().flat_map(|arm| [twin(&arm), arm]).rev().collect())
}

/// The arms whose jobs differ. Both sides must have the same arms.
pub fn moved(before: &Jobs, after: &Jobs) -> BTreeSet<String> {
    assert!(before.keys().eq(after.keys()), "not the same arms");
    before.iter().filter(|(id, job)| after[*id] != **job).map(|(id, _)| id.clone()).collect()
}

/// The committed project's docker jobs and those of a change differ in exactly the arms that `expected` picks.
#[track_caller]
pub fn moves(changed: &Tree, count: usize, expected: impl Fn(&str) -> bool) {
    moves_from(real_jobs("docker"), changed, count, expected);
}

/// As [`moves`], from other jobs.
#[track_caller]
pub fn moves_from(before: &Jobs, changed: &Tree, count: usize, expected: impl Fn(&str) -> bool) {
    let expected: BTreeSet<String> = before.keys().filter(|id| expected(id)).cloned().collect();
    assert_eq!(expected.len(), count, "the test's own expectation");
    assert_eq!(moved(before, &changed.jobs("docker")), expected);
}
