//! The world in which side effects leave their traces: one file a plan, one line an effect. What was written survives a
//! killed process, and the number of lines is the number of times that a plan's effect happened.
#![allow(clippy::disallowed_methods, reason = "the ledger's own files, never a database")]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use countersign::{BoxError, Outcome, Plan, PlanToken};

#[derive(Clone, Debug)]
pub(crate) struct Ledger(PathBuf);

impl Ledger {
    pub(crate) fn at(directory: impl AsRef<Path>) -> Self {
        std::fs::create_dir_all(directory.as_ref()).unwrap();
        Self(directory.as_ref().to_owned())
    }

    /// Beside a database.
    pub(crate) fn beside(database: impl AsRef<Path>) -> Self {
        Self::at(database.as_ref().with_file_name("effects"))
    }

    /// The side effect.
    pub(crate) fn apply(&self, token: &PlanToken, attempt: u32) {
        let mut file = OpenOptions::new().append(true).create(true).open(self.0.join(token.as_str())).unwrap();
        file.write_all(format!("{attempt}\n").as_bytes()).unwrap();
    }

    pub(crate) fn count(&self, token: &str) -> usize {
        match std::fs::read(self.0.join(token)) {
            Ok(bytes) => bytes.iter().filter(|byte| **byte == b'\n').count(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
            Err(error) => panic!("the ledger cannot be read: {error}"),
        }
    }

    /// How many effects happened in all.
    pub(crate) fn total(&self) -> usize {
        std::fs::read_dir(&self.0).unwrap().map(|entry| self.count(entry.unwrap().file_name().to_str().unwrap())).sum()
    }

    /// What a reconcile hook answers: the ledger knows.
    pub(crate) fn hook(&self) -> impl Fn(&Plan) -> Result<Outcome, BoxError> + Send + Sync + 'static {
        let ledger = self.clone();
        move |stuck| {
            let happened = ledger.count(stuck.plan_token.as_str()) > 0;
            Ok(if happened { Outcome::done(&"found in the ledger") } else { Outcome::NotDone })
        }
    }
}
