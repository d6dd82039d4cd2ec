//! The gates of design section 3, pure: a row, what was presented, and the time; the answer is the first refusal.

use crate::lifecycle::State;
use crate::plan::PreparedRedeem;
use crate::refusal::RefusalCode as Code;
use crate::store::rows::PlanRow;

/// How far a clock may stand behind a plan's newest time, in milliseconds.
pub(crate) const CLOCK_SLACK_MS: i64 = 2_000;

/// The gates of begin_execute, in the order of the contract. `None`: the plan may be claimed.
pub(crate) fn begin_execute(row: &PlanRow, redeem: &PreparedRedeem, now: i64) -> Option<Code> {
    match row.state_at(now) {
        State::Rejected => return Some(Code::PlanRejected),
        State::Executed | State::Failed => return Some(Code::PlanUsed),
        State::Executing | State::Uncertain => return Some(Code::AlreadyExecuting),
        State::Expired => return Some(Code::PlanExpired),
        State::Previewed | State::AwaitingApproval | State::Approved => {}
    }
    let other_payload = redeem.fingerprint.is_some_and(|given| given.to_string() != row.fingerprint);
    if redeem.tool != row.tool || other_payload {
        return Some(Code::PlanMismatch);
    }
    if row.data_digest.is_some() && row.data_digest != redeem.data_digest {
        return Some(Code::DataDigestMismatch);
    }
    (row.gated && (row.state != State::Approved || !row.quorum_complete())).then_some(Code::AwaitingApproval)
}

/// What an approve answers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Refuse(Code),
    /// Nothing changes.
    Already,
    Go,
}

/// The gates of approve: rejected, used, expired, another seal, no-op, self approval.
pub(crate) fn approve(row: &PlanRow, seal: &str, reviewer: &str, voted: bool, now: i64) -> Verdict {
    match row.state_at(now) {
        State::Rejected => return Verdict::Refuse(Code::PlanRejected),
        State::Executed | State::Failed => return Verdict::Refuse(Code::PlanUsed),
        State::Expired => return Verdict::Refuse(Code::PlanExpired),
        _ => {}
    }
    if seal != row.seal {
        return Verdict::Refuse(Code::ApprovalMismatch);
    }
    if row.state != State::AwaitingApproval || voted {
        return Verdict::Already;
    }
    if reviewer.eq_ignore_ascii_case(&row.caller) {
        return Verdict::Refuse(Code::SelfApproval);
    }
    Verdict::Go
}

/// The gates of reject: used, executing or uncertain, expired, another seal where one is given, no-op.
pub(crate) fn reject(row: &PlanRow, seal: Option<&str>, now: i64) -> Verdict {
    match row.state_at(now) {
        State::Executed | State::Failed => return Verdict::Refuse(Code::PlanUsed),
        State::Executing | State::Uncertain => return Verdict::Refuse(Code::AlreadyExecuting),
        State::Expired => return Verdict::Refuse(Code::PlanExpired),
        _ => {}
    }
    if seal.is_some_and(|seal| seal != row.seal) {
        return Verdict::Refuse(Code::ApprovalMismatch);
    }
    if row.state == State::Rejected { Verdict::Already } else { Verdict::Go }
}

/// What a claim's holder reports, or an adopt asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Executed,
    Failed,
    Uncertain,
    Adopt,
}

/// The fence: who may report on a plan. A repeat of the same report by the same claim changes nothing.
pub(crate) fn report(row: &PlanRow, attempt: u32, claim_token: &str, report: Report) -> Verdict {
    let same_claim = row.attempt == attempt && row.claim_token.as_deref() == Some(claim_token);
    match row.state {
        State::Executing | State::Uncertain if !same_claim => Verdict::Refuse(Code::StaleClaim),
        State::Uncertain if report == Report::Uncertain => Verdict::Already,
        State::Executing | State::Uncertain => Verdict::Go,
        State::Executed if report == Report::Executed && same_claim => Verdict::Already,
        // Of the states below, a claim that is still known led to them by confirm_failed alone: a settled one is
        // forgotten.
        State::Previewed | State::AwaitingApproval | State::Approved | State::Rejected | State::Expired
            if report == Report::Failed && same_claim =>
        {
            Verdict::Already
        }
        _ => Verdict::Refuse(Code::NotExecuting),
    }
}

/// How a read answers about a plan whose row was purged.
pub(crate) fn purged(state: State) -> Code {
    match state {
        State::Rejected => Code::PlanRejected,
        State::Expired => Code::PlanExpired,
        _ => Code::PlanUsed,
    }
}
