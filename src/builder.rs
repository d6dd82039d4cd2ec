//! How a gate is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::audit::AuditSink;
use crate::canonical::Limits;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::execute::BoxError;
use crate::gate::Gate;
use crate::plan::Plan;
use crate::recovery::{Hook, Outcome};
use crate::store::pool::ConnHooks;

/// What a create does with a payload that was rejected before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RejectedPayloads {
    /// The plan is gated, whatever was asked for, and its card shows the earlier "no". The default.
    #[default]
    Gate,
    /// The create is refused: PLAN_REJECTED.
    Refuse,
}

/// The options of a gate, with their defaults.
#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) ttl: Duration,
    pub(crate) longest_ttl: Duration,
    pub(crate) payload: Limits,
    pub(crate) extra_max_bytes: usize,
    pub(crate) text_max_bytes: usize,
    pub(crate) max_pending: u64,
    pub(crate) rejected_payloads: RejectedPayloads,
    pub(crate) busy_deadline: Duration,
    pub(crate) readers: u32,
    pub(crate) any_file_system: bool,
    pub(crate) create: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sink: Option<Arc<dyn AuditSink>>,
    pub(crate) reconcile: Option<Hook>,
    #[cfg(feature = "tokio")]
    async_hook: Option<std::result::Result<crate::on_tokio::AsyncHook, String>>,
    pub(crate) hook_deadline: Duration,
    pub(crate) recover_deadline: Duration,
    pub(crate) hooks: ConnHooks,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(15 * 60),
            longest_ttl: Duration::from_secs(24 * 60 * 60),
            payload: Limits { max_bytes: 1024 * 1024, max_depth: 100 },
            extra_max_bytes: 64 * 1024,
            text_max_bytes: 4 * 1024,
            max_pending: 100,
            rejected_payloads: RejectedPayloads::Gate,
            busy_deadline: Duration::from_secs(5),
            readers: 4,
            any_file_system: false,
            create: true,
            clock: Arc::new(SystemClock::new()),
            sink: None,
            reconcile: None,
            #[cfg(feature = "tokio")]
            async_hook: None,
            hook_deadline: Duration::from_secs(30),
            recover_deadline: Duration::from_secs(5 * 60),
            hooks: ConnHooks::default(),
        }
    }
}

impl Options {
    pub(crate) fn extra_limits(&self) -> Limits {
        Limits { max_bytes: self.extra_max_bytes, ..self.payload }
    }
}

/// Opens a gate with other options than the defaults.
///
/// ```
/// use countersign::Gate;
/// use std::time::Duration;
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("gate.db");
/// let gate = Gate::builder(&path)
///     .ttl(Duration::from_secs(5 * 60))
///     .max_pending(20)
///     .open()?;
/// # Ok::<(), countersign::Error>(())
/// ```
#[must_use = "a builder does nothing until open"]
pub struct GateBuilder {
    path: PathBuf,
    options: Options,
}

