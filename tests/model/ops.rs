//! The operations, and how they are drawn. Plans and claims are picked from those that exist when the operation runs.

use std::fmt;

use proptest::prelude::*;

/// Picks one of those that exist: mostly a recent one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick(pub(crate) u8);

impl Pick {
    pub(crate) fn of(self, count: usize) -> Option<usize> {
        let recent = if self.0 < 160 { count.min(5) } else { count };
        (recent > 0).then(|| count - 1 - usize::from(self.0) % recent)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Seal {
    None,
    Right,
    Wrong,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Presented {
    Stored,
    Same,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Report {
    Executed,
    Failed,
    Uncertain,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verified {
    Done,
    NotDone,
    Failed,
    Unknown,
}

/// `gate`: 0 or 1, two instances on one file. Names are spelled in another case through the second one.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create {
        gate: usize,
        caller: usize,
        tool: usize,
        payload: usize,
        quorum: u32,
        digest: Option<usize>,
        extra: bool,
        key: Option<usize>,
        ttl_s: u64,
    },
    Begin {
        gate: usize,
        own: bool,
        plan: Pick,
        payload: Presented,
        tool: bool,
        digest: Seal,
        consume: bool,
    },
    Approve {
        gate: usize,
        reviewer: usize,
        plan: Pick,
        seal: bool,
    },
    Reject {
        gate: usize,
        reviewer: usize,
        plan: Pick,
        seal: Seal,
        reason: Option<u8>,
    },
    Lift {
        gate: usize,
        tool: usize,
        payload: usize,
    },
    Confirm {
        claim: Pick,
        report: Report,
    },
    Check {
        claim: Pick,
    },
    DropClaim {
        claim: Pick,
    },
    Adopt {
        gate: usize,
        own: bool,
        plan: Pick,
        attempt: i8,
        token: bool,
    },
    Settle {
        gate: usize,
        plan: Pick,
        outcome: Verified,
    },
    Mark {
        gate: usize,
        plan: Pick,
        attempt: i8,
    },
    Recover {
        gate: usize,
    },
    Sweep {
        gate: usize,
    },
    Purge {
        gate: usize,
        age_ms: u64,
    },
    Host {
        gate: usize,
        own: bool,
        plan: Option<Pick>,
    },
    Forward {
        ms: u64,
    },
    Back {
        ms: i64,
    },
    Reopen {
        gate: usize,
    },
}

/// The whole input of a run, printed as a list of operations.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) refuse_rejected: bool,
    pub(crate) max_pending: u64,
    pub(crate) ops: Vec<Op>,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "refuse_rejected: {}, max_pending: {}", self.refuse_rejected, self.max_pending)?;
        for (n, op) in self.ops.iter().enumerate() {
            writeln!(f, "{n:4}  {op:?}")?;
        }
        Ok(())
    }
}

fn pick() -> impl Strategy<Value = Pick> {
    any::<u8>().prop_map(Pick)
}

/// True nine times out of ten.
fn mostly() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.9)
}

/// Few tools and payloads, one of each far more often: most plans have twins.
fn tool() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(0_usize), 1 => Just(1)]
}

fn payload() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(0_usize), 2 => Just(1), 1 => Just(2)]
}

fn create() -> impl Strategy<Value = Op> {
    let key = prop::option::weighted(0.4, 0..3_usize);
    let digest = prop::option::weighted(0.25, 0..2_usize);
    let ttl = prop_oneof![3 => Just(900_u64), 1 => Just(60)];
    (0..2_usize, 0..3_usize, tool(), payload(), 0..3_u32, digest, prop::bool::weighted(0.15), key, ttl).prop_map(
        |(gate, caller, tool, payload, quorum, digest, extra, key, ttl_s)| Op::Create {
            gate,
            caller,
            tool,
            payload,
            quorum,
            digest,
            extra,
            key,
            ttl_s,
        },
    )
}

fn begin() -> impl Strategy<Value = Op> {
    let payload = prop_oneof![4 => Just(Presented::Stored), 4 => Just(Presented::Same), 1 => Just(Presented::Other)];
    let digest = prop_oneof![8 => Just(Seal::Right), 1 => Just(Seal::None), 1 => Just(Seal::Wrong)];
    (0..2_usize, mostly(), pick(), payload, mostly(), digest, prop::bool::weighted(0.1)).prop_map(
        |(gate, own, plan, payload, tool, digest, consume)| Op::Begin {
            gate,
            own,
            plan,
            payload,
            tool,
            digest,
            consume,
        },
    )
}

