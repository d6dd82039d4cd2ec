//! Verify names every way in which somebody with write access changed the file beneath the gate.

use countersign::{Approval, Created, Head, NewPlan, State, VerifyReport};
use rusqlite::Connection;
use serde_json::json;

use crate::common::world::{World, never_issued, payload, stored};

struct Scene {
    world: World,
    open: Created,
    half: Created,
    executed: Created,
    rejected: Created,
    head: Head,
}

fn scene() -> Scene {
    let world = World::new();
    let executed = world.approved(&payload(1));
    world.claim(&executed).confirm_executed(&1).unwrap();
    let rejected = world.ended(State::Rejected, &payload(2));
    let gone = world.ended(State::Executed, &payload(3));
    world.advance(1);
    world.sql().execute_batch("UPDATE plans SET settled_at = settled_at + 1000").unwrap();
    world.sql().execute("UPDATE plans SET settled_at = 1 WHERE plan_token = ?1", [gone.plan_token.as_str()]).unwrap();
    assert_eq!(world.operator().purge(std::time::Duration::ZERO).unwrap(), 1);
    let open = world.free(&payload(4));
    let half = world.quorum(&payload(5), 2);
    world.ada().approve(&half.plan_token, &half.seal).unwrap();
    world.agent().record_host_event(Some(open.plan_token.as_str()), "note", "").unwrap();
    world.assert_intact();
    let head = world.operator().audit().head().unwrap();
    Scene { world, open, half, executed, rejected, head }
}

/// Plain SQL with the triggers out of the way, put back afterwards.
fn edit(scene: &Scene, change: impl FnOnce(&Connection)) {
    let sql = scene.world.sql();
    let mut triggers = Vec::new();
    let mut read = sql.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").unwrap();
    let mut rows = read.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        triggers.push((row.get::<_, String>(0).unwrap(), row.get::<_, String>(1).unwrap()));
    }
    drop(rows);
    for (name, _) in &triggers {
        sql.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    change(&sql);
    for (_, create) in &triggers {
        sql.execute_batch(create).unwrap();
    }
}

fn verify(scene: &Scene, head: Option<&Head>) -> VerifyReport {
    scene.world.operator().audit().verify(head).unwrap()
}

/// The edit is found, with and without a head; gives what it is called.
fn named(change: impl Fn(&Scene, &Connection)) -> String {
    let scene = scene();
    edit(&scene, |sql| change(&scene, sql));
    let difference = verify(&scene, None).difference.expect("found without a head");
    assert!(verify(&scene, Some(&scene.head)).difference.is_some(), "found with a head");
    difference.to_string()
}

fn run(sql: &Connection, statement: &str, token: &Created) {
    let changed = sql.execute(statement, [token.plan_token.as_str()]).unwrap();
    assert!(changed > 0, "{statement} changed nothing");
}

#[test]
fn an_edited_audit_row_is_named_whatever_column_it_is() {
    for column in [
        "at = at + 1",
        "plan_token = NULL",
        "event = 'refused'",
        "from_state = 'approved'",
        "to_state = 'expired'",
        "tool = 'other'",
        "caller = 'other'",
        "reason = 'other'",
        "actor = 'mallory'",
        "channel = 'http'",
        "code = 'X'",
        "detail = 'x'",
        "preview_count = 7",
        "fingerprint = 'x'",
        "attempt = 7",
        "instance_id = 'x'",
        "duration_us = 7",
        "hash = replace(hash, substr(hash, 1, 1), 'x')",
    ] {
        let said = named(|_, sql| {
            assert_eq!(sql.execute(&format!("UPDATE audit_events SET {column} WHERE seq = 3"), []).unwrap(), 1);
        });
        assert!(said.starts_with("audit row 3: "), "{column}: {said}");
    }
    let said = named(|_, sql| sql.execute_batch("UPDATE audit_events SET prev_hash = hash WHERE seq = 3").unwrap());
    assert!(said.contains("prev_hash"), "{said}");
}

#[test]
fn a_changed_case_of_a_name_in_the_audit_is_an_edit() {
    let said = named(|_, sql| sql.execute_batch("UPDATE audit_events SET actor = upper(actor) WHERE seq = 3").unwrap());
    assert!(said.contains("edited"), "{said}");
}

