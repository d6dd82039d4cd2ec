//! countersign

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod canonical;
mod error;
pub mod escape;

pub use canonical::{CanonicalJson, Fingerprint, canonical_json, canonical_json_from_text, fingerprint};
pub use error::Error;
