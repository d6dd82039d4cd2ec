//! Named points at which the tests make this process die, panic or fail. Nothing without the feature `test-hooks`.

/// Passes a named point.
#[cfg(not(feature = "test-hooks"))]
#[inline(always)]
pub(crate) fn hit(_name: &str) {}

/// Passes a named point.
#[cfg(feature = "test-hooks")]
pub(crate) fn hit(name: &str) {
    test_hooks::hit(name);
}

/// For the tests of this crate; no part of the interface.
#[cfg(feature = "test-hooks")]
#[doc(hidden)]
pub mod test_hooks {
    use std::sync::Mutex;

    use crate::store::lock;

    /// All points, in the order in which one `execute` passes them. `after_statement` is passed after each statement of
    /// a transaction that writes.
    pub const POINTS: [&str; 8] = [
        "before_begin",
        "after_statement",
        "after_update",
        "after_audit",
        "before_commit",
        "after_commit",
        "after_effect",
        "after_confirm",
    ];

    /// What happens at a point.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Action {
        /// The process kills itself with SIGKILL.
        Kill,
        /// The process stops itself with SIGSTOP, and goes on after SIGCONT.
        Stop,
        /// The thread panics.
        Panic,
    }

    static ARMED: Mutex<Option<(String, Action, u32)>> = Mutex::new(None);

    /// Arms one point: its `nth` passing from now on (from 1) acts, once.
    pub fn arm(name: &str, action: Action, nth: u32) {
        *lock(&ARMED) = Some((name.to_owned(), action, nth.max(1)));
    }

    /// Disarms; answers whether the point had not acted yet.
    pub fn disarm() -> bool {
        lock(&ARMED).take().is_some()
    }

    pub(super) fn hit(name: &str) {
        let mut armed = lock(&ARMED);
        let Some((point, action, left)) = armed.as_mut() else { return };
        if point != name {
            return;
        }
        *left -= 1;
        if *left > 0 {
            return;
        }
        let action = *action;
        *armed = None;
        drop(armed);
        let signal = |signal| rustix::process::kill_process(rustix::process::getpid(), signal);
        match action {
            Action::Kill => {
                let _ = signal(rustix::process::Signal::KILL);
                unreachable!("a process survived SIGKILL");
            }
            Action::Stop => {
                let _ = signal(rustix::process::Signal::STOP);
            }
            Action::Panic => panic!("the test hook {name} panicked"),
        }
    }
}
