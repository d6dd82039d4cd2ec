//! The open gate, and who asks.

use std::path::PathBuf;
use std::time::Duration;

use countersign::{Channel, Gate, Operator, Reviewer};

use crate::fail::{Failure, Outcome};

/// One command's open gate.
pub(crate) struct Session {
    gate: Gate,
    user: String,
    channel: Channel,
}

/// The file that was named.
pub(crate) fn path(db: Option<PathBuf>) -> Outcome<PathBuf> {
    db.filter(|path| !path.as_os_str().is_empty())
        .ok_or_else(|| Failure::usage("NO_DATABASE", "no database was named", "Give --db FILE, or set COUNTERSIGN_DB."))
}

impl Session {
    pub(crate) fn open(db: Option<PathBuf>, wait: Duration) -> Outcome<Self> {
        let path = path(db)?;
        let missing = std::fs::symlink_metadata(&path).is_err();
        let gate = Gate::builder(&path).create(false).busy_deadline(wait).open().map_err(|error| {
            match Failure::from(error) {
                Failure::Gate { error, .. } if missing => Failure::Gate {
                    error,
                    hint: "Check --db or COUNTERSIGN_DB: a host makes the file when it first opens it, this program never does.".to_owned(),
                },
                failure => failure,
            }
        })?;
        let (user, channel) = os_user();
        Ok(Self { gate, user, channel })
    }

    /// Someone who decides, under the name that they claim.
    pub(crate) fn reviewer(&self, name: &str) -> Outcome<Reviewer> {
        Ok(self.gate.reviewer(name)?.via(self.channel.clone()))
    }

    /// Someone who operates; without a name, the operating system's user.
    pub(crate) fn operator(&self, name: Option<&str>) -> Outcome<Operator> {
        Ok(self.gate.operator(name.unwrap_or(&self.user))?.via(self.channel.clone()))
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(crate) fn channel(&self) -> &str {
        self.channel.as_str()
    }
}

/// The user as the operating system knows it, never as the environment claims it: the name, or where there is none that
/// can stand in the audit, the number. And the channel that says so.
fn os_user() -> (String, Channel) {
    let uid = nix::unistd::getuid();
    let name = nix::unistd::User::from_uid(uid).ok().flatten().map(|user| user.name);
    let channel = name.as_deref().and_then(|name| Channel::new(&format!("cli:{name}")).ok());
    match (name, channel) {
        (Some(name), Some(channel)) if !name.eq_ignore_ascii_case("unknown") => (name, channel),
        _ => {
            let channel = Channel::new(&format!("cli:{uid}")).unwrap_or_else(|_| Channel::library());
            (format!("uid-{uid}"), channel)
        }
    }
}
