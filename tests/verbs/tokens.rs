//! Every verb that names a token, with tokens that are nobody's, malformed, or another caller's.

use countersign::{Error, ExecuteError, Gate, Outcome, Redeem, State};

use crate::common::world::{World, never_issued, payload};

/// Whose tokens a verb may name.
#[derive(Clone, Copy, PartialEq)]
enum Whose {
    Own,
    Any,
}

struct Verb {
    name: &'static str,
    whose: Whose,
    /// A read refuses without a row.
    writes: bool,
    call: fn(&Gate, &str, &str) -> Result<(), Error>,
}

/// `caller` is the agent that asks; reviewers and operators are themselves.
const VERBS: [Verb; 16] = [
    Verb {
        name: "agent.plan",
        whose: Whose::Own,
        writes: false,
        call: |gate, caller, token| gate.agent(caller)?.plan(token).map(drop),
    },
    Verb {
        name: "begin_execute",
        whose: Whose::Own,
        writes: true,
        call: |gate, caller, token| gate.agent(caller)?.begin_execute(Redeem::stored(token, "write")).map(drop),
    },
    Verb {
        name: "execute",
        whose: Whose::Own,
        writes: true,
        call: |gate, caller, token| {
            let answer = gate.agent(caller)?.execute(Redeem::stored(token, "write"), |_| -> Result<u8, _> {
                panic!("the effect of a refused plan ran")
            });
            match answer {
                Err(ExecuteError::Gate(error)) => Err(error),
                other => panic!("{other:?}"),
            }
        },
    },
    Verb {
        name: "consume",
        whose: Whose::Own,
        writes: true,
        call: |gate, caller, token| gate.agent(caller)?.consume(Redeem::stored(token, "write")).map(drop),
    },
    Verb {
        name: "adopt",
        whose: Whose::Own,
        writes: true,
        call: |gate, caller, token| gate.agent(caller)?.adopt(token, 1, &never_issued()).map(drop),
    },
    Verb {
        name: "agent.record_host_event",
        whose: Whose::Own,
        writes: true,
        call: |gate, caller, token| gate.agent(caller)?.record_host_event(Some(token), "seen", "detail"),
    },
    Verb {
        name: "reviewer.plan",
        whose: Whose::Any,
        writes: false,
        call: |gate, _, token| gate.reviewer("ada")?.plan(token).map(drop),
    },
    Verb {
        name: "card",
        whose: Whose::Any,
        writes: false,
        call: |gate, _, token| gate.reviewer("ada")?.card(token).map(drop),
    },
    Verb {
        name: "approve",
        whose: Whose::Any,
        writes: true,
        call: |gate, _, token| gate.reviewer("ada")?.approve(token, "0".repeat(64)).map(drop),
    },
    Verb {
        name: "reject",
        whose: Whose::Any,
        writes: true,
        call: |gate, _, token| gate.reviewer("ada")?.reject(token, Some("no")).map(drop),
    },
    Verb {
        name: "reject_sealed",
        whose: Whose::Any,
        writes: true,
        call: |gate, _, token| gate.reviewer("ada")?.reject_sealed(token, "0".repeat(64), None).map(drop),
    },
    Verb {
        name: "operator.plan",
        whose: Whose::Any,
        writes: false,
        call: |gate, _, token| gate.operator("olga")?.plan(token).map(drop),
    },
    Verb {
        name: "history",
        whose: Whose::Any,
        writes: false,
        call: |gate, _, token| gate.operator("olga")?.history(token).map(drop),
    },
    Verb {
        name: "reconcile",
        whose: Whose::Any,
        writes: true,
        call: |gate, _, token| gate.operator("olga")?.reconcile(token).map(drop),
    },
    Verb {
        name: "settle",
        whose: Whose::Any,
        writes: true,
        call: |gate, _, token| gate.operator("olga")?.settle(token, &Outcome::NotDone).map(drop),
    },
    Verb {
        name: "mark_interrupted_as_uncertain",
        whose: Whose::Any,
        writes: true,
        call: |gate, _, token| gate.operator("olga")?.mark_interrupted_as_uncertain(token, 1).map(drop),
    },
];

/// Asks, and checks the answer and the row that it left. `kept`: the token stands in that row.
fn assert_unknown(world: &World, verb: &Verb, caller: &str, token: &str, kept: bool) {
    let shown: String = token.chars().take(60).collect();
    let error = (verb.call)(&world.gate, caller, token).unwrap_err();
    assert_eq!(error.code(), "UNKNOWN_TOKEN", "{} {shown:?}", verb.name);
    let refusal = error.refusal().unwrap();
    assert!(refusal.plan().is_none() && refusal.reason().is_none(), "{}: the answer tells of a plan", verb.name);
    let rows = world.rows();
    if !verb.writes {
        assert_eq!(rows, [], "{}: a read leaves no row", verb.name);
        return;
    }
    let [row] = &rows[..] else { panic!("{} {shown:?} left {} rows", verb.name, rows.len()) };
    assert_eq!((row.event.as_str(), row.code.as_deref()), ("refused", Some("UNKNOWN_TOKEN")), "{}", verb.name);
    assert_eq!(row.plan_token.as_deref(), kept.then_some(token), "{} {shown:?}", verb.name);
    assert_eq!((&row.from_state, &row.to_state), (&None, &None), "{}", verb.name);
    let whole = serde_json::to_string(row).unwrap();
    assert!(whole.len() < 1_000, "{}: a row of {} bytes", verb.name, whole.len());
    if !kept && !token.is_empty() {
        assert!(!whole.contains(token), "{}: {shown:?} was copied", verb.name);
    }
}

