//! The examination of a file: everything that a gate relies on, one line each, with what to do.
//!
//! It changes nothing, and it also examines what no gate would open: that is when it is needed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use crate::audit::Head;
use crate::clock::{Clock, SystemClock};
use crate::store::doctor::examine;

/// Examines a database file that hosts may have open.
///
/// ```
/// use countersign::{Doctor, Gate, Level};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("gate.db");
/// let gate = Gate::open(&path)?;
/// let report = Doctor::new(&path).examine();
/// assert_eq!(report.level(), Level::Ok, "{report}");
/// # Ok::<(), countersign::Error>(())
/// ```
#[must_use = "a doctor does nothing until examine"]
pub struct Doctor<'a> {
    pub(crate) path: PathBuf,
    pub(crate) head: Option<Head>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) progress: Box<dyn FnMut(u64, u64) + 'a>,
}

impl<'a> Doctor<'a> {
    /// Examines this file.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            head: None,
            clock: Arc::new(SystemClock::new()),
            progress: Box::new(|_, _| {}),
        }
    }

    /// A head that was exported earlier: with it a cut or replaced tail of the audit is found too.
    pub fn head(mut self, head: Head) -> Self {
        self.head = Some(head);
        self
    }

    /// Where the time comes from. Default: the machine.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Is told, while the audit is walked, how many rows were walked, and how many there were.
    pub fn progress(mut self, progress: impl FnMut(u64, u64) + 'a) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Looks at everything. What cannot be looked at because of an earlier failure is left out.
    #[must_use]
    pub fn examine(self) -> DoctorReport {
        examine(self)
    }
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Works, and somebody should look at it.
    Warning,
    /// Not to be relied on until somebody has done something about it.
    Failure,
}

impl Level {
    /// `ok`, `warning` or `failure`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failure => "failure",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// What was looked at; a stable name.
    pub check: &'static str,
    /// How it ended.
    pub level: Level,
    /// What was found. Text from the file is escaped.
    pub found: String,
    /// What to do about it; none when it is ok.
    pub advice: Option<String>,
}

/// What an examination found.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct DoctorReport {
    /// The file, as it was named.
    pub path: PathBuf,
    /// The checks, in the order in which they were made.
    pub checks: Vec<Check>,
}

impl DoctorReport {
    /// The worst level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.checks.iter().map(|check| check.level).max().unwrap_or(Level::Failure)
    }
}

impl std::fmt::Display for DoctorReport {
    /// One line a check: level, name, what was found; then a line of advice where there is one.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for check in &self.checks {
            writeln!(f, "{:<7}  {}: {}", check.level.as_str(), check.check, check.found)?;
            if let Some(advice) = &check.advice {
                writeln!(f, "         {advice}")?;
            }
        }
        Ok(())
    }
}
