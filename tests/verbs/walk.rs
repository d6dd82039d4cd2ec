//! The verify walk reads in pieces, each in a snapshot of its own: what others do between two of them is no difference,
//! and hides none.

use std::time::Duration;

use countersign::{Approval, NewPlan, Redeem, VerifyReport};
use rusqlite::Connection;

use crate::common::world::{World, never_issued, payload};

/// More than one piece of the walk, most of it about settled plans with an approval each.
fn long() -> World {
    let world = World::new();
    for number in 0..600 {
        let created = world.approved(&payload(number));
        world.agent().consume(Redeem::stored(&created.plan_token, "write")).unwrap();
    }
    world.advance(1_000);
    world
}

/// Walks, and does this once, after the first piece.
fn verify(world: &World, meanwhile: impl FnOnce()) -> VerifyReport {
    let mut meanwhile = Some(meanwhile);
    let mut pieces = 0;
    let operator = world.operator();
    let report = operator.audit().verify_with(None, &mut |_, _| {
        pieces += 1;
        if let Some(act) = meanwhile.take() {
            act();
        }
    });
    assert!(pieces > 1, "all of it was one piece");
    report.unwrap()
}

fn plant(sql: &Connection) {
    let planted = "INSERT INTO plans (rowid, plan_token, tool, caller, state, gated, approvals_needed, fingerprint, seal, \
                   created_at, expires_at, payload) SELECT 1, ?1, tool, caller, 'previewed', 0, 1, fingerprint, seal, \
                   created_at, expires_at, payload FROM plans ORDER BY rowid DESC LIMIT 1";
    assert_eq!(sql.execute(planted, [never_issued()]).unwrap(), 1);
}

#[test]
fn a_purge_between_two_pieces_is_no_difference() {
    let world = long();
    let report = verify(&world, || assert_eq!(world.operator().purge(Duration::ZERO).unwrap(), 600));
    assert_eq!(report.difference, None);
    assert_eq!(report.plans, 600);
    world.assert_intact();
}

#[test]
fn plans_that_take_the_place_of_purged_ones_between_two_pieces_are_no_difference() {
    let world = long();
    let report = verify(&world, || {
        world.operator().purge(Duration::ZERO).unwrap();
        let again = world.approved(&payload(1));
        world.agent().consume(Redeem::stored(&again.plan_token, "write")).unwrap();
        world.approved(&payload(2));
        assert_eq!(world.sql().query_row("SELECT min(rowid) FROM plans", [], |row| row.get(0)), Ok(1));
    });
    assert_eq!(report.difference, None);
    assert_eq!(report.plans, 602);
    world.assert_intact();
}

#[test]
fn what_plans_do_between_two_pieces_is_no_difference() {
    let world = World::new();
    let open: Vec<_> = (0..50).map(|number| world.approved(&payload(number))).collect();
    for number in 100..700 {
        let created = world.approved(&payload(number));
        world.agent().consume(Redeem::stored(&created.plan_token, "write")).unwrap();
    }
    let report = verify(&world, || {
        for created in &open {
            world.agent().consume(Redeem::stored(&created.plan_token, "write")).unwrap();
        }
        world.agent().create(NewPlan::new("write", &payload(800), Approval::required())).unwrap();
    });
    assert_eq!(report.difference, None);
    assert_eq!(report.plans, 651);
}

#[test]
fn a_plan_that_is_planted_behind_the_walk_is_named() {
    let world = long();
    world.sql().execute_batch("UPDATE plans SET settled_at = 1 WHERE rowid = 1").unwrap();
    world.operator().purge(Duration::from_secs(3_600)).unwrap();
    let found = verify(&world, || plant(&world.sql())).difference.expect("a difference");
    assert!(found.what.contains("no audit row accounts for"), "{found}");
}

#[test]
fn a_purge_makes_no_room_for_a_planted_plan() {
    let world = long();
    world.sql().execute_batch("UPDATE plans SET settled_at = 1 WHERE rowid = 1").unwrap();
    // One row goes that the walk has met, and one comes.
    let found = verify(&world, || {
        assert_eq!(world.operator().purge(Duration::from_secs(3_600)).unwrap(), 1);
        plant(&world.sql());
    });
    let found = found.difference.expect("a difference");
    assert!(found.what.contains("no audit row accounts for"), "{found}");
}

#[test]
fn a_file_whose_rows_lost_their_order_is_whole() {
    let world = long();
    // What a dump by another order, read into a new file, makes of the row numbers.
    for table in ["plans", "tombstones"] {
        let sql = world.sql();
        sql.execute_batch(&format!("UPDATE {table} SET rowid = -rowid")).unwrap();
    }
    world.assert_intact();
}
