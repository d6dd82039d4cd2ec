//! The page in a real browser.
fn main() {}
