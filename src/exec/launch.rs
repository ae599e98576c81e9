//! A service of the spec and its bindings become a command, an environment and files on disk. The only way from one to
//! the other; where the simulator plays the service, its command is made here, from the same arguments.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::bind::{Bindings, file_path, file_stem, place};
use super::event::Who;
use super::executor::{Launch, Mounted};
use super::host::{Host, Job, Secret};
use crate::spec::{Binder, JobSpec, Key, Service, Text, Tree, Unbound};

/// The part in a substitution that stands for the built-in replay client instead of a simulated server.
pub const REPLAY: &str = "replay";

/// Why an instance cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The host cannot fill a binding.
    #[error(transparent)]
    Unbound(#[from] Unbound),
    /// A value that no process can be given.
    #[error("{service}: {what} holds a NUL character, which no process can be given")]
    Nul {
        /// The instance.
        service: Who,
        /// Where.
        what: String,
    },
    /// A file or directory cannot be made.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

/// The command of a service, rendered: its own, or that of the part which plays it. The flag says which.
///
/// # Errors
/// A binding that the host cannot fill.
pub fn command(
    spec: &JobSpec,
    service: &Service,
    ixbuild: &Path,
    binder: &dyn Binder,
) -> Result<(Vec<String>, bool), Unbound> {
    let arguments = service.argv.iter().map(|text| text.render(binder)).collect::<Result<Vec<_>, _>>()?;
    let (program, words) = service.entrypoint.split_first().map_or(("", &[][..]), |(p, w)| (p.as_str(), w));
    let substitutions = spec.deployment.substitutions.as_ref();
    let part = substitutions.and_then(|all| Some((all, all.programs.get(&Key::from(program))?)));
    let own = ixbuild.to_string_lossy().into_owned();
    let (mut command, played) = match part {
        None => (service.entrypoint.clone(), false),
        Some((all, part)) if part == REPLAY => {
            let settings = json(&all.client, binder)?;
            let mut command = vec![own, "replay".to_owned(), "--settings".to_owned(), settings, "--".to_owned()];
            command.extend(words.iter().cloned());
            (command, true)
        }
        Some((all, part)) => {
            let settings = json(&all.engine, binder)?;
            let fixed = ["sim", "serve", "--as", part, "--settings"].map(str::to_owned);
            let mut command = vec![own];
            command.extend(fixed);
            command.extend([settings, "--".to_owned()]);
            (command, true)
        }
    };
    command.extend(arguments);
    Ok((command, played))
}

fn json(settings: &BTreeMap<Key, Tree>, binder: &dyn Binder) -> Result<String, Unbound> {
    Text::Json { json: Tree::Map { map: settings.clone() } }.render(binder)
}

/// Renders everything that starts an instance, and writes its files.
///
/// # Errors
/// A binding that the host cannot fill, a value with a NUL in it, a file that cannot be written.
pub fn prepare(
    job: &Job,
    host: &Host,
    bindings: &Bindings<'_>,
    secrets: &BTreeMap<String, Secret>,
    service: &Service,
    who: &Who,
) -> Result<Launch, LaunchError> {
    let binder = bindings.of(who);
    let (command, played) = command(&job.spec, service, &host.ixbuild, &binder)?;
    let mut env = BTreeMap::new();
    for (Key(name), value) in &service.env {
        env.insert(name.clone(), value.render(&binder)?);
    }
    let nul = |what: String| LaunchError::Nul { service: who.clone(), what };
    if let Some(index) = command.iter().position(|word| word.contains('\0')) {
        return Err(nul(format!("word {index} of its command")));
    }
    if let Some((name, _)) = env.iter().find(|(_, value)| value.contains('\0')) {
        return Err(nul(format!("its variable {name}")));
    }
    for (Key(name), content) in &service.files {
        let path = file_path(&job.scratch, who, name);
        let failed = |source| LaunchError::Io { path: path.clone(), source };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        fs::write(&path, content.render(&binder)?).map_err(failed)?;
    }
    let mut mounts = Vec::new();
    for mount in &service.mounts {
        let source = binder.bind(&mount.source)?.into_owned();
        mounts.push(Mounted { source, target: mount.target.clone(), read_only: mount.read_only });
    }
    Ok(Launch {
        service: service.clone(),
        instance: who.instance,
        place: place(&job.spec, service, who.instance),
        command,
        played,
        env,
        secrets: secrets.clone(),
        mounts,
        scratch: job.scratch.clone(),
        log: log_path(&job.scratch, who),
        grace: host.timing.grace,
    })
}

/// Where an instance's output goes.
pub fn log_path(scratch: &Path, who: &Who) -> PathBuf {
    scratch.join("logs").join(format!("{}.log", file_stem(who)))
}

/// Makes the scratch directory and what stands in it, and the directories that bindings name.
///
/// # Errors
/// It is not empty, or a directory cannot be made.
pub fn make_scratch(scratch: &Path) -> Result<(), LaunchError> {
    let make =
        |path: &Path| fs::create_dir_all(path).map_err(|source| LaunchError::Io { path: path.to_owned(), source });
    make(scratch)?;
    let failed = |source| LaunchError::Io { path: scratch.to_owned(), source };
    if fs::read_dir(scratch).map_err(failed)?.next().is_some() {
        return Err(failed(io::Error::new(io::ErrorKind::DirectoryNotEmpty, "it holds another attempt")));
    }
    ["files", "logs", "out", "home", "tmp", "work"].iter().try_for_each(|name| make(&scratch.join(name)))
}

/// Makes the directories that bindings name.
///
/// # Errors
/// One cannot be made.
pub fn make_directories(bindings: &Bindings<'_>) -> Result<(), LaunchError> {
    bindings
        .directories()
        .into_iter()
        .try_for_each(|path| fs::create_dir_all(&path).map_err(|source| LaunchError::Io { path, source }))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::exec::actor;
    use crate::spec::{Binding, Part, Segment, Substitutions};

    struct Fixed;

    impl Binder for Fixed {
        fn bind(&self, _: &Binding) -> Result<Cow<'_, str>, Unbound> {
            Ok("8000".into())
        }
    }

    fn real(program: &[&str]) -> Service {
        let mut service = actor::service("server", &["MODEL", "--port"]);
        service.entrypoint = program.iter().map(|word| (*word).to_owned()).collect();
        let port = Binding::Endpoint { name: "http".into(), part: Part::Port, service: "server".into() };
        service.argv.push(Text::from_segments(vec![Segment::Bind(port)]));
        service
    }

    fn command_of(service: &Service, substitutions: Option<Substitutions>) -> (String, bool) {
        let mut spec = actor::spec(vec![service.clone()], actor::service("client", &[]));
        spec.deployment.substitutions = substitutions;
        let (words, played) = command(&spec, service, Path::new("/bin/ixbuild"), &Fixed).unwrap();
        (words.join(" "), played)
    }

    fn rehearsal() -> Substitutions {
        let settings = |name: &str| BTreeMap::from([(name.into(), Tree::Decimal { decimal: "0.25".to_owned() })]);
        Substitutions {
            client: settings("think-s"),
            engine: settings("step-ms"),
            programs: [("vllm".into(), "vllm".to_owned()), ("aiperf".into(), REPLAY.to_owned())].into(),
            replay_version: 1,
            simulator_version: 1,
        }
    }

    #[test]
    fn a_service_runs_its_own_command_without_substitutions() {
        assert_eq!(command_of(&real(&["vllm", "serve"]), None), ("vllm serve MODEL --port 8000".to_owned(), false));
    }

    #[test]
    fn the_simulator_gets_the_real_arguments() {
        assert_eq!(
            command_of(&real(&["vllm", "serve"]), Some(rehearsal())),
            (r#"/bin/ixbuild sim serve --as vllm --settings {"step-ms":0.25} -- MODEL --port 8000"#.to_owned(), true)
        );
    }

    #[test]
    fn the_replay_client_gets_its_subcommand_too() {
        assert_eq!(
            command_of(&real(&["aiperf", "profile"]), Some(rehearsal())),
            (r#"/bin/ixbuild replay --settings {"think-s":0.25} -- profile MODEL --port 8000"#.to_owned(), true)
        );
    }

    #[test]
    fn a_program_that_nothing_plays_runs_as_itself() {
        let (words, played) = command_of(&real(&["mooncake_master"]), Some(rehearsal()));
        assert_eq!((words.as_str(), played), ("mooncake_master MODEL --port 8000", false));
    }
}
