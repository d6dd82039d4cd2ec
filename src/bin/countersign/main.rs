//! The operator's terminal: decisions, recovery, audit and examination of a gate's file that hosts may have open.

mod args;
mod audit;
mod card;
mod decide;
mod fail;
mod inspect;
mod operate;
mod out;
mod progress;
mod serve;
mod session;
mod when;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use args::{Args, AuditCommand, Command};
use fail::Outcome;
use out::Out;
use session::Session;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return fail::command_line(&error),
    };
    let mut out = Out::new(args.json);
    let outcome = run(args, &mut out).and_then(|()| out.flush());
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(&mut out),
    }
}

fn run(args: Args, out: &mut Out) -> Outcome {
    let Args { db, wait, command, .. } = args;
    // These two need no open gate: one needs no file, the other looks at files that no gate opens.
    match &command {
        Command::Completions { shell } => return completions(*shell, out),
        Command::Doctor { head } => return inspect::doctor(&session::path(db)?, head.clone(), out),
        _ => {}
    }
    let session = Session::open(db, wait)?;
    match command {
        Command::Pending { limit } => decide::pending(&session, limit, out),
        Command::Show { token } => decide::show(&session, &token, out),
        Command::Approve(decision) => decide::approve(&session, &decision, out),
        Command::Reject(reject) => decide::reject(&session, &reject, out),
        Command::LiftRejection(lift) => decide::lift(&session, &lift, out),
        Command::Executing { limit } => operate::executing(&session, limit, out),
        Command::Recover { by } => operate::recover(&session, by.as_deref(), out),
        Command::Settle(settle) => operate::settle(&session, &settle, out),
        Command::MarkInterrupted { token, attempt, by } => operate::mark(&session, &token, attempt, &by, out),
        Command::AcceptRestore { by, yes } => operate::accept_restore(&session, &by, yes, out),
        Command::Sweep { by } => operate::sweep(&session, by.as_deref(), out),
        Command::Purge { older_than, by } => operate::purge(&session, older_than, by.as_deref(), out),
        Command::Backup { file } => operate::backup(&session, &file, out),
        Command::Serve { reviewers, port } => serve::serve(&session, &reviewers, port, out),
        Command::Stats => inspect::stats(&session, out),
        Command::Audit(AuditCommand::Tail { lines, follow }) => audit::tail(&session, lines, follow, out),
        Command::Audit(AuditCommand::Search { filter, limit, newest_first }) => {
            audit::search(&session, &filter, limit, newest_first, out)
        }
        Command::Audit(AuditCommand::Verify { head }) => audit::verify(&session, head.as_ref(), out),
        Command::Audit(AuditCommand::Head) => audit::head(&session, out),
        Command::Audit(AuditCommand::Export { format, filter }) => audit::export(&session, format, &filter, out),
        Command::Audit(AuditCommand::Index { switch }) => audit::index(&session, switch, out),
        Command::Doctor { .. } | Command::Completions { .. } => Ok(()),
    }
}

fn completions(shell: clap_complete::Shell, out: &mut Out) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "countersign", &mut script);
    out.raw(&script)
}
