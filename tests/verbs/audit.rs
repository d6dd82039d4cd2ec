//! The audit as operators read it: query, history, head, verify of a whole file.

use std::str::FromStr as _;

use countersign::{AuditQuery, Head, State};

use crate::common::world::{START_MS, World, code, payload, stored};

fn busy() -> World {
    let world = World::new();
    let first = world.approved(&payload(1));
    world.advance(1_000);
    world.claim(&first).confirm_executed(&1).unwrap();
    world.ended(State::Rejected, &payload(2));
    world.caller("Agent-B").consume(stored(&first)).unwrap_err();
    world.advance(1_000);
    world.operator().record_host_event(None, "note", "").unwrap();
    world
}

fn seqs(world: &World, query: AuditQuery) -> Vec<i64> {
    world.operator().audit().query(&query).unwrap().into_iter().map(|row| row.seq).collect()
}

#[test]
fn a_query_gives_the_rows_for_which_all_conditions_hold() {
    let world = busy();
    let all = world.operator().audit().query(&AuditQuery::new()).unwrap();
    assert_eq!(all.iter().map(|row| row.seq).collect::<Vec<_>>(), (1..=all.len() as i64).collect::<Vec<_>>());
    let count = |query: AuditQuery| world.operator().audit().query(&query).unwrap().len();
    let token = all[1].plan_token.clone().unwrap();
    assert_eq!(count(AuditQuery::new().plan(&token)), 5);
    assert_eq!(count(AuditQuery::new().plan(&token).event("refused")), 1);
    assert_eq!(count(AuditQuery::new().code("UNKNOWN_TOKEN")), 1);
    assert_eq!(count(AuditQuery::new().tool("write")), 6);
    assert_eq!(count(AuditQuery::new().tool("WRITE")), 0);
    assert_eq!(count(AuditQuery::new().caller("AGENT-0")), 6, "callers have no case");
    assert_eq!(count(AuditQuery::new().plan("x".repeat(1_000_000))), 0);
    assert_eq!(count(AuditQuery::new().event("' OR 1=1 --")), 0);
    let last = all.len() as i64;
    assert_eq!(seqs(&world, AuditQuery::new().newest_first().limit(2)), [last, last - 1]);
    assert_eq!(seqs(&world, AuditQuery::new().after(2).before(5)), [3, 4]);
    assert_eq!(seqs(&world, AuditQuery::new().limit(0)), [0; 0]);
    let at = |ms| chrono::DateTime::from_timestamp_millis(START_MS + ms).unwrap();
    assert_eq!(count(AuditQuery::new().until(at(1_000))), 3);
    assert_eq!(count(AuditQuery::new().since(at(2_000))), 1);
    assert_eq!(count(AuditQuery::new().since(at(1_000)).until(at(2_000))), all.len() - 4);
}

#[test]
fn every_row_carries_who_what_and_where() {
    let world = busy();
    for row in world.operator().audit().query(&AuditQuery::new()).unwrap() {
        assert_eq!(row.instance_id, world.gate.instance_id());
        assert_eq!(row.channel, "library");
        assert!(!row.actor.is_empty());
        assert_eq!(row.computed_hash(), row.hash);
        assert_eq!(row.plan_token.is_some(), !matches!(row.event.as_str(), "store_created" | "host:note"));
    }
}

#[test]
fn the_head_is_the_newest_row_and_has_a_text_form() {
    let world = busy();
    let head = world.operator().audit().head().unwrap();
    let last = world.operator().audit().query(&AuditQuery::new().newest_first().limit(1)).unwrap().remove(0);
    assert_eq!((head.seq, &head.hash), (last.seq, &last.hash));
    assert_eq!(Head::from_str(&format!(" {head}\n")).unwrap(), head);
    for wrong in ["", "a:b:c", "::", &format!("{head}:1"), &head.to_string().replace(':', "-")] {
        assert!(Head::from_str(wrong).unwrap_err().is_invalid_input(), "{wrong}");
    }
    let first = world.operator().audit().query(&AuditQuery::new().limit(1)).unwrap().remove(0);
    assert_eq!((first.event.as_str(), first.detail.as_deref()), ("store_created", Some(head.store_id.as_str())));
    assert_eq!(first.prev_hash, "0".repeat(64));
}

#[test]
fn verify_says_what_it_walked_and_whether_the_tail_was_checked() {
    let world = busy();
    let head = world.operator().audit().head().unwrap();
    let report = world.operator().audit().verify(None).unwrap();
    assert!(report.is_intact() && !report.tail_checked);
    assert_eq!((report.rows, report.plans), (head.seq as u64, 2));
    assert_eq!(report.head, Some(head.clone()));
    world.free(&payload(9));
    let report = world.operator().audit().verify(Some(&head)).unwrap();
    assert!(report.is_intact() && report.tail_checked, "an older head is a prefix");
    let mut told = Vec::new();
    world.operator().audit().verify_with(None, &mut |done, of| told.push((done, of))).unwrap();
    assert_eq!(told.last().unwrap().0, told.last().unwrap().1);
}

#[test]
fn history_is_one_plans_rows_and_a_read() {
    let world = busy();
    let created = world.gated(&payload(5));
    world.ada().approve(&created.plan_token, &created.seal).unwrap();
    world.rows();
    let events: Vec<_> =
        world.operator().history(&created.plan_token).unwrap().into_iter().map(|row| row.event).collect();
    assert_eq!(events, ["awaiting_approval", "approved"]);
    assert_eq!(code(world.operator().history("nope")), "UNKNOWN_TOKEN");
    assert_eq!(world.events(), [""; 0]);
}