#[test]
fn a_token_that_was_never_issued_is_unknown_to_every_verb_and_stands_in_the_row() {
    let world = World::new();
    world.free(&payload(1));
    world.rows();
    for verb in &VERBS {
        assert_unknown(&world, verb, "agent-0", &never_issued(), true);
    }
    world.assert_intact();
}

#[test]
fn a_malformed_token_is_unknown_to_every_verb_and_is_not_copied() {
    let world = World::new();
    let token = world.free(&payload(1)).plan_token;
    world.rows();
    let malformed = [
        String::new(),
        " ".to_owned(),
        token.as_str().to_ascii_uppercase(),
        format!(" {token}"),
        format!("{token}\n"),
        token.as_str()[..47].to_owned(),
        format!("{token}0"),
        "g".repeat(48),
        "\u{0430}".repeat(24),
        "'; DROP TABLE plans; --".to_owned(),
        "' OR '1'='1".to_owned(),
        "%".repeat(48),
        "\0".repeat(48),
        "a".repeat(10 * 1024 * 1024),
    ];
    for verb in &VERBS {
        for token in &malformed {
            assert_unknown(&world, verb, "agent-0", token, false);
        }
    }
    assert_eq!(world.operator().plan(&token).unwrap().state, State::Previewed);
    world.assert_intact();
}

#[test]
fn another_callers_token_is_unknown_to_an_agents_verbs_in_every_state() {
    let world = World::new();
    let executing = world.free(&payload(5));
    let claim = world.claim(&executing);
    let mut plans = vec![world.free(&payload(1)), world.gated(&payload(2)), world.approved(&payload(3)), executing];
    for (n, state) in [State::Executed, State::Failed, State::Rejected].into_iter().enumerate() {
        plans.push(world.ended(state, &payload(10 + n as u64)));
    }
    let before: Vec<_> = plans.iter().map(|plan| world.state(plan)).collect();
    world.rows();
    for verb in VERBS.iter().filter(|verb| verb.whose == Whose::Own) {
        for plan in &plans {
            assert_unknown(&world, verb, "agent-1", plan.plan_token.as_str(), true);
        }
    }
    let adopted = world.caller("agent-1").adopt(claim.plan_token(), claim.attempt(), claim.claim_token());
    assert_eq!(adopted.unwrap_err().code(), "UNKNOWN_TOKEN");
    assert_eq!(plans.iter().map(|plan| world.state(plan)).collect::<Vec<_>>(), before);
    // After a purge another caller learns no more than before.
    world.advance(1);
    world.operator().purge(std::time::Duration::ZERO).unwrap();
    world.rows();
    for verb in VERBS.iter().filter(|verb| verb.whose == Whose::Own) {
        for plan in &plans[4..] {
            assert_unknown(&world, verb, "agent-1", plan.plan_token.as_str(), true);
        }
    }
    world.assert_intact();
}

#[test]
fn a_caller_is_the_same_without_ascii_case() {
    let world = World::new();
    let created =
        world.caller("Agent-X").create(countersign::NewPlan::new("write", &1, countersign::Approval::NotNeeded));
    let token = created.unwrap().plan_token;
    assert_eq!(world.caller("aGENT-x").plan(&token).unwrap().caller, "Agent-X");
    world.caller("AGENT-X").record_host_event(Some(token.as_str()), "seen", "").unwrap();
    world.caller("agent-x").consume(Redeem::stored(&token, "write")).unwrap();
    assert_eq!(world.operator().plan(&token).unwrap().state, State::Executed);
    world.assert_intact();
}

#[test]
fn a_claim_token_that_is_malformed_or_huge_adopts_nothing() {
    let world = World::new();
    let created = world.free(&payload(1));
    let claim = world.claim(&created);
    for wrong in ["", "' OR 1=1 --", &claim.claim_token().to_ascii_uppercase(), &"a".repeat(10 * 1024 * 1024)] {
        let error = world.agent().adopt(&created.plan_token, 1, wrong).unwrap_err();
        assert_eq!(error.code(), "STALE_CLAIM");
        let rows = world.rows();
        assert!(serde_json::to_string(rows.last().unwrap()).unwrap().len() < 2_000);
    }
    world.assert_intact();
}
