//! HTTP clients: the one place that chooses TLS and proxies. Knows no host.

use std::fmt::Write as _;

/// A client for services of this machine: no proxy, and no certificates are read.
pub fn local() -> reqwest::ClientBuilder {
    with_tls().no_proxy().tls_certs_only([])
}

/// A client for other machines: the system's certificates (or those of `SSL_CERT_FILE`, `SSL_CERT_DIR`) and the proxies
/// that the environment names.
pub fn remote() -> reqwest::ClientBuilder {
    with_tls().user_agent(concat!("ixbuild/", env!("CARGO_PKG_VERSION")))
}

fn with_tls() -> reqwest::ClientBuilder {
    // The answer is an error when a provider is installed already: it is this one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
}

/// An error with its causes, the most telling of which reqwest leaves out of its message; without the address, which may
/// hold credentials.
pub fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        let _ = write!(text, ": {inner}");
        cause = inner.source();
    }
    text
}
