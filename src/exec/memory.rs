//! The in-memory executor: plays actors (see `actor`) as tasks of this process. The twin of `local` under one test suite.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::actor;
use super::executor::{Address, Allocation, Executor, Instance, Launch, Left, Place, StartError};
use super::exit::Exit;
use super::host::{Host, Job};
use super::ports::{PortError, PortRegistry};

/// Signal numbers of a told and of a forced end.
const TERM: i32 = 15;
const KILL: i32 = 9;

/// Plays actors in this process.
#[derive(Debug, Clone)]
pub struct Memory {
    ports: PortRegistry,
}

impl Memory {
    /// With the ports of this user: actors really listen.
    ///
    /// # Errors
    /// The directory of port locks does not work.
    pub fn new() -> Result<Self, PortError> {
        Ok(Self { ports: PortRegistry::of_user()? })
    }
}

impl Executor for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn allocate<'a>(&'a self, _: &'a Job, _: &'a Host) -> BoxFuture<'a, Result<Box<dyn Allocation>, StartError>> {
        let room: Box<dyn Allocation> = Box::new(self.clone());
        std::future::ready(Ok(room)).boxed()
    }

    /// Its instances died with the process that played them.
    fn clear<'a>(&'a self, _: &'a Left) -> BoxFuture<'a, Result<Vec<String>, StartError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }
}

impl Allocation for Memory {
    fn endpoint(&self, _: &Place) -> Result<Address, StartError> {
        self.ports.take().map(Address::local).map_err(|error| StartError::passing(error.to_string()))
    }

    fn start(&self, launch: Launch) -> BoxFuture<'_, Result<Arc<dyn Instance>, StartError>> {
        let started = start(launch).map(|task| Arc::new(task) as Arc<dyn Instance>);
        std::future::ready(started).boxed()
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// An actor at work.
struct Task {
    exit: watch::Receiver<Option<Exit>>,
    stop: watch::Sender<bool>,
}

fn start(launch: Launch) -> Result<Task, StartError> {
    let name = &launch.service.name;
    let (program, words) = launch.command.split_first().map_or(("", &[][..]), |(p, w)| (p.as_str(), w));
    if program != actor::PROGRAM {
        return Err(StartError::host(format!("cannot start {name}: `{program}`: only actors run in memory")));
    }
    let words = words.to_vec();
    let failed = |error| StartError::passing(format!("cannot start {name}: {}: {error}", launch.log.display()));
    let mut log = File::options().create(true).append(true).open(&launch.log).map_err(failed)?;
    let mut env = BTreeMap::from([
        ("HOME".to_owned(), launch.scratch.join("home").to_string_lossy().into_owned()),
        ("TMPDIR".to_owned(), launch.scratch.join("tmp").to_string_lossy().into_owned()),
    ]);
    env.extend(launch.secrets.into_iter().map(|(name, secret)| (name, secret.0)));
    env.extend(launch.env);
    let (stop, mut stopped) = watch::channel(false);
    let (tell, exit) = watch::channel(None);
    let grace = launch.grace;
    tokio::spawn(async move {
        let deaf = AtomicBool::new(false);
        // A dropped sender is an owner that is gone: as good as told to stop.
        let killed = async {
            let _ = stopped.wait_for(|stop| *stop).await;
            if !deaf.load(Ordering::SeqCst) {
                return TERM;
            }
            tokio::time::sleep(grace).await;
            KILL
        };
        let end = tokio::select! {
            biased;
            number = killed => Exit::Signal(number),
            status = actor::play(&words, &env, &mut log, &deaf) => Exit::Code(status),
        };
        let _ = tell.send(Some(end));
    });
    Ok(Task { exit, stop })
}

impl Instance for Task {
    fn handle(&self) -> String {
        "task".to_owned()
    }

    fn exited(&self) -> BoxFuture<'_, Exit> {
        let mut exit = self.exit.clone();
        async move { exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit).unwrap_or(Exit::Lost) }.boxed()
    }

    fn stop(&self) -> BoxFuture<'_, Result<Exit, StartError>> {
        self.stop.send_replace(true);
        self.exited().map(Ok).boxed()
    }
}
