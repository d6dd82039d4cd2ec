//! Who has a connection open, so that the end of a gate is the end of all of them: a pool drops those that wait in it, and
//! one that its background thread is opening at that moment comes later.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};

/// How many connections are open or being opened, and whether more may be.
#[derive(Default)]
pub(super) struct Connections {
    state: Mutex<(usize, bool)>,
    closed_one: Condvar,
}

impl Connections {
    /// From now on none is opened.
    pub(super) fn refuse(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
    }

    pub(super) fn wait_until_closed(&self, patience: Duration) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Best effort: what is not closed by then is closed by the background thread.
        drop(self.closed_one.wait_timeout_while(state, patience, |(open, _)| *open > 0));
    }
}

/// One of them. Dropped after its connection.
pub(super) struct Counted(Arc<Connections>);

impl Counted {
    pub(super) fn enter(connections: &Arc<Connections>) -> Result<Self> {
        let mut state = connections.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.1 {
            return Err(Error::closed());
        }
        state.0 += 1;
        Ok(Self(Arc::clone(connections)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).0 -= 1;
        self.0.closed_one.notify_all();
    }
}
