//! What can go wrong, what to do about it, and the exit code that says so.

use std::io::{self, Write as _};
use std::process::ExitCode;

use countersign::Error;
use countersign::escape::{classify, visible};
use serde_json::json;

use crate::out::{Out, Style};

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

pub(crate) enum Failure {
    /// The gate's answer.
    Gate { error: Error, hint: String },
    /// The command line, or the terminal, is not what the command needs.
    Usage { code: &'static str, message: String, hint: String },
    /// The person did not say yes.
    NotConfirmed,
    /// A check found something; what, was printed.
    Found,
    /// Whoever read the output went away: nothing is wrong.
    Pipe,
    /// The output could not be written.
    Output(io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let hint = hint(&error).unwrap_or(error.hint()).to_owned();
        Self::Gate { error, hint }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Pipe } else { Self::Output(error) }
    }
}

impl Failure {
    pub(crate) fn usage(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { code, message: message.into(), hint: hint.into() }
    }

    /// Says it, and gives the exit code: 1 refused, 2 usage, 3 storage.
    pub(crate) fn report(self, out: &mut Out) -> ExitCode {
        let (exit, code, message, hint) = match self {
            Self::Pipe => return ExitCode::SUCCESS,
            Self::Found => return ExitCode::from(3),
            Self::Gate { error, hint } => {
                let exit = match () {
                    () if error.is_refused() => 1,
                    () if error.is_invalid_input() => 2,
                    () => 3,
                };
                (exit, error.code(), error.to_string(), hint)
            }
            Self::Usage { code, message, hint } => (2, code, message, hint),
            Self::NotConfirmed => {
                let hint = "Answer yes, in full, to go on.";
                (1, "NOT_CONFIRMED", "nothing was changed: the answer was not yes".to_owned(), hint.to_owned())
            }
            Self::Output(error) => {
                let hint = "What was asked for may have been done: look before you repeat it.";
                (3, "OUTPUT", format!("the output cannot be written: {error}"), hint.to_owned())
            }
        };
        // Where even this cannot be written, the exit code still says it.
        let _ = if out.is_json() {
            out.json(&json!({"error": {"code": code, "message": message, "hint": hint}})).and_then(|()| out.flush())
        } else {
            let _ = out.flush();
            // Messages of the gate are escaped already; visible() would escape their backslashes again.
            let message = countersign::escape::still_visible(&message);
            out.stderr(&format!("{}: {message}\n  {}\n", out.paint_err(Style::Bad, code), visible(&hint)))
        };
        ExitCode::from(exit)
    }
}

/// A command line that could not be read; or that asked for help, which is no failure.
pub(crate) fn command_line(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print().and_then(|()| io::stdout().flush()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => Failure::from(error).report(&mut Out::new(false)),
        };
    }
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let json = arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json");
    // The message repeats arguments, which may have been pasted from anywhere.
    let hidden = |argument: &std::ffi::OsString| argument.to_string_lossy().chars().any(|c| classify(c).is_some());
    if json || arguments.iter().any(hidden) {
        let text = error.render().to_string();
        let (message, hint) = text.split_once("\n\n").unwrap_or((&text, ""));
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let message = words(message.strip_prefix("error: ").unwrap_or(message));
        return Failure::usage("USAGE", message, words(hint)).report(&mut Out::new(json));
    }
    let _ = error.print();
    ExitCode::from(2)
}

/// What to do, in this program's words, where the library's own hint speaks to hosts.
fn hint(error: &Error) -> Option<&'static str> {
    Some(match error.code() {
        "BUSY" => "Nothing was changed. Call again, or wait longer: --wait 30s.",
        "ROLLED_BACK" => {
            "If it was put back on purpose: countersign accept-restore --as NAME, then reopen every host. Otherwise keep the file as evidence."
        }
        "CORRUPT" | "UNSUPPORTED" => {
            "Nothing was changed or run. `countersign doctor` examines the file and says what to do."
        }
        "CLOCK_WENT_BACK" => {
            "Nothing was changed. Correct the clock of this machine (`countersign doctor` shows it), then call again."
        }
        "UNKNOWN_TOKEN" => "Give a token in full, as `countersign pending`, `executing` or `audit search` shows it.",
        "NOT_EXECUTING" => "Nothing is left to settle: `countersign show TOKEN` says what became of it.",
        "ALREADY_EXECUTING" => {
            "`countersign executing` shows its owner. Alive: wait. Dead: recover, then settle. Unknown: make sure that it is gone, then mark-interrupted."
        }
        "STALE_CLAIM" => "`countersign executing` shows the attempt that stands.",
        "APPROVAL_MISMATCH" => "Read the card again (`countersign show TOKEN`) and decide on the seal that it shows.",
        "PLAN_EXPIRED" => "The agent has to propose it again.",
        "PLAN_USED" => "It was decided and used: `countersign show TOKEN` says how it ended.",
        "PLAN_REJECTED" => {
            "It stays rejected. lift-rejection frees later plans of the same payload; the agent then proposes it again."
        }
        _ => return None,
    })
}
