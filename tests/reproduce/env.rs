//! A project, a store and an empty folder of their own; and attempts that are almost those which were run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ixbuild::ids::JobHash;
use ixbuild::spec::JobSpec;
use ixbuild::store::{AttemptInput, AttemptRef, Layer, Outcome, REASONS_TITLE, Source, Store, StoreView};
use serde_json::Value;
use tempfile::TempDir;

/// The arm of these tests: no offloading, no router, one session.
pub const ARM: &str = "tp8-resident-mtp-c1";

/// The rehearsal profile with a quarter of a second of load.
const QUICK: &str = "quick";

pub struct Env {
    dir: TempDir,
}

/// What a command said.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.out, self.err))
    }

    /// The command ended with this code.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        self
    }
}

impl Env {
    pub fn new() -> Self {
        // In memory where that goes: hundreds of records would wait for the disk.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let env = Self { dir };
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        for input in ["configs", "golden_al_distribution", "ixbuild.lock"] {
            copy(&here.join(input), &env.project().join(input));
        }
        for folder in ["empty", "home", "scratch"] {
            fs::create_dir_all(env.path(folder)).unwrap();
        }
        let rehearsal = fs::read_to_string(here.join("src/config/profiles/rehearsal.yaml")).unwrap();
        let quick = rehearsal.replace("duration-ms: 1000, warmup-ms: 200", "duration-ms: 250, warmup-ms: 50");
        assert_ne!(quick, rehearsal);
        env.profile(QUICK, &quick);
        env
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn project(&self) -> PathBuf {
        self.path("project")
    }

    /// Writes a profile of the project.
    pub fn profile(&self, name: &str, text: &str) {
        let folder = self.project().join("configs/profiles");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{name}.yaml")), text).unwrap();
    }

    pub fn store(&self) -> Store {
        Store::open(self.path("store")).unwrap()
    }

    /// A command that inherits nothing.
    pub fn command(&self, folder: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ixbuild"));
        command.env_clear().current_dir(self.path(folder)).args(args);
        for name in ["PATH", "LLVM_PROFILE_FILE"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        for (name, folder) in [("HOME", "home"), ("IXBUILD_STORE", "store"), ("IXBUILD_SCRATCH", "scratch")] {
            command.env(name, self.path(folder));
        }
        command
    }

    fn said(&self, folder: &str, args: &[&str]) -> Said {
        let Output { status, stdout, stderr } = self.command(folder, args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { code: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) }
    }

    /// In the project, under the quick profile.
    pub fn ixbuild(&self, args: &[&str]) -> Said {
        self.said("project", &[args, &["--profile", QUICK]].concat())
    }

    /// In the project, under a profile that the arguments name, or the verb's own.
    pub fn ixbuild_as(&self, args: &[&str]) -> Said {
        self.said("project", args)
    }

    /// In an empty folder, without a project or a profile.
    pub fn outside(&self, args: &[&str]) -> Said {
        self.said("empty", args)
    }

    /// Runs the arm once; its job.
    pub fn record(&self) -> JobHash {
        let said = self.ixbuild(&["run", ARM, "--json"]).expect(0).json();
        said["arms"][0]["job"].as_str().unwrap().parse().unwrap()
    }

    /// The store is sound and holds so many attempts.
    #[track_caller]
    pub fn sound(&self, attempts: u64) {
        let report = self.outside(&["store", "verify", "--json"]).expect(0).json();
        assert_eq!(report["attempts"], attempts, "{report}");
    }
}

/// An attempt to be recorded, almost one that was.
pub struct Draft {
    pub spec: Value,
    pub outcome: Outcome,
    pub reasons: Value,
    pub layers: BTreeMap<String, (String, Vec<u8>)>,
}

impl Draft {
    /// The first attempt of a job, as it is.
    pub fn of(store: &Store, job: &JobHash) -> (AttemptRef, Self) {
        let at = store.job(job).unwrap().attempts[0].clone();
        let attempt = store.attempt(&at).unwrap();
        let layers = attempt.layers.iter().filter(|layer| layer.title != REASONS_TITLE).map(|layer| {
            let bytes = store.layer(&at, &layer.title).unwrap().unwrap();
            (layer.title.clone(), (layer.media_type.clone(), bytes))
        });
        let draft = Self {
            spec: serde_json::from_slice(&store.spec(job).unwrap().unwrap()).unwrap(),
            outcome: attempt.outcome.clone(),
            reasons: store.reasons(&at).unwrap(),
            layers: layers.collect(),
        };
        (at, draft)
    }

    /// Changes a JSON layer.
    pub fn edit(&mut self, title: &str, edit: impl FnOnce(&mut Value)) {
        let (_, bytes) = self.layers.get_mut(title).unwrap();
        let mut value = serde_json::from_slice(bytes).unwrap();
        edit(&mut value);
        *bytes = serde_json::to_vec(&value).unwrap();
    }

    /// Records it, begun so many seconds after `like`.
    pub fn record(&self, store: &Store, like: &AttemptRef, later: i64) -> AttemptRef {
        let spec: JobSpec = serde_json::from_value(self.spec.clone()).unwrap();
        let layer = |(title, (kind, bytes)): (&String, &(String, Vec<u8>))| {
            Layer::new(kind.clone(), title.clone(), Source::Bytes(bytes.clone()))
        };
        let started = like.started + std::time::Duration::from_secs(later.try_into().unwrap());
        store
            .record(AttemptInput {
                job: spec.hash(),
                spec: &spec.canonical(),
                arms: &[ixbuild::ids::ArmId(format!("dsv4-fp4-b200-vllm-agentic-mtp/agentic/{ARM}").into())],
                started,
                ended: started + std::time::Duration::from_secs(1),
                outcome: self.outcome.clone(),
                rehearsal: spec.deployment.substitutions.is_some(),
                reasons: self.reasons.clone(),
                layers: self.layers.iter().map(layer).collect(),
            })
            .unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}
