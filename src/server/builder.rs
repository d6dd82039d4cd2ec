//! How an approval server is set up.

use std::sync::Arc;

use axum::Router;

use super::guard::Authorities;
use super::hooks::{DecisionAttempt, DecisionHook, RenderHook, Rendered};
use super::running::{ApprovalServer, no_reviewer};
use super::tokens::Tokens;
use super::{Shared, events, permits, routes};
use crate::error::{Error, Result};
use crate::execute::BoxError;
use crate::gate::Gate;
use crate::names::Channel;
use crate::plan::PendingPlan;

/// Sets an approval server up.
#[must_use = "a builder does nothing until serve or mount"]
pub struct ApprovalServerBuilder {
    pub(super) gate: Gate,
    reviewers: Vec<(String, Option<String>)>,
    title: String,
    expose_raw_payload: bool,
    render: Option<RenderHook>,
    on_decision: Option<DecisionHook>,
}

impl ApprovalServerBuilder {
    pub(super) fn new(gate: &Gate) -> Self {
        Self {
            gate: gate.clone(),
            reviewers: Vec::new(),
            title: "Approval queue".to_owned(),
            expose_raw_payload: false,
            render: None,
            on_decision: None,
        }
    }

    /// A person who decides. Each has a link of their own, with a token that is minted at each start.
    pub fn reviewer(mut self, name: &str) -> Self {
        self.reviewers.push((name.to_owned(), None));
        self
    }

    /// A person who decides, with the host's own token instead of a minted one: at least 32 characters of
    /// `A-Za-z0-9._~-`, as hard to guess as a key.
    pub fn reviewer_with_token(mut self, name: &str, token: impl Into<String>) -> Self {
        self.reviewers.push((name.to_owned(), Some(token.into())));
        self
    }

    /// The page's title. Default: "Approval queue".
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// Lets the page and the API show the stored payload itself, and the details of audit rows, beside what
    /// [`render_plan`](Self::render_plan) makes of them. Off by default.
    pub fn expose_raw_payload(mut self) -> Self {
        self.expose_raw_payload = true;
        self
    }

    /// How a plan looks on its card. Called for each card at each listing, so it should be quick and only read. A hook
    /// that fails or panics spoils its card alone: the page says so, and does not let the plan be approved unseen.
    ///
    /// Without it a card shows payload and extra as JSON. With it, what it leaves out is shown nowhere (unless
    /// [`expose_raw_payload`](Self::expose_raw_payload)).
    pub fn render_plan<F>(mut self, render: F) -> Self
    where
        F: Fn(&PendingPlan) -> Result<Rendered, BoxError> + Send + Sync + 'static,
    {
        self.render = Some(Arc::new(render));
        self
    }

    /// Is told of every attempt to decide, after the gate's answer and before the reviewer gets it. It changes no
    /// answer; a panic in it is reported.
    pub fn on_decision<F>(mut self, hook: F) -> Self
    where
        F: Fn(&DecisionAttempt<'_>) + Send + Sync + 'static,
    {
        self.on_decision = Some(Arc::new(hook));
        self
    }

    /// Starts to serve on 127.0.0.1 and this port, on a thread of its own; 0: the system chooses a port.
    ///
    /// Each reviewer's link is printed if standard error is a terminal, and is written to
    /// `<database>.owners/reviewer-<name>-<port>.link`, readable by this user alone, until the server is closed.
    ///
    /// # Errors
    /// Invalid input for reviewers that are none, or none at all. Unsupported for a port that is taken. Storage errors of
    /// the links' files.
    pub fn serve(self, port: u16) -> Result<ApprovalServer> {
        ApprovalServer::start(self, port)
    }

    /// The same routes for a host that has an HTTP server on a tokio runtime already.
    ///
    /// `authority` is exactly what clients send as `Host`, such as `localhost:8080`; `prefix` is empty, or a path such as
    /// `/approvals`. Merge the router into the host's own: it answers below the prefix only, and its guard is inside it.
    /// It speaks plain HTTP/1.1; deadlines for slow clients and a bound on connections are the host's work.
    ///
    /// # Errors
    /// Invalid input for reviewers that are none, or none at all, and for an authority or a prefix that cannot be one.
    pub fn mount(self, authority: &str, prefix: &str) -> Result<MountedApprovals> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._[]:".contains(&b);
        if authority.is_empty() || !authority.bytes().all(plain) {
            return Err(Error::invalid("the authority has the form HOST or HOST:PORT, as clients send it"));
        }
        let segment = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
        let path = prefix.is_empty()
            || (prefix.starts_with('/')
                && !prefix.ends_with('/')
                && !prefix.contains("//")
                && prefix.bytes().all(segment));
        if !path {
            return Err(Error::invalid("the prefix is empty or a path such as /approvals, without a slash at its end"));
        }
        let shared = Arc::new(self.shared(Authorities::exactly(authority), prefix.to_owned())?);
        Ok(MountedApprovals { authority: authority.to_owned(), shared })
    }

    pub(super) fn shared(self, authorities: Authorities, prefix: String) -> Result<Shared> {
        let channel = Channel::new("http")?;
        let mut reviewers = Vec::with_capacity(self.reviewers.len());
        for (name, own) in self.reviewers {
            reviewers.push((self.gate.reviewer(&name)?.via(channel.clone()), own));
        }
        Ok(Shared {
            operator: self.gate.operator("approval-server")?.via(channel),
            tokens: Arc::new(Tokens::new(reviewers)?),
            authorities,
            prefix,
            title: self.title,
            expose_raw_payload: self.expose_raw_payload,
            render: self.render,
            on_decision: self.on_decision,
            watcher: events::Watcher::new(),
            reads: permits(),
            decisions: permits(),
        })
    }
}

/// The approval routes inside a host's own HTTP server. See [`ApprovalServerBuilder::mount`].
#[derive(Clone)]
pub struct MountedApprovals {
    authority: String,
    shared: Arc<Shared>,
}

impl MountedApprovals {
    /// The routes. Every call gives the same ones.
    pub fn router(&self) -> Router {
        routes(&self.shared)
    }

    /// The link of a reviewer. It is a secret: give it to that person alone. Nothing prints or stores it.
    #[must_use]
    pub fn link(&self, reviewer: &str) -> Option<String> {
        self.shared.tokens.token_of(reviewer).map(|token| self.link_with(&token))
    }

    /// Gives the reviewer a new link; the old one is worth nothing from now on.
    ///
    /// # Errors
    /// Invalid input for a name that is no reviewer's.
    pub fn rotate(&self, reviewer: &str) -> Result<String> {
        self.shared.rotate(reviewer)?.map(|token| self.link_with(&token)).ok_or_else(no_reviewer)
    }

    /// Ends the open streams, so that the host's server can stop gracefully.
    pub fn close(&self) {
        self.shared.watcher.close();
    }

    fn link_with(&self, token: &str) -> String {
        format!("http://{}{}/?token={token}", self.authority, self.shared.prefix)
    }
}

impl std::fmt::Debug for MountedApprovals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MountedApprovals").field("authority", &self.authority).finish_non_exhaustive()
    }
}
