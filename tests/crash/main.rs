//! Death and panic at every point: the file opens, every plan is in a legal state with exactly the audit of its
//! transitions, none ran twice, and none that was claimed is lost.

#[path = "../common/mod.rs"]
mod common;
mod points;
mod scenes;
mod storm;
mod syscalls;

/// What a child process of these tests plays; nothing in the test run itself.
#[test]
fn role() {
    common::child::play(&[
        ("stormer", storm::stormer),
        ("dying", points::dying),
        ("panicking", points::panicking),
        ("first_opener", points::first_opener),
        ("whole", syscalls::whole),
    ]);
}
