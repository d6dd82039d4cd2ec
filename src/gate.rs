//! The gate: one open file in one process.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::agent::Agent;
use crate::builder::{GateBuilder, Options};
use crate::error::{Error, Result};
use crate::instance::Instance;
use crate::names::{Actor, Channel, check_name, check_person, random_hex};
use crate::operator::Operator;
use crate::reviewer::Reviewer;
use crate::store::pool::OpenOptions;
use crate::store::read::Reader;
use crate::store::rows::PlanRow;
use crate::store::tx::{No, Tx};
use crate::store::{Store, Subscription, lock};

/// One open gate. Cheap to clone; all clones are the same instance.
///
/// It hands out the three role handles. They are separate types, so that an agent's handler cannot name an approval:
///
/// ```compile_fail,E0599
/// # let gate = countersign::Gate::ephemeral().unwrap();
/// let agent = gate.agent("pricing-agent").unwrap();
/// agent.approve("token", "seal");
/// ```
///
/// They guard against mistakes. They are no sandbox: code in the host's process can ask the gate for any handle.
#[derive(Clone)]
pub struct Gate {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) options: Options,
    pub(crate) instance: Instance,
    /// The claims that somebody in this process works on: (plan token, attempt), and how many hold each: an adopted one has two.
    pub(crate) live: Mutex<HashMap<(String, u32), usize>>,
    closed: AtomicBool,
    #[cfg(feature = "tokio")]
    pub(crate) lanes: crate::on_tokio::Lanes,
    _directory: Option<PrivateDir>,
}

impl Gate {
    /// Opens the file with the default options, or creates it (mode 0600).
    ///
    /// # Errors
    /// See [`GateBuilder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder(path).open()
    }

    /// Opens the file with other options.
    pub fn builder(path: impl AsRef<Path>) -> GateBuilder {
        GateBuilder::new(path.as_ref())
    }

    /// Opens a gate on a file in a private temporary directory, which goes with the last clone. For tests and demos; the
    /// code is the same.
    ///
    /// # Errors
    /// See [`GateBuilder::open`].
    pub fn ephemeral() -> Result<Self> {
        let directory = PrivateDir::new()?;
        Self::builder(directory.0.join("gate.db")).open_in(directory)
    }

    pub(crate) fn open_with(path: &Path, options: Options) -> Result<Self> {
        Self::open_inner(path, options, None)
    }

    pub(crate) fn open_private(path: &Path, options: Options, directory: PrivateDir) -> Result<Self> {
        Self::open_inner(path, options, Some(directory))
    }

    fn open_inner(path: &Path, options: Options, directory: Option<PrivateDir>) -> Result<Self> {
        let instance_id = random_hex::<16>()?;
        let store = Store::open(
            OpenOptions {
                path: path.to_owned(),
                busy_deadline: options.busy_deadline,
                readers: options.readers,
                any_file_system: options.any_file_system,
                create: options.create,
                hooks: options.hooks.clone(),
            },
            options.clock.clone(),
            instance_id.clone(),
            options.sink.clone(),
        )?;
        let instance = Instance::new(instance_id, store.pools().path())?;
        store.remember_head(instance.directory())?;
        let inner = Inner {
            #[cfg(feature = "tokio")]
            lanes: crate::on_tokio::Lanes::new(options.readers),
            store,
            options,
            instance,
            live: Mutex::new(HashMap::new()),
            closed: AtomicBool::new(false),
            _directory: directory,
        };
        inner.store.deliver();
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The handle of an agent: it proposes and runs. `caller` names the agent; `unknown` is the usual name in a host
    /// with one agent.
    ///
    /// # Errors
    /// Invalid input, for what is no name.
    pub fn agent(&self, caller: &str) -> Result<Agent> {
        let name = check_name("the caller", caller)?;
        Ok(Agent::new(self.inner.clone(), Actor { name, channel: Channel::library() }))
    }

    /// The handle of a reviewer: a person (or a trusted process) who decides.
    ///
    /// # Errors
    /// Invalid input, for what is no name, and for `unknown`.
    pub fn reviewer(&self, name: &str) -> Result<Reviewer> {
        let name = check_person("the reviewer", name)?;
        Ok(Reviewer::new(self.inner.clone(), Actor { name, channel: Channel::library() }))
    }

    /// The handle of an operator, who recovers, settles, sweeps and reads the audit.
    ///
    /// # Errors
    /// Invalid input, for what is no name, and for `unknown`.
    pub fn operator(&self, name: &str) -> Result<Operator> {
        let name = check_person("the operator", name)?;
        Ok(Operator::new(self.inner.clone(), Actor { name, channel: Channel::library() }))
    }

    /// The id of this open gate; audit rows carry it.
    #[must_use]
    pub fn instance_id(&self) -> &str {
        &self.inner.instance.id
    }

    /// The database's absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.inner.store.pools().path()
    }

    /// Closes the gate: every later call of any clone or handle answers `closed`. Claims that are still open stay
    /// `executing`, and every recovery finds their owner dead from now on: close after the work, not during it.
    ///
    /// A gate that is dropped with its last clone closes itself.
    ///
    /// # Errors
    /// Busy and storage errors of the transaction that takes the instance's row out; the gate is closed all the same.
    pub fn close(&self) -> Result<()> {
        self.inner.close()
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("path", &self.path()).field("instance_id", &self.inner.instance.id).finish()
    }
}

