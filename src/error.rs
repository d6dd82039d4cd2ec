//! Errors.

use crate::canonical::CanonicalError;

/// An error.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(CanonicalError);

impl Error {
    pub(crate) fn from_canonical(error: CanonicalError) -> Self {
        Self(error)
    }
}
