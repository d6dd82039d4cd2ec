//! Disks that fail, files that move, processes that fork, clocks that jump.

mod clock;
#[path = "../common/mod.rs"]
mod common;
mod disk;
mod file;
mod fork;
mod full;
mod locks;

/// What a child process of these tests plays; nothing in the test run itself.
#[test]
fn role() {
    common::child::play(&[
        ("host", common::host::role),
        ("on_bad_disk", disk::on_bad_disk),
        ("forking", fork::forking),
    ]);
}
