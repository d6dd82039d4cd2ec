//! Where a problem goes that changes no answer: to standard error.

pub(crate) fn problem(what: &str) {
    eprintln!("countersign: {what}");
}