#[test]
fn a_deleted_row_is_named_also_when_the_numbers_were_closed_up() {
    let said = named(|_, sql| sql.execute_batch("DELETE FROM audit_events WHERE seq = 3").unwrap());
    assert!(said.contains("row 3 is missing"), "{said}");
    let said = named(|_, sql| {
        sql.execute_batch(
            "DELETE FROM audit_events WHERE seq = 3; UPDATE audit_events SET seq = seq - 1 WHERE seq > 3",
        )
        .unwrap();
    });
    assert!(said.contains("audit row 3"), "{said}");
    let said = named(|_, sql| sql.execute_batch("DELETE FROM audit_events WHERE seq = 1").unwrap());
    assert!(said.contains("row 1 is missing"), "{said}");
}

#[test]
fn a_cut_tail_is_named_with_a_head_and_the_report_says_when_there_was_none() {
    let scene = scene();
    // The last row is a host event: no plan contradicts its absence.
    edit(&scene, |sql| {
        assert_eq!(sql.execute("DELETE FROM audit_events WHERE seq = ?1", [scene.head.seq]).unwrap(), 1)
    });
    let blind = verify(&scene, None);
    assert!(blind.is_intact() && !blind.tail_checked);
    let found = verify(&scene, Some(&scene.head)).difference.unwrap();
    assert!(found.what.contains("tail was cut"), "{found}");
    assert_eq!(found.seq, Some(scene.head.seq));
    // The gate that saw the row notices at its next write.
    assert!(scene.world.operator().record_host_event(None, "x", "").unwrap_err().is_rolled_back());
}

#[test]
fn a_replaced_tail_and_another_store_are_named() {
    let scene = scene();
    let mut replaced = scene.head.clone();
    replaced.hash = "0".repeat(64);
    assert!(verify(&scene, Some(&replaced)).difference.unwrap().what.contains("replaced"));
    let other = World::new();
    let found = other.operator().audit().verify(Some(&scene.head)).unwrap().difference.unwrap();
    assert!(found.what.contains("another store"), "{found}");
}

#[test]
fn a_cut_transition_contradicts_its_plan() {
    let said = named(|scene, sql| {
        let seq: i64 = sql
            .query_row("SELECT seq FROM audit_events WHERE event = 'approval_recorded'", [], |row| row.get(0))
            .unwrap();
        assert_eq!(seq, scene.head.seq - 1);
        sql.execute("DELETE FROM audit_events WHERE seq >= ?1", [seq]).unwrap();
    });
    assert!(said.contains("approvals are not the ones in the audit"), "{said}");
}

#[test]
fn a_state_set_by_hand_is_named() {
    let said = named(|scene, sql| {
        run(sql, "UPDATE plans SET state = 'approved', gated = 1 WHERE plan_token = ?1", &scene.open)
    });
    assert!(said.contains("it is approved, and the audit says previewed"), "{said}");
    let said = named(|scene, sql| {
        run(
            sql,
            "UPDATE plans SET state = 'approved', gated = 1, settled_at = NULL WHERE plan_token = ?1",
            &scene.rejected,
        );
    });
    assert!(said.contains("plan "), "{said}");
    named(|scene, sql| run(sql, "UPDATE plans SET state = 'approved' WHERE plan_token = ?1", &scene.half));
    named(|scene, sql| {
        run(sql, "UPDATE plans SET gated = 1, state = 'awaiting_approval' WHERE plan_token = ?1", &scene.open)
    });
    named(|scene, sql| run(sql, "UPDATE plans SET attempt = 3 WHERE plan_token = ?1", &scene.executed));
}

#[test]
fn an_edited_payload_is_named_alone_and_with_its_fingerprint() {
    let other = countersign::fingerprint(&json!({"id": 5})).unwrap();
    for of in [|scene: &Scene| scene.open.clone(), |scene: &Scene| scene.executed.clone()] {
        let alone = "UPDATE plans SET payload = '{\"id\":5}' WHERE plan_token = ?1";
        let said = named(|scene, sql| run(sql, alone, &of(scene)));
        assert!(said.contains("payload does not match"), "{said}");
        let both = format!("UPDATE plans SET payload = '{{\"id\":5}}', fingerprint = '{other}' WHERE plan_token = ?1");
        let said = named(|scene, sql| run(sql, &both, &of(scene)));
        assert!(said.contains("seal"), "{said}");
    }
}

