//! Input that no gate should accept, and accidents that no gate should turn into something else.

#[path = "../common/mod.rs"]
mod common;

mod accidents;
mod files;
mod results;
mod values;
