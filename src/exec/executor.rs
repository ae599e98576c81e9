//! The seam between the job graph and where its processes live. An implementation allocates nodes and ports, starts an
//! instance, streams its output to a file, sees it exit, and stops it. Order, readiness, files and time limits are not
//! its affair.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::exit::Exit;
use super::host::{Host, Job, Secret};
use super::outcome::FailureKind;
use super::ports::PortLease;
use crate::spec::Service;

/// Where processes run.
pub trait Executor: Send + Sync {
    /// Its name, recorded: `local`, `docker`.
    fn name(&self) -> &'static str;

    /// Makes room for a job: its groups' nodes, and whatever must be there before the first start.
    ///
    /// # Errors
    /// The job cannot run here, or not now.
    fn allocate<'a>(&'a self, job: &'a Job, host: &'a Host) -> BoxFuture<'a, Result<Box<dyn Allocation>, StartError>>;

    /// Ends what an owner that is dead left of an attempt; in words, what still ran. Resolves when none is left.
    ///
    /// # Errors
    /// Something of it may still run.
    fn clear<'a>(&'a self, left: &'a Left) -> BoxFuture<'a, Result<Vec<String>, StartError>>;
}

/// What an owner that died on this machine, since it last started, may have left.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    /// The handles of its instances, as far as it came to note them.
    pub handles: Vec<String>,
    /// The attempt's directory.
    pub scratch: Option<PathBuf>,
    /// Between TERM and KILL.
    pub grace: Duration,
}

/// The room of one job.
pub trait Allocation: Send + Sync {
    /// An address for an endpoint of an instance at this place. Called before the first start.
    ///
    /// # Errors
    /// There is no port left.
    fn endpoint(&self, place: &Place) -> Result<Address, StartError>;

    /// Starts an instance. May be dropped before it is done; `release` then removes what it began.
    ///
    /// # Errors
    /// It does not start.
    fn start(&self, launch: Launch) -> BoxFuture<'_, Result<Arc<dyn Instance>, StartError>>;

    /// Gives the room back. Instances have been stopped before.
    fn release(&self) -> BoxFuture<'_, ()>;
}

/// A started instance. Dropping the last reference ends it too, but nobody waits for that.
pub trait Instance: Send + Sync {
    /// What finds it again, by hand and for [`Executor::clear`], such as `pid:4711:START` (pid and start time, clock ticks
    /// since boot).
    fn handle(&self) -> String;

    /// Resolves when its main process has ended, at once if it has. All its output is in the log by then.
    fn exited(&self) -> BoxFuture<'_, Exit>;

    /// Ends it: TERM, KILL after the launch's grace period, all its descendants. Resolves when none is left; also right
    /// after it exited by itself.
    ///
    /// # Errors
    /// Something of it may still run.
    fn stop(&self) -> BoxFuture<'_, Result<Exit, StartError>>;
}

/// A node of a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The group's name.
    pub group: String,
    /// Which of its nodes, from 0.
    pub node: u64,
}

/// Where an endpoint listens, as reached from the other processes of the job and from ixbuild.
#[derive(Debug)]
pub struct Address {
    /// Host name or IP address.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// What keeps the port ours, for executors that take ports of this host.
    pub lease: Option<PortLease>,
}

impl Address {
    /// An address on this host, kept by its lease.
    pub fn local(lease: PortLease) -> Self {
        Self { host: std::net::Ipv4Addr::LOCALHOST.to_string(), port: lease.port(), lease: Some(lease) }
    }

    /// The address as a socket address, if its host is an IP address.
    pub fn socket(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.host.parse().ok()?, self.port))
    }
}

/// Everything that starts one instance.
#[derive(Debug, Clone)]
pub struct Launch {
    /// Its service as the spec describes it: image, packages, resources.
    pub service: Service,
    /// Which replica, from 0.
    pub instance: u64,
    /// Where it runs.
    pub place: Place,
    /// Program and arguments, rendered; the simulator's, if it plays this service.
    pub command: Vec<String>,
    /// Whether the simulator plays this service.
    pub played: bool,
    /// The spec's environment, rendered.
    pub env: BTreeMap<String, String>,
    /// Variables whose values must not be shown; `env` wins over them.
    pub secrets: BTreeMap<String, Secret>,
    /// Rendered mounts.
    pub mounts: Vec<Mounted>,
    /// The attempt's directory; rendered paths lie in it.
    pub scratch: PathBuf,
    /// Where stdout and stderr go.
    pub log: PathBuf,
    /// Between TERM and KILL.
    pub grace: Duration,
}

/// A mount with its source as bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// On the host.
    pub source: String,
    /// In the service's file system.
    pub target: String,
    /// Whether the service may write there.
    pub read_only: bool,
}

/// Why an executor did not do as it was told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// Whose fault: of the host, or something that may pass.
    pub kind: FailureKind,
    /// One sentence.
    pub message: String,
}

impl StartError {
    /// This host lacks something.
    pub fn host(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Host, message: message.into() }
    }

    /// Something that may pass.
    pub fn passing(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Infrastructure, message: message.into() }
    }
}