impl Inner {
    /// Refuses a gate that is closed, and a process that did not open it: a fork may have copied any lock while it was
    /// held, so this comes before every lock.
    pub(crate) fn usable(&self) -> Result<()> {
        self.store.check_process()?;
        self.not_closed()
    }

    fn not_closed(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::closed()) } else { Ok(()) }
    }

    /// Refuses a file that was put back, also where a writing verb would find nothing to write.
    pub(crate) fn standing(&self) -> Result<()> {
        self.usable()?;
        crate::report::failed(self.store.check_not_rolled_back())
    }

    pub(crate) fn read<T>(&self, f: impl FnOnce(&Reader<'_>) -> Result<T>) -> Result<T> {
        self.usable()?;
        crate::report::failed(self.store.read(f))
    }

    /// One transaction; then the committed events go to the sink.
    pub(crate) fn write<T>(&self, actor: &Actor, f: impl FnOnce(&mut Tx<'_>) -> Result<Result<T, No>>) -> Result<T> {
        self.usable()?;
        let answer = self.store.write(actor, |tx| {
            // Asked again under the writer: whoever comes after the transaction of a close changes nothing, and a claim
            // that came before it keeps the instance's row.
            self.not_closed()?;
            f(tx)
        });
        self.store.deliver();
        crate::report::failed(answer)
    }

    /// Woken by every change of any plan, of whatever process. Subscribe first, then read.
    #[cfg_attr(not(feature = "approval-server"), allow(dead_code, reason = "the page's stream asks for every change"))]
    pub(crate) fn changes(&self) -> Result<Subscription> {
        self.usable()?;
        self.store.subscribe(None, None, None)
    }

    /// Takes this instance's lock and writes its row, before its first claim.
    pub(crate) fn register(&self) -> Result<()> {
        self.usable()?;
        self.instance.register(self.store.now(), |row| {
            let actor = self.own_actor();
            self.store.write(&actor, |tx| {
                self.not_closed()?;
                Ok(Ok(tx.insert_instance(row)?))
            })
        })
    }

    fn own_actor(&self) -> Actor {
        Actor { name: "countersign".to_owned(), channel: Channel::library() }
    }

    fn close(&self) -> Result<()> {
        self.store.check_process()?;
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        self.store.stop_waiting();
        // A registration that is under way holds the lock that `own_row` waits for.
        if self.instance.own_row().is_none() {
            return Ok(());
        }
        let deleted = self.store.write(&self.own_actor(), |tx| Ok(Ok(tx.delete_instance(tx.instance_id)?)));
        self.instance.release(matches!(deleted, Ok(true)));
        deleted.map(drop)
    }

    /// True when somebody in this process works on that claim.
    pub(crate) fn works_on(&self, plan_token: &str, attempt: u32) -> bool {
        lock(&self.live).contains_key(&(plan_token.to_owned(), attempt))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // In a forked child nothing of this belongs to it. Otherwise best effort: a row that stays is found dead.
        if self.store.is_own_process() {
            let _ = self.close();
        }
    }
}

/// Somebody in this process works on this claim, as long as this lives.
pub(crate) struct LiveClaim {
    inner: Arc<Inner>,
    key: (String, u32),
}

impl LiveClaim {
    pub(crate) fn new(inner: Arc<Inner>, row: &PlanRow) -> Self {
        Self::hold(inner, (row.plan_token.clone(), row.attempt))
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn again(&self) -> Self {
        Self::hold(self.inner.clone(), self.key.clone())
    }

    fn hold(inner: Arc<Inner>, key: (String, u32)) -> Self {
        *lock(&inner.live).entry(key.clone()).or_insert(0) += 1;
        Self { inner, key }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Drop for LiveClaim {
    fn drop(&mut self) {
        let mut live = lock(&self.inner.live);
        if let Some(holders) = live.get_mut(&self.key) {
            *holders -= 1;
            if *holders == 0 {
                live.remove(&self.key);
            }
        }
    }
}

/// A temporary directory that only this user enters, removed when dropped.
pub(crate) struct PrivateDir(PathBuf);

impl PrivateDir {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("countersign-{}", random_hex::<12>()?));
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).map_err(|error| Error::from_io("cannot create", &path, &error))?;
        Ok(Self(path))
    }
}

impl Drop for PrivateDir {
    fn drop(&mut self) {
        // Best effort: what is left lies in the system's temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
