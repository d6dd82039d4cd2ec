//! The approval server on this file.

use countersign::ApprovalServer;
use serde_json::json;
use signal_hook::consts::TERM_SIGNALS;
use signal_hook::iterator::Signals;

use crate::fail::Outcome;
use crate::out::Out;
use crate::session::Session;

/// Serves until a signal asks it to end. The links are secrets: the library prints them to a terminal and nowhere else.
pub(crate) fn serve(session: &Session, reviewers: &[String], port: u16, out: &mut Out) -> Outcome {
    // Before the links exist: whoever ends it early ends it cleanly.
    let mut signals = Signals::new(TERM_SIGNALS)?;
    let builder = ApprovalServer::builder(session.gate());
    let server = reviewers.iter().fold(builder, |builder, name| builder.reviewer(name)).serve(port)?;
    let said = if out.is_json() {
        out.json(&json!({"address": server.address().to_string(), "port": server.port()}))
    } else {
        let links = "each reviewer's link lies in the .owners directory beside the database, for this user alone";
        out.line(&format!("listening on http://{}; {links}", server.address()))
    };
    let outcome = said.and_then(|()| out.flush());
    if outcome.is_ok() {
        signals.forever().next();
    }
    server.close();
    outcome
}
