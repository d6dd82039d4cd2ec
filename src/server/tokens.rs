//! Who may decide: a secret for each reviewer, minted at each start.

use std::sync::Mutex;

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use crate::error::{Error, Result};
use crate::names::random_hex;
use crate::reviewer::Reviewer;
use crate::store::lock;

/// The shortest token that a host may bring.
const OWN_TOKEN_MIN: usize = 32;
const OWN_TOKEN_MAX: usize = 512;

/// The reviewers and their tokens.
pub(super) struct Tokens {
    entries: Mutex<Vec<Entry>>,
}

struct Entry {
    reviewer: Reviewer,
    token: String,
    digest: [u8; 32],
    /// Counts the rotations: what was let in under an older one is out.
    generation: u64,
}

/// A request's proof that it carried a reviewer's token.
#[derive(Clone)]
pub(super) struct Pass {
    pub(super) reviewer: Reviewer,
    generation: u64,
}

impl Tokens {
    /// `given`: each reviewer, and the host's own token where it brought one.
    pub(super) fn new(given: Vec<(Reviewer, Option<String>)>) -> Result<Self> {
        let mut entries: Vec<Entry> = Vec::with_capacity(given.len());
        for (reviewer, own) in given {
            if entries.iter().any(|entry| entry.is(reviewer.name())) {
                return Err(Error::invalid(format!("the reviewer {:?} is named twice", reviewer.name())));
            }
            let token = match own {
                Some(own) => check_own(own)?,
                None => random_hex::<32>()?,
            };
            if entries.iter().any(|entry| entry.token == token) {
                return Err(Error::invalid("two reviewers have the same token"));
            }
            entries.push(Entry { reviewer, digest: digest(&token), token, generation: 0 });
        }
        if entries.is_empty() {
            return Err(Error::invalid("an approval server needs at least one reviewer"));
        }
        Ok(Self { entries: Mutex::new(entries) })
    }

    /// The reviewer whose token this is. Every entry is compared, each in constant time, whatever was found before.
    pub(super) fn check(&self, presented: &str) -> Option<Pass> {
        let presented = digest(presented);
        let entries = lock(&self.entries);
        let mut found = None;
        for entry in entries.iter() {
            let same: Choice = entry.digest.ct_eq(&presented);
            if bool::from(same) {
                found = Some(Pass { reviewer: entry.reviewer.clone(), generation: entry.generation });
            }
        }
        found
    }

    /// True as long as the token behind the pass was not rotated.
    pub(super) fn still_good(&self, pass: &Pass) -> bool {
        let entries = lock(&self.entries);
        entries.iter().any(|entry| entry.is(pass.reviewer.name()) && entry.generation == pass.generation)
    }

    /// Every reviewer's name and token.
    pub(super) fn all(&self) -> Vec<(String, String)> {
        lock(&self.entries).iter().map(|entry| (entry.reviewer.name().to_owned(), entry.token.clone())).collect()
    }

    pub(super) fn token_of(&self, reviewer: &str) -> Option<String> {
        lock(&self.entries).iter().find(|entry| entry.is(reviewer)).map(|entry| entry.token.clone())
    }

    /// Mints a new token for the reviewer; the old one is worth nothing from now on. `None`: no such reviewer.
    pub(super) fn rotate(&self, reviewer: &str) -> Result<Option<String>> {
        let token = random_hex::<32>()?;
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.iter_mut().find(|entry| entry.is(reviewer)) else { return Ok(None) };
        entry.digest = digest(&token);
        entry.token.clone_from(&token);
        entry.generation += 1;
        Ok(Some(token))
    }
}

impl Entry {
    fn is(&self, reviewer: &str) -> bool {
        self.reviewer.name().eq_ignore_ascii_case(reviewer)
    }
}

/// Comparing digests makes the time independent of the length too.
fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// A host's own token goes into a link as it is.
fn check_own(token: String) -> Result<String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    if !(OWN_TOKEN_MIN..=OWN_TOKEN_MAX).contains(&token.len()) || !token.bytes().all(plain) {
        return Err(Error::invalid(format!(
            "a reviewer's own token has {OWN_TOKEN_MIN} to {OWN_TOKEN_MAX} characters of A-Z a-z 0-9 . _ ~ -"
        )));
    }
    Ok(token)
}