#[test]
fn every_sealed_column_is_held() {
    for column in [
        "tool = 'other'",
        "caller = 'mallory'",
        "caller = upper(caller)",
        "data_digest = 'd'",
        "reason = 'r'",
        "extra = '{}'",
        "preview_count = 1",
        "approvals_needed = 3",
        "created_at = created_at - 1",
        "expires_at = expires_at + 1",
        "seal = replace(seal, substr(seal, 1, 1), 'f') || substr(seal, 65)",
    ] {
        for of in [|scene: &Scene| scene.half.clone(), |scene: &Scene| scene.executed.clone()] {
            let scene = scene();
            let plan = of(&scene);
            edit(&scene, |sql| run(sql, &format!("UPDATE plans SET {column} WHERE plan_token = ?1"), &plan));
            let changed: bool = scene
                .world
                .sql()
                .query_row(
                    "SELECT seal <> ?2 FROM plans WHERE plan_token = ?1",
                    [plan.plan_token.as_str(), plan.seal.as_str()],
                    |row| row.get(0),
                )
                .unwrap();
            if column.starts_with("seal") && !changed {
                continue; // The first digit was an f.
            }
            let found = verify(&scene, None).difference.unwrap_or_else(|| panic!("{column} was not found"));
            assert!(found.what.contains("seal"), "{column}: {found}");
        }
    }
}

#[test]
fn edited_approvals_are_named() {
    for change in [
        "DELETE FROM approvals WHERE plan_token = ?1",
        "UPDATE approvals SET reviewer = 'mallory' WHERE plan_token = ?1",
        "UPDATE approvals SET seal = 'x' WHERE plan_token = ?1",
        "UPDATE approvals SET channel = 'http' WHERE plan_token = ?1",
        "UPDATE approvals SET approved_at = approved_at + 1 WHERE plan_token = ?1",
        "INSERT INTO approvals SELECT plan_token, 'mallory', seal, channel, approved_at FROM approvals WHERE plan_token = ?1",
    ] {
        for of in [|scene: &Scene| scene.half.clone(), |scene: &Scene| scene.executed.clone()] {
            let said = named(|scene, sql| run(sql, change, &of(scene)));
            assert!(said.contains("approvals are not the ones in the audit"), "{change}: {said}");
        }
    }
    let said = named(|_, sql| {
        sql.execute("INSERT INTO approvals VALUES (?1, 'mallory', 'x', 'library', 1)", [never_issued()]).unwrap();
    });
    assert!(said.contains("no audit row accounts"), "{said}");
}

#[test]
fn a_deleted_plan_is_named() {
    let said = named(|scene, sql| run(sql, "DELETE FROM plans WHERE plan_token = ?1", &scene.open));
    assert!(said.contains("its row is gone while the audit says that it is previewed"), "{said}");
    // The one purge was recorded before this plan ended.
    let scene = scene();
    let late = scene.world.ended(State::Executed, &payload(9));
    edit(&scene, |sql| run(sql, "DELETE FROM plans WHERE plan_token = ?1", &late));
    let found = verify(&scene, None).difference.unwrap();
    assert!(found.what.contains("no purge was recorded"), "{found}");
}

const COPY: &str = "INSERT INTO plans (plan_token, tool, caller, state, gated, approvals_needed, fingerprint, seal, \
     created_at, expires_at, payload) SELECT ?2, tool, caller, 'previewed', 0, approvals_needed, fingerprint, seal, \
     created_at, expires_at, payload FROM plans WHERE plan_token = ?1";

#[test]
fn a_planted_plan_is_named() {
    let said = named(|scene, sql| {
        let tokens = [scene.open.plan_token.as_str().to_owned(), never_issued()];
        assert_eq!(sql.execute(COPY, tokens).unwrap(), 1);
    });
    assert!(said.contains("no audit row accounts"), "{said}");
}

#[test]
fn a_planted_plan_is_named_also_when_the_audit_has_refused_its_token_before() {
    let scene = scene();
    // Whoever plants the row asks for it first, so that audit rows with its token exist.
    let token = never_issued();
    scene.world.agent().begin_execute(countersign::Redeem::stored(&token, "write")).unwrap_err();
    edit(&scene, |sql| assert_eq!(sql.execute(COPY, [scene.open.plan_token.as_str(), &token]).unwrap(), 1));
    let found = verify(&scene, None).difference.expect("a plan that never began");
    assert_eq!(found.plan_token.as_deref(), Some(token.as_str()));
}

