//! Alive, dead, or unknown: one pure decision over what was observed (design section 8, sqlite.md "Who is alive").

/// Whether the owner of a claim still lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Liveness {
    /// It lives, or may wake up: nobody settles its claims.
    Alive,
    /// It is gone for good: its claims are settled by the next recovery.
    Dead,
    /// Nobody can tell from here: an operator has to.
    Unknown,
}

/// What was seen of an owner's lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockSeen {
    /// Somebody holds it.
    Held,
    /// Nobody holds it.
    Free,
    /// The file is not there.
    Missing,
    /// Another file stands at its path.
    Replaced,
    /// It could not be opened, looked at or tried.
    Unreadable,
}

/// What was observed of an owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed {
    /// It was opened in this boot of this kernel; `None` where a boot has no id.
    pub(crate) same_boot: Option<bool>,
    /// It had this host name.
    pub(crate) same_host: bool,
    pub(crate) lock: LockSeen,
}

/// A held lock is alive. In this boot the lock alone decides, whatever the host name says: containers share a kernel.
/// Another boot of this host: dead. Everything else is unknown.
pub(crate) fn decide(seen: Observed) -> Liveness {
    match (seen.lock, seen.same_boot, seen.same_host) {
        (LockSeen::Held, _, _) => Liveness::Alive,
        (LockSeen::Free, Some(true), _) => Liveness::Dead,
        // No boot id: on this host a free lock is dead in this boot and in every other.
        (LockSeen::Free, None, true) => Liveness::Dead,
        (_, Some(false), true) => Liveness::Dead,
        _ => Liveness::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::{Liveness, LockSeen, Observed, decide};

    #[test]
    fn only_a_free_lock_of_this_boot_or_another_boot_of_this_host_is_dead() {
        use LockSeen::{Free, Held, Missing, Replaced, Unreadable};
        for lock in [Held, Free, Missing, Replaced, Unreadable] {
            for same_boot in [Some(true), Some(false), None] {
                for same_host in [true, false] {
                    let expected = match (lock, same_boot, same_host) {
                        (Held, _, _) => Liveness::Alive,
                        (Free, Some(true), _) | (Free, None, true) | (_, Some(false), true) => Liveness::Dead,
                        (Missing | Replaced | Unreadable, Some(true) | None, _)
                        | (Free, None, false)
                        | (_, Some(false), false) => Liveness::Unknown,
                    };
                    assert_eq!(
                        decide(Observed { same_boot, same_host, lock }),
                        expected,
                        "{lock:?} {same_boot:?} {same_host}"
                    );
                }
            }
        }
    }
}
