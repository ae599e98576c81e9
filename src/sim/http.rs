//! Listening, serving and stopping, alike for every simulated service.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::serve::ListenerExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::{SimError, Stop, stopped};

/// The largest request body, bytes.
pub const BODY_LIMIT: usize = 256 << 20;

/// Opens a port. A wildcard host becomes the loopback address: a rehearsal is nobody else's business, and the free ports
/// it is given are free there.
///
/// # Errors
/// The address does not exist here or the port is taken.
pub async fn bind(host: &str, port: u16) -> Result<TcpListener, SimError> {
    let host = match host {
        "0.0.0.0" => Ipv4Addr::LOCALHOST.to_string(),
        "::" => Ipv6Addr::LOCALHOST.to_string(),
        named => named.to_owned(),
    };
    let bound = TcpListener::bind((host.as_str(), port)).await;
    bound.map_err(|source| SimError::Bind { address: format!("{host}:{port}"), source })
}

/// Where a listener listens, for messages.
pub fn address(listener: &TcpListener) -> String {
    listener.local_addr().map_or_else(|_| "a closed port".to_owned(), |address| address.to_string())
}

/// Serves until stopped, then lets requests in flight finish for a while.
///
/// # Errors
/// The listener fails.
pub async fn serve(listener: TcpListener, router: Router, stop: Stop, drain: Duration) -> io::Result<()> {
    let listener = listener.tap_io(|stream: &mut TcpStream| {
        // Chunks are small and must not wait for one another; a socket that cannot do this still works.
        let _ = stream.set_nodelay(true);
    });
    let served = axum::serve(listener, router.layer(DefaultBodyLimit::max(BODY_LIMIT)))
        .with_graceful_shutdown(stopped(stop.clone()));
    let overdue = async {
        stopped(stop).await;
        tokio::time::sleep(drain).await;
    };
    tokio::select! {
        done = async { served.await } => done,
        () = overdue => Ok(()),
    }
}