#[test]
fn a_plan_that_came_back_after_its_purge_is_named() {
    let scene = scene();
    let copy = "CREATE TABLE copy AS SELECT * FROM plans WHERE plan_token = ?1";
    let sql = scene.world.sql();
    sql.execute(&copy.replace("?1", &format!("'{}'", scene.executed.plan_token)), []).unwrap();
    scene.world.advance(10_000);
    assert!(scene.world.operator().purge(std::time::Duration::ZERO).unwrap() >= 1);
    scene.world.assert_intact();
    edit(&scene, |sql| {
        sql.execute_batch(
            "INSERT INTO plans (plan_token, tool, caller, state, gated, approvals_needed, fingerprint, seal, created_at, \
             expires_at, payload) SELECT plan_token, tool, caller, 'previewed', 0, approvals_needed, fingerprint, seal, \
             created_at, expires_at, payload FROM copy; DROP TABLE copy",
        )
        .unwrap();
    });
    let found = verify(&scene, None).difference.unwrap();
    assert_eq!(found.plan_token.as_deref(), Some(scene.executed.plan_token.as_str()));
}

#[test]
fn a_missing_changed_or_planted_tombstone_is_named() {
    for change in [
        "DELETE FROM tombstones WHERE plan_token = ?1",
        "UPDATE tombstones SET kind = 'expired' WHERE plan_token = ?1",
        "UPDATE tombstones SET fingerprint = 'x' WHERE plan_token = ?1",
        "UPDATE tombstones SET tool = 'other' WHERE plan_token = ?1",
        "UPDATE tombstones SET caller = 'other' WHERE plan_token = ?1",
        // The rejected memory ends by lift_rejection alone.
        "UPDATE tombstones SET lifted_at = at, lifted_by = 'ada' WHERE plan_token = ?1",
    ] {
        let scene = scene();
        edit(&scene, |sql| run(sql, change, &scene.rejected));
        let found = verify(&scene, None).difference.unwrap_or_else(|| panic!("{change} was not found"));
        assert_eq!(found.plan_token.as_deref(), Some(scene.rejected.plan_token.as_str()), "{change}: {found}");
    }
    let planted = "INSERT INTO tombstones (plan_token, kind, caller, tool, fingerprint, attempt, actor, at) \
                   SELECT plan_token, 'executed', caller, tool, fingerprint, 0, 'x', 1 FROM plans WHERE plan_token = ?1";
    let said = named(|scene, sql| run(sql, planted, &scene.open));
    assert!(said.contains("no audit row accounts"), "{said}");
}

#[test]
fn a_lift_that_was_recorded_is_no_difference() {
    let scene = scene();
    let fingerprint = scene.rejected.fingerprint.to_string();
    assert!(!scene.world.ada().lift_rejection("write", &fingerprint, "").unwrap());
    scene.world.assert_intact();
    // Lifted again by hand after a later "no": that is one.
    let again = scene.world.agent().create(NewPlan::new("write", &payload(2), Approval::required())).unwrap();
    scene.world.advance(5);
    scene.world.ada().reject(&again.plan_token, None).unwrap();
    scene.world.assert_intact();
    edit(&scene, |sql| {
        run(sql, "UPDATE tombstones SET lifted_at = at, lifted_by = 'ada' WHERE plan_token = ?1", &again)
    });
    assert!(verify(&scene, None).difference.is_some());
}

#[test]
fn an_audit_that_was_emptied_is_named() {
    let scene = scene();
    edit(&scene, |sql| sql.execute_batch("DELETE FROM audit_events").unwrap());
    assert!(verify(&scene, None).difference.unwrap().what.contains("empty"));
}

#[test]
fn a_tampered_plan_does_not_run() {
    let scene = scene();
    edit(&scene, |sql| run(sql, "UPDATE plans SET payload = '{\"id\":5}' WHERE plan_token = ?1", &scene.open));
    let error = scene.world.agent().begin_execute(stored(&scene.open)).unwrap_err();
    assert!(error.is_corrupt(), "{error}");
    assert_eq!(scene.world.state(&scene.open), State::Previewed);
}