fn decide() -> impl Strategy<Value = Op> {
    let approve = (0..2_usize, 0..3_usize, pick(), mostly()).prop_map(|(gate, reviewer, plan, seal)| Op::Approve {
        gate,
        reviewer,
        plan,
        seal,
    });
    let seal = prop_oneof![3 => Just(Seal::None), 3 => Just(Seal::Right), 1 => Just(Seal::Wrong)];
    let reason = prop::option::of(0..3_u8);
    let reject = (0..2_usize, 0..3_usize, pick(), seal, reason)
        .prop_map(|(gate, reviewer, plan, seal, reason)| Op::Reject { gate, reviewer, plan, seal, reason });
    let lift = (0..2_usize, tool(), payload()).prop_map(|(gate, tool, payload)| Op::Lift { gate, tool, payload });
    prop_oneof![5 => approve, 3 => reject, 2 => lift]
}

fn claim() -> impl Strategy<Value = Op> {
    let report = prop_oneof![3 => Just(Report::Executed), 3 => Just(Report::Failed), 2 => Just(Report::Uncertain)];
    let confirm = (pick(), report).prop_map(|(claim, report)| Op::Confirm { claim, report });
    let check = pick().prop_map(|claim| Op::Check { claim });
    let drop = pick().prop_map(|claim| Op::DropClaim { claim });
    let attempt = prop_oneof![8 => Just(0_i8), 1 => Just(-1), 1 => Just(1)];
    let adopt = (0..2_usize, mostly(), pick(), attempt, mostly())
        .prop_map(|(gate, own, plan, attempt, token)| Op::Adopt { gate, own, plan, attempt, token });
    prop_oneof![8 => confirm, 1 => check, 1 => drop, 2 => adopt]
}

fn operate() -> impl Strategy<Value = Op> {
    let outcome =
        prop_oneof![Just(Verified::Done), Just(Verified::NotDone), Just(Verified::Failed), Just(Verified::Unknown)];
    let settle = (0..2_usize, pick(), outcome).prop_map(|(gate, plan, outcome)| Op::Settle { gate, plan, outcome });
    let attempt = prop_oneof![4 => Just(0_i8), 1 => Just(-1), 1 => Just(1)];
    let mark = (0..2_usize, pick(), attempt).prop_map(|(gate, plan, attempt)| Op::Mark { gate, plan, attempt });
    let host =
        (0..2_usize, mostly(), prop::option::of(pick())).prop_map(|(gate, own, plan)| Op::Host { gate, own, plan });
    let age = prop_oneof![Just(0_u64), Just(1_000), Just(60_000)];
    prop_oneof![
        4 => settle,
        3 => mark,
        2 => host,
        1 => (0..2_usize).prop_map(|gate| Op::Recover { gate }),
        1 => (0..2_usize).prop_map(|gate| Op::Sweep { gate }),
        1 => (0..2_usize, age).prop_map(|(gate, age_ms)| Op::Purge { gate, age_ms }),
        1 => (0..2_usize).prop_map(|gate| Op::Reopen { gate }),
    ]
}

fn time() -> impl Strategy<Value = Op> {
    let forward =
        prop_oneof![4 => Just(1_u64), 2 => Just(900), 2 => Just(30_000), 1 => Just(61_000), 1 => Just(901_000)];
    let back = prop_oneof![Just(1_i64), Just(1_999), Just(2_001), Just(100_000)];
    prop_oneof![5 => forward.prop_map(|ms| Op::Forward { ms }), 1 => back.prop_map(|ms| Op::Back { ms })]
}

/// A long run: every kind of operation, the common ones often.
pub(crate) fn run(longest: usize) -> impl Strategy<Value = Run> {
    let op = prop_oneof![4 => create(), 5 => begin(), 6 => decide(), 6 => claim(), 4 => operate(), 3 => time()];
    let ops = prop::collection::vec(op, 1..=longest);
    (prop::bool::weighted(0.2), prop_oneof![Just(2_u64), Just(100)], ops)
        .prop_map(|(refuse_rejected, max_pending, ops)| Run { refuse_rejected, max_pending, ops })
}
