//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::{Parser, Subcommand, ValueEnum};
use countersign::Head;

use crate::when;

const EXAMPLES: &str = "\
Examples:
  export COUNTERSIGN_DB=/srv/shop/gate.db
  countersign pending                          what waits for a decision
  countersign approve TOKEN --as ada           read the card, answer yes
  countersign reject TOKEN --reason 'wrong table' --as ada
  countersign doctor                           after a crash, first
  countersign recover && countersign executing what a dead host left
  countersign settle TOKEN --outcome done --result '{\"rows\":12}' --as olga
  countersign audit search --tool update_prices --since 2d
  countersign audit export --format csv > audit.csv

Exit codes: 0 done; 1 refused (the code says why); 2 wrong usage; 3 storage, or a check that failed.

Whoever can write the database file can approve. This program asks for a name and cannot check it; it \
records the operating system's user beside that name (channel `cli:USER`).

Keep an agent from it: run the agent as another user than the file's owner (only the owner can read and write \
the file), give it no shell as that user, and let it reach the gate only through the host's tools. The question \
at the terminal is no boundary for a program that can open a pseudo-terminal.";

/// Decide, recover and audit on the database of a countersign gate, while its hosts run.
#[derive(Parser)]
#[command(name = "countersign", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Args {
    /// The database file; it must exist, a host creates it
    #[arg(long, global = true, env = "COUNTERSIGN_DB", hide_env_values = true, value_name = "FILE")]
    pub(crate) db: Option<PathBuf>,
    /// Print JSON (one document; one a line for `audit tail` and `audit export`)
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How long to wait for other writers
    #[arg(long, global = true, value_name = "TIME", default_value = "5s", value_parser = when::duration)]
    pub(crate) wait: Duration,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// List the plans that wait for a decision, soonest to expire first
    Pending {
        /// At most so many
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Show one plan: its card, its payload and its timeline
    Show {
        /// The plan's token
        token: String,
    },
    /// Approve a plan, after its whole card was shown
    Approve(Decide),
    /// Reject a plan, after its whole card was shown
    Reject(Reject),
    /// Forget a rejection, so that later plans of the same payload are not gated by it
    LiftRejection(Lift),
    /// List what was claimed and not settled, with the state of its owner
    Executing {
        /// At most so many
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Mark what dead hosts left as uncertain, and forget hosts that left nothing
    Recover {
        /// Your name [default: the operating system's user]
        #[arg(long = "as", value_name = "NAME")]
        by: Option<String>,
    },
    /// Record what you verified about a claimed plan
    #[command(after_help = "Look first whether the side effect happened: at its target, under the plan token.\n\n\
        Examples:\n  countersign settle TOKEN --outcome done --result '{\"rows\":12}' --as olga\n  \
        countersign settle TOKEN --outcome not-done --as olga     it may run again\n  \
        countersign settle TOKEN --outcome failed --error 'undone by hand' --as olga")]
    Settle(Settle),
    /// Mark a claim uncertain whose host you made sure is gone
    MarkInterrupted {
        /// The plan's token
        token: String,
        /// Which claim, as `executing` shows it
        #[arg(long)]
        attempt: u32,
        /// Your name
        #[arg(long = "as", value_name = "NAME")]
        by: String,
    },
    /// Accept that the file is a backup or an older copy: open plans expire, executing ones become uncertain
    AcceptRestore {
        /// Your name
        #[arg(long = "as", value_name = "NAME")]
        by: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Read and check the audit
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Record that unused plans past their time have expired
    Sweep {
        /// Your name [default: the operating system's user]
        #[arg(long = "as", value_name = "NAME")]
        by: Option<String>,
    },
    /// Delete plans that were settled long ago; their tombstones and audit rows stay
    Purge {
        /// Settled longer ago than this, as 90d or 12h
        #[arg(long, value_name = "TIME", value_parser = when::duration)]
        older_than: Duration,
        /// Your name [default: the operating system's user]
        #[arg(long = "as", value_name = "NAME")]
        by: Option<String>,
    },
    /// Count plans, decisions and refusals
    Stats,
    /// Examine the file and all that a gate relies on; changes nothing
    #[command(after_help = "Exit code 3 when a check failed; warnings leave 0.")]
    Doctor {
        /// A head that `audit head` printed earlier: then a cut tail is found too
        #[arg(long, value_name = "STORE:SEQ:HASH")]
        head: Option<Head>,
    },
    /// Serve the page on which people decide, on this machine alone, until interrupted
    #[command(after_help = "Each reviewer's link is a secret: it is printed to a terminal alone, and lies in \
        FILE.owners/, readable by this user only.\nExample: countersign serve --reviewer ada --reviewer bob")]
    Serve {
        /// Who decides; once for each
        #[arg(long = "reviewer", value_name = "NAME", required = true)]
        reviewers: Vec<String>,
        /// The port on 127.0.0.1; 0: the system chooses
        #[arg(long, default_value_t = 0)]
        port: u16,
    },
    /// Copy the database to a new file, while hosts run; the copy is marked as a backup
    Backup {
        /// The new file
        file: PathBuf,
    },
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

#[derive(Parser)]
pub(crate) struct Decide {
    /// The plan's token
    pub(crate) token: String,
    /// Your name
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) by: String,
    /// The seal of the card that you read, in full: skips the question, not the card
    #[arg(long, value_parser = seal)]
    pub(crate) seal: Option<String>,
}

#[derive(Parser)]
pub(crate) struct Reject {
    #[command(flatten)]
    pub(crate) decision: Decide,
    /// Why: the agent is told
    #[arg(long)]
    pub(crate) reason: Option<String>,
}

#[derive(Parser)]
pub(crate) struct Lift {
    #[command(flatten)]
    pub(crate) decision: Decide,
    /// Why
    #[arg(long)]
    pub(crate) reason: String,
}

#[derive(Parser)]
pub(crate) struct Settle {
    /// The plan's token
    pub(crate) token: String,
    /// What you verified
    #[arg(long)]
    pub(crate) outcome: Verified,
    /// What the side effect answered, as JSON (with done)
    #[arg(long, value_name = "JSON", value_parser = json)]
    pub(crate) result: Option<serde_json::Value>,
    /// What went wrong (with failed)
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
    /// Your name
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) by: String,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verified {
    /// It happened
    Done,
    /// It did not happen: the plan may run again
    NotDone,
    /// It did not succeed and must not run again
    Failed,
}

#[derive(Subcommand)]
pub(crate) enum AuditCommand {
    /// Print the newest rows, and with -f each further one
    Tail {
        /// How many rows
        #[arg(short = 'n', long, default_value_t = 20)]
        lines: u32,
        /// Go on until interrupted
        #[arg(short, long)]
        follow: bool,
    },
    /// Find rows: all conditions hold
    Search {
        #[command(flatten)]
        filter: Filter,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Newest first
        #[arg(long)]
        newest_first: bool,
    },
    /// Walk the hash chain, replay it, and compare it with the plans
    #[command(
        after_help = "Without --head a tail that was cut off is not found: keep what `audit head` prints outside \
        this machine.\nExit code 3 when something differs."
    )]
    Verify {
        /// A head that `audit head` printed earlier
        #[arg(long, value_name = "STORE:SEQ:HASH")]
        head: Option<Head>,
    },
    /// Print where the audit stands, to be kept outside this machine
    Head,
    /// Print all rows, or those that a search would find
    Export {
        /// One JSON object a line, or CSV
        #[arg(long)]
        format: Format,
        #[command(flatten)]
        filter: Filter,
    },
    /// Switch the indexes for heavy auditing on or off
    #[command(after_help = "Each transition of every host pays for them. On millions of rows the making takes some \
        seconds an index, during which other writers wait.")]
    Index {
        /// on or off
        switch: Switch,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One JSON object a line
    Jsonl,
    /// Comma-separated, with a header; no cell is a formula
    Csv,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// Make them
    On,
    /// Drop them
    Off,
}

#[derive(Parser, Default)]
pub(crate) struct Filter {
    /// Rows of this plan
    #[arg(long, value_name = "TOKEN")]
    pub(crate) plan: Option<String>,
    /// Rows about this tool
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// Rows about this caller's plans
    #[arg(long)]
    pub(crate) caller: Option<String>,
    /// Rows with this event
    #[arg(long)]
    pub(crate) event: Option<String>,
    /// Rows with this code
    #[arg(long)]
    pub(crate) code: Option<String>,
    /// At or after: 2026-03-01, 2026-03-01T12:00:00Z, or 2d for two days ago
    #[arg(long, value_name = "TIME", value_parser = when::time)]
    pub(crate) since: Option<DateTime<Utc>>,
    /// Before
    #[arg(long, value_name = "TIME", value_parser = when::time)]
    pub(crate) until: Option<DateTime<Utc>>,
}

fn seal(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return Ok(text.to_owned());
    }
    Err("give the seal in full: the 64 hex digits that the card shows".to_owned())
}

fn json(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text).map_err(|error| format!("this is no JSON ({error}): quote text, as '\"done by hand\"'"))
}
