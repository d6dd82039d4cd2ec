//! The shapes of the API. Random parts are named, the clock stands still.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use countersign::{Approval, NewPlan, Redeem, Rendered, TestClock};
use serde_json::{Value, json};

use super::common;
use super::wire::{Reply, World};

/// Names what is random, in the order of its appearance.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    fn know(&mut self, random: &str, name: &str) {
        self.0.insert(random.to_owned(), name.to_owned());
    }

    fn shape(&self, reply: &Reply) -> String {
        let mut body = reply.json();
        // The process and its host.
        if let Some(Value::Array(plans)) = body.get_mut("plans") {
            for plan in plans {
                for (field, name) in [("pid", json!("PID")), ("host_name", json!("HOST"))] {
                    if let Some(value) = plan.get_mut(field) {
                        *value = name;
                    }
                }
            }
        }
        let mut text = format!("{}\n{}", reply.status, serde_json::to_string_pretty(&body).unwrap());
        for (random, name) in &self.0 {
            text = text.replace(random, name);
        }
        text
    }
}

#[test]
fn the_api_keeps_its_shapes() {
    let clock = Arc::new(TestClock::at_ms(1_700_000_000_000));
    let gate = common::ephemeral(|builder| builder.clock(clock.clone()));
    let world = World::on(gate, |builder| {
        builder.expose_raw_payload().render_plan(|pending| {
            Ok(Rendered::new().title("Mark green tea down").detail("of", pending.plan.caller.clone()))
        })
    });
    let mut names = Names::default();
    names.know(world.gate.instance_id(), "INSTANCE");
    let agent = world.agent();
    let payload = json!({"category": "green tea", "percent": 15});
    let rejected = agent.create(NewPlan::new("mark_down", &payload, Approval::required())).unwrap();
    let extra = json!({"a": 1});
    let fields = NewPlan::new("mark_down", &payload, Approval::Required { quorum: 2 });
    let fields =
        fields.reason("old harvest").preview_count(23).idempotency_key("call-1").data_digest("d").extra(&extra);
    clock.advance(Duration::from_secs(1));
    let rejection = world.reject(&rejected, Some("below cost")).send();
    clock.advance(Duration::from_secs(1));
    let plan = agent.create(fields).unwrap();
    let done = agent.create(NewPlan::new("reorder", &1, Approval::NotNeeded)).unwrap();
    let mut claim = agent.begin_execute(Redeem::stored(&done.plan_token, "reorder")).unwrap();
    for (name, created) in [("REJECTED", &rejected), ("WAITING", &plan), ("DONE", &done)] {
        names.know(created.plan_token.as_str(), &format!("TOKEN-{name}"));
        names.know(created.seal.as_str(), &format!("SEAL-{name}"));
    }
    let approval = world.approve(&plan).send();
    let shapes = [
        ("rejection", rejection),
        ("approval", approval),
        ("approval_again", world.approve(&plan).send()),
        ("queue", world.get("/api/plans").send()),
        ("plan", world.get(&format!("/api/plans/{}", rejected.plan_token)).send()),
        ("stuck", world.get("/api/stuck").send()),
        ("history", {
            claim.confirm_executed(&json!({"ordered": 4})).unwrap();
            world.get("/api/history?q=reorder").send()
        }),
        ("timeline", world.get(&format!("/api/history/{}", plan.plan_token)).send()),
        ("refusal", world.approve(&rejected).send()),
        ("own_code", world.get("/nothing").send()),
    ];
    for (name, reply) in shapes {
        insta::assert_snapshot!(name, names.shape(&reply));
    }
}

#[test]
fn without_a_hook_the_render_is_payload_and_extra_as_json() {
    let world = World::new();
    let rows: Vec<Value> = (0..9).map(|n| json!({"sku": format!("BT-{n}"), "cents": n * 100})).collect();
    let payload = json!({"rows": rows, "big": 9_007_199_254_740_993_u64, "note": "a\nb\u{202E}"});
    let extra = json!({"shop": 7});
    let plan = NewPlan::new("set_prices", &payload, Approval::required()).extra(&extra);
    world.agent().create(plan).unwrap();
    let queue = world.get("/api/plans").send().succeeds();
    assert_eq!(queue["plans"][0]["payload"], Value::Null);
    let render = &queue["plans"][0]["render"];
    insta::assert_snapshot!("default_render", serde_json::to_string_pretty(render).unwrap());
    let shown: Value = serde_json::from_str(render["details"][0]["value"].as_str().unwrap()).unwrap();
    assert_eq!(shown, payload, "what is shown is the payload");
}

#[test]
fn a_search_covers_the_newest_ten_thousand_rows_and_says_so() {
    let world = World::new();
    let operator = world.operator();
    let first = world.plan();
    for number in 0..30 {
        operator.record_host_event(None, "tick", &number.to_string()).unwrap();
    }
    let found = world.get("/api/history?state=host:tick").send().succeeds();
    assert_eq!((&found["matches"], &found["searched"], &found["total"]), (&json!(30), &json!(32), &json!(32)));
    let prefix = &first.plan_token.as_str()[..12];
    let by_token = world.get(&format!("/api/history?q={}", prefix.to_uppercase())).send().succeeds();
    assert_eq!(by_token["matches"], json!(1));
    // Without a filter every row matches, and only those that are shown are read.
    let all = world.get("/api/history").send().succeeds();
    assert_eq!((&all["matches"], &all["searched"], &all["total"]), (&json!(32), &json!(32), &json!(32)));
    assert_eq!(all["rows"].as_array().unwrap().len(), 32);
    let older = world.get("/api/history?before=10").send().succeeds();
    assert_eq!((&older["matches"], &older["searched"], &older["total"]), (&json!(9), &json!(32), &json!(32)));
    let numbers: Vec<_> = older["rows"].as_array().unwrap().iter().map(|row| row["seq"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (1..=9).rev().collect::<Vec<_>>());
    let page = world.get("/api/history?state=host:tick&before=10").send().succeeds();
    assert_eq!(page["rows"].as_array().unwrap().len(), 7);
    assert_eq!(page["rows"][0]["seq"], json!(9));
    // Past the newest rows an index finds what is named whole: a token always, a tool or a caller where the index is on.
    let rows = rusqlite::Connection::open(world.gate.path()).unwrap();
    rows.execute_batch(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
         INSERT INTO audit_events (seq, at, event, actor, channel, instance_id, prev_hash, hash)
         SELECT 32 + i, 0, 'host:bulk', 'bulk', 'library', 'bulk', printf('%064d', i), printf('%064d', i) FROM n",
    )
    .unwrap();
    let matches = |query: &str| {
        let found = world.get(&format!("/api/history?q={query}")).send().succeeds();
        assert_eq!(found["searched"], json!(10_000));
        found["matches"].clone()
    };
    let plan = world.operator().plan(&first.plan_token).unwrap();
    assert_eq!(matches(prefix), json!(0));
    assert_eq!(matches(first.plan_token.as_str()), json!(1));
    assert_eq!((matches(&plan.tool), matches(&plan.caller)), (json!(0), json!(0)));
    operator.audit_index(true).unwrap();
    assert_eq!((matches(&plan.tool), matches(&plan.caller)), (json!(1), json!(1)));
    assert_eq!(matches(prefix), json!(0));
    for query in ["token=x", "before=x", "q=a&q=b", "unknown=1"] {
        world.get(&format!("/api/history?{query}")).send().refuses(400, "BAD_REQUEST");
    }
}
