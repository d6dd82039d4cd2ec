//! A server that runs on its own thread, and the handle on it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::watch;

use super::builder::ApprovalServerBuilder;
use super::guard::Authorities;
use super::link::{self, LinkFile};
use super::tokens::Tokens;
use super::{Shared, listen, routes};
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::store::lock;

/// How long the close waits for calls of the gate that still run.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// A running approval server. Dropped or [`close`](ApprovalServer::close)d, it stops.
pub struct ApprovalServer {
    address: SocketAddr,
    directory: PathBuf,
    shared: Arc<Shared>,
    links: Mutex<BTreeMap<String, LinkFile>>,
    closing: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    /// The file of an ephemeral gate lives as long as its server.
    _gate: Gate,
}

impl ApprovalServer {
    /// An approval server for this gate: name at least one reviewer, then [`serve`](ApprovalServerBuilder::serve) or
    /// [`mount`](ApprovalServerBuilder::mount).
    pub fn builder(gate: &Gate) -> ApprovalServerBuilder {
        ApprovalServerBuilder::new(gate)
    }

    pub(super) fn start(builder: ApprovalServerBuilder, port: u16) -> Result<Self> {
        let gate = builder.gate.clone();
        let directory = gate.inner.instance.directory().to_owned();
        // Bound before any link exists: where the port is taken, nobody is sent to it.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|error| cannot_listen(port, &error))?;
        let address = listener.local_addr().map_err(|error| cannot_listen(port, &error))?;
        listener.set_nonblocking(true).map_err(|error| cannot_listen(port, &error))?;
        let shared = Arc::new(builder.shared(Authorities::loopback(address.port()), String::new())?);
        let (closing, closed) = watch::channel(false);
        let thread = spawn(listener, shared.clone(), closed)?;
        let links = Mutex::new(BTreeMap::new());
        let server = Self { address, directory, shared, links, closing, thread: Some(thread), _gate: gate };
        link::remove_dead(&server.directory);
        for (reviewer, token) in server.shared.tokens.all() {
            server.write_link(&reviewer, &token)?;
        }
        link::print_on_terminal(&server.shared.title, &server.links());
        Ok(server)
    }

    /// Where it listens: 127.0.0.1 and its port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The link of a reviewer. It is a secret: give it to that person alone, never to a tool result, a log or an
    /// argument list.
    #[must_use]
    pub fn link(&self, reviewer: &str) -> Option<String> {
        self.shared.tokens.token_of(reviewer).map(|token| self.link_with(&token))
    }

    /// Every reviewer's name and link.
    #[must_use]
    pub fn links(&self) -> Vec<(String, String)> {
        let all = self.shared.tokens.all();
        all.into_iter().map(|(reviewer, token)| (reviewer, self.link_with(&token))).collect()
    }

    /// Gives the reviewer a new link; the old one is worth nothing from now on, and pages that were opened with it lose
    /// their stream. The new one goes into the file and, on a terminal, is printed.
    ///
    /// # Errors
    /// Invalid input for a name that is no reviewer's. Storage errors of the link's file: the old link is worth nothing
    /// all the same, and [`link`](ApprovalServer::link) has the new one.
    pub fn rotate(&self, reviewer: &str) -> Result<String> {
        let Some(token) = self.shared.rotate(reviewer)? else { return Err(no_reviewer()) };
        self.write_link(reviewer, &token)?;
        let link = self.link_with(&token);
        link::print_on_terminal(&self.shared.title, &[(reviewer.to_owned(), link.clone())]);
        Ok(link)
    }

    /// Stops: no new request is taken, open ones may end, within some seconds. Links are removed.
    pub fn close(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.shared.watcher.close();
        self.closing.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the panic itself.
            let _ = thread.join();
        }
        lock(&self.links).clear();
    }

    fn link_with(&self, token: &str) -> String {
        format!("http://{}/?token={token}", self.address)
    }

    fn write_link(&self, reviewer: &str, token: &str) -> Result<()> {
        let mut links = lock(&self.links);
        // The old file first: its removal must not hit the new one, which has its name.
        links.remove(&reviewer.to_ascii_lowercase());
        let file = LinkFile::write(&self.directory, reviewer, self.port(), &self.link_with(token))?;
        links.insert(reviewer.to_ascii_lowercase(), file);
        Ok(())
    }
}

impl Shared {
    /// Mints a new token, and shows those who came in by the old one out.
    pub(super) fn rotate(&self, reviewer: &str) -> Result<Option<String>> {
        let token = self.tokens.rotate(reviewer)?;
        self.watcher.ring();
        Ok(token)
    }
}

pub(super) fn no_reviewer() -> Error {
    Error::invalid("this approval server has no such reviewer")
}

fn cannot_listen(port: u16, error: &std::io::Error) -> Error {
    Error::unsupported(format!("the approval server cannot listen on 127.0.0.1:{port}: {error}"))
}

fn spawn(listener: TcpListener, shared: Arc<Shared>, closed: watch::Receiver<bool>) -> Result<JoinHandle<()>> {
    let failed = |error: std::io::Error| Error::storage(format!("cannot start the approval server: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("countersign-call")
        .max_blocking_threads(3 * super::CALLS_MAX)
        .build()
        .map_err(failed)?;
    let thread = std::thread::Builder::new().name("countersign-http".to_owned());
    thread
        .spawn(move || {
            runtime.block_on(async {
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => listen::serve(listener, routes(&shared), closed).await,
                    Err(error) => crate::report::problem(&format!("approval server: {error}")),
                }
            });
            runtime.shutdown_timeout(CLOSE_DEADLINE);
        })
        .map_err(failed)
}

impl Drop for ApprovalServer {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for ApprovalServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApprovalServer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Kept apart so that the tokens are never printed with what holds them.
impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens(..)")
    }
}