impl GateBuilder {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), options: Options::default() }
    }

    fn set(mut self, set: impl FnOnce(&mut Options)) -> Self {
        set(&mut self.options);
        self
    }

    /// How long a plan can be used when it does not say. Default 15 minutes.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.set(|o| o.ttl = ttl)
    }

    /// The longest time that a plan may ask for. Default 24 hours.
    pub fn longest_ttl(self, ttl: Duration) -> Self {
        self.set(|o| o.longest_ttl = ttl)
    }

    /// The largest payload, and the largest result that is stored, in bytes of canonical JSON. Default 1 MiB.
    pub fn payload_max_bytes(self, bytes: usize) -> Self {
        self.set(|o| o.payload.max_bytes = bytes)
    }

    /// The largest `extra`, in bytes of canonical JSON. Default 64 KiB.
    pub fn extra_max_bytes(self, bytes: usize) -> Self {
        self.set(|o| o.extra_max_bytes = bytes)
    }

    /// The longest reason or detail, in bytes. Default 4 KiB.
    pub fn text_max_bytes(self, bytes: usize) -> Self {
        self.set(|o| o.text_max_bytes = bytes)
    }

    /// How deep JSON may nest; at most 500. Default 100.
    pub fn json_max_depth(self, depth: usize) -> Self {
        self.set(|o| o.payload.max_depth = depth)
    }

    /// How many gated plans of one caller may wait at once. Default 100.
    pub fn max_pending(self, plans: u64) -> Self {
        self.set(|o| o.max_pending = plans)
    }

    /// What a create does with a payload that was rejected before. Default: it is gated.
    pub fn rejected_payloads(self, what: RejectedPayloads) -> Self {
        self.set(|o| o.rejected_payloads = what)
    }

    /// How long a call waits for other writers before it answers busy. Default 5 s; zero takes what is free and waits for
    /// nobody.
    pub fn busy_deadline(self, deadline: Duration) -> Self {
        self.set(|o| o.busy_deadline = deadline)
    }

    /// How many connections read at once, beside the one that writes. Default 4.
    pub fn readers(self, readers: u32) -> Self {
        self.set(|o| o.readers = readers)
    }

    /// Opens the file on any file system. By default network and FUSE file systems are refused: SQLite's locks and
    /// shared memory do not hold there, and a lost lock is a lost commit.
    pub fn allow_any_file_system(self) -> Self {
        self.set(|o| o.any_file_system = true)
    }

    /// Whether a file that is not there is created. Default true; a tool that works on a file which its hosts made says
    /// false, so that a mistyped path is an error and not an empty gate.
    pub fn create(self, create: bool) -> Self {
        self.set(|o| o.create = create)
    }

    /// Where the time comes from. Default: the machine.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        self.set(|o| o.clock = clock)
    }

    /// An observer of audit events. Default: none.
    pub fn audit_sink(self, sink: Arc<dyn AuditSink>) -> Self {
        self.set(|o| o.sink = Some(sink))
    }

    /// What recovery asks about a claim whose owner is gone: did the side effect happen? The answer comes from where the
    /// effect left its trace, under the plan token. Called outside every transaction, on a thread of its own; a hook
    /// that is late, panics or fails counts as [`Outcome::Unknown`].
    ///
    /// ```
    /// use countersign::{Gate, Outcome};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # fn ledger_has(_: &str) -> bool { true }
    /// let gate = Gate::builder(dir.path().join("gate.db"))
    ///     .reconcile(|stuck| Ok(if ledger_has(stuck.plan_token.as_str()) { Outcome::done(&"found") } else { Outcome::NotDone }))
    ///     .open()?;
    /// gate.operator("startup")?.recover()?;
    /// # Ok::<(), countersign::Error>(())
    /// ```
    pub fn reconcile<F>(self, hook: F) -> Self
    where
        F: Fn(&Plan) -> Result<Outcome, BoxError> + Send + Sync + 'static,
    {
        self.set(|o| o.reconcile = Some(Arc::new(hook)))
    }

    /// How long one call of the reconcile hook may take. Default 30 s.
    pub fn hook_deadline(self, deadline: Duration) -> Self {
        self.set(|o| o.hook_deadline = deadline)
    }

    /// How long one `recover` may ask in all; what is left over is reported as not asked. Default 5 minutes.
    pub fn recover_deadline(self, deadline: Duration) -> Self {
        self.set(|o| o.recover_deadline = deadline)
    }

    /// For the tests of this crate: statements that every connection runs when it is opened.
    #[cfg(feature = "test-hooks")]
    #[doc(hidden)]
    pub fn connection_sql<S: Into<String>>(self, sql: impl IntoIterator<Item = S>) -> Self {
        self.set(|o| o.hooks.sql = sql.into_iter().map(Into::into).collect())
    }

    /// Opens the file, or creates it (mode 0600).
    ///
    /// # Errors
    /// Invalid input for options that contradict each other; unsupported for a file, a file system, a SQLite version or
    /// a schema that cannot be used safely; corrupt for a file that is no database; busy; storage.
    pub fn open(mut self) -> Result<Gate> {
        self.check()?;
        Gate::open_with(&self.path, self.options)
    }

    /// Opens an ephemeral gate with these options: see [`Gate::ephemeral`].
    pub(crate) fn open_in(mut self, directory: crate::gate::PrivateDir) -> Result<Gate> {
        self.check()?;
        Gate::open_private(&self.path, self.options, directory)
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn async_hook(self, hook: Result<crate::on_tokio::AsyncHook>) -> Self {
        self.set(|o| o.async_hook = Some(hook.map_err(|error| error.to_string())))
    }

    fn check(&mut self) -> Result<()> {
        let o = &mut self.options;
        #[cfg(feature = "tokio")]
        if let Some(hook) = o.async_hook.take() {
            let deadline = o.hook_deadline;
            o.reconcile = Some(hook.map_err(Error::invalid)?.into_hook(deadline));
        }
        if o.ttl.as_millis() == 0 || o.ttl > o.longest_ttl {
            return Err(Error::invalid("the default ttl must be at least 1 ms and at most the longest ttl"));
        }
        if o.longest_ttl > Duration::from_secs(366 * 24 * 60 * 60) {
            return Err(Error::invalid("the longest ttl can be at most 366 days"));
        }
        if o.readers == 0 {
            return Err(Error::invalid("a gate needs at least one reader"));
        }
        if o.payload.max_depth == 0 || o.payload.max_depth > 500 {
            return Err(Error::invalid("the JSON depth must be 1 to 500"));
        }
        if o.payload.max_bytes > 256 * 1024 * 1024 || o.extra_max_bytes > 256 * 1024 * 1024 {
            return Err(Error::invalid("a payload or extra can be at most 256 MiB"));
        }
        Ok(())
    }
}
