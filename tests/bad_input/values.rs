//! Names, keys, payloads and numbers: refused before anything is stored.

use std::time::Duration;

use countersign::{Approval, Channel, Gate, NewPlan, Redeem};
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::{Value, json};

use crate::common::world::{World, code, payload};

/// None is a name.
fn wrong_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "",
        " ",
        "   ",
        "\t",
        "a b",
        " a",
        "a ",
        "a\n",
        "a\0",
        "a\u{200B}",
        "\u{202E}a",
        "a'b",
        "a\"b",
        "a;b",
        "a\\b",
        "a,b",
        "a(b)",
        "a*",
        "a?",
        "a=b",
        "<a>",
        "a%20b",
        "a#b",
        "a$b",
        "a~b",
        "a!b",
        "a&b",
        "{a}",
        "a|b",
        "a^b",
        "`a`",
        // Letters that look like others: Cyrillic a and e, Greek omicron, fullwidth a, a combining accent, a long s.
        "\u{0430}da",
        "ad\u{0435}",
        "b\u{03BF}b",
        "\u{FF41}da",
        "ada\u{0301}",
        "\u{017F}ue",
        "\u{212A}im",
        "müller",
        "数据",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("x".repeat(129));
    names.push("x".repeat(10 * 1024 * 1024));
    names
}

#[test]
fn what_is_no_name_names_nobody_and_nothing() {
    let world = World::new();
    let head = world.operator().audit().head().unwrap();
    let p = payload(1);
    for name in wrong_names() {
        let shown: String = name.chars().take(20).collect();
        let answers = [
            world.gate.agent(&name).map(drop),
            world.gate.reviewer(&name).map(drop),
            world.gate.operator(&name).map(drop),
            Channel::new(&name).map(drop),
            world.agent().create(NewPlan::new(&name, &p, Approval::NotNeeded)).map(drop),
            world.agent().record_host_event(None, &name, ""),
            world.operator().record_host_event(None, &name, ""),
            world.ada().lift_rejection(&name, "0".repeat(64), "").map(drop),
        ];
        for (n, answer) in answers.into_iter().enumerate() {
            let error = answer.unwrap_err();
            assert!(error.is_invalid_input(), "{n} {shown:?}: {error}");
            assert!(error.to_string().len() < 500, "{n} {shown:?}");
        }
    }
    assert_eq!(world.operator().audit().head().unwrap(), head);
}

#[test]
fn names_of_every_allowed_character_and_length_are_names() {
    let world = World::new();
    for name in ["a", "0", "-", "A.z_9@b:/+-", &"x".repeat(128), "UNKNOWN"] {
        let agent = world.caller(name);
        let created = agent.create(NewPlan::new(name, &1, Approval::NotNeeded)).unwrap();
        agent.begin_execute(Redeem::stored(&created.plan_token, name)).unwrap().record_host_event(name, "").unwrap();
    }
    world.assert_intact();
}

#[test]
fn what_is_no_key_makes_no_plan() {
    let world = World::new();
    let head = world.operator().audit().head().unwrap();
    let p = payload(1);
    let long = "x".repeat(257);
    let huge = "x".repeat(10 * 1024 * 1024);
    for key in ["", " ", "     ", "a\n", "\t", "a\0b", "\u{7f}", "ключ", "k\u{200B}", "é", &long, &huge] {
        let answer = world.agent().create(NewPlan::new("write", &p, Approval::NotNeeded).idempotency_key(key));
        assert_eq!(code(answer), "INVALID_INPUT");
    }
    assert_eq!(world.operator().audit().head().unwrap(), head);
    for key in ["k", " k ", "~", "'; DROP TABLE plans; --", &"x".repeat(256)] {
        world.agent().create(NewPlan::new("write", &p, Approval::NotNeeded).idempotency_key(key)).unwrap();
    }
    world.assert_intact();
}

/// One object that names a key twice.
struct Twice;

impl serde::Serialize for Twice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("id", &1)?;
        map.serialize_entry("id", &2)?;
        map.end()
    }
}

struct Failing;

impl serde::Serialize for Failing {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("no such thing"))
    }
}

fn nested(depth: usize) -> String {
    format!("{}{}", "[".repeat(depth), "]".repeat(depth))
}

#[test]
fn a_payload_that_has_no_fingerprint_is_not_stored() {
    let world = World::new();
    let head = world.operator().audit().head().unwrap();
    let create = |plan: NewPlan<'_>| code(world.agent().create(plan));
    let too_big = "x".repeat(1024 * 1024);
    let keys_as_numbers = std::collections::BTreeMap::from([(1, 2)]);
    let nan = std::collections::BTreeMap::from([("price", vec![1.0, f64::NAN])]);
    assert_eq!(create(NewPlan::new("write", &f64::NAN, Approval::NotNeeded)), "INVALID_INPUT");
    assert_eq!(create(NewPlan::new("write", &f32::INFINITY, Approval::NotNeeded)), "INVALID_INPUT");
    assert_eq!(create(NewPlan::new("write", &nan, Approval::NotNeeded)), "INVALID_INPUT");
    assert_eq!(create(NewPlan::new("write", &Twice, Approval::NotNeeded)), "INVALID_INPUT");
    assert_eq!(create(NewPlan::new("write", &Failing, Approval::NotNeeded)), "INVALID_INPUT");
    assert_eq!(create(NewPlan::new("write", &keys_as_numbers, Approval::NotNeeded)), "INVALID_INPUT");
    assert_eq!(create(NewPlan::new("write", &too_big, Approval::NotNeeded)), "INVALID_INPUT");
    assert_eq!(create(NewPlan::new("write", &u128::MAX, Approval::NotNeeded)), "INVALID_INPUT");
    let texts = [
        String::new(),
        "{".to_owned(),
        "{\"a\":1,\"a\":1}".to_owned(),
        "{\"a\":1,\"\\u0061\":1}".to_owned(),
        "NaN".to_owned(),
        "1e400".to_owned(),
        "18446744073709551616".to_owned(),
        "\"\\ud800\"".to_owned(),
        "{'a':1}".to_owned(),
        "1 2".to_owned(),
        nested(101),
        nested(5_000),
        nested(1_000_000),
        format!("\"{too_big}\""),
        "[".repeat(10 * 1024 * 1024),
    ];
    for text in &texts {
        let shown: String = text.chars().take(30).collect();
        assert_eq!(create(NewPlan::from_json("write", text, Approval::NotNeeded)), "INVALID_INPUT", "{shown}");
    }
    assert_eq!(world.operator().audit().head().unwrap(), head);
    let deepest = nested(100);
    world.agent().create(NewPlan::from_json("write", &deepest, Approval::NotNeeded)).unwrap();
    let largest = "x".repeat(1024 * 1024 - 2);
    world.agent().create(NewPlan::new("write", &largest, Approval::NotNeeded)).unwrap();
    world.assert_intact();
}

#[test]
fn a_presented_payload_that_has_no_fingerprint_claims_nothing() {
    let world = World::new();
    let created = world.free(&payload(1));
    let head = world.operator().audit().head().unwrap();
    let redeem = || Redeem::new(&created.plan_token, "write");
    assert_eq!(code(world.agent().begin_execute(redeem().payload(&f64::NAN))), "INVALID_INPUT");
    assert_eq!(code(world.agent().begin_execute(redeem().payload(&Twice))), "INVALID_INPUT");
    assert_eq!(code(world.agent().consume(redeem().payload_json("{"))), "INVALID_INPUT");
    assert_eq!(code(world.agent().consume(redeem().payload_json(&nested(5_000)))), "INVALID_INPUT");
    assert_eq!(world.operator().audit().head().unwrap(), head);
}

#[test]
fn extra_is_an_object_within_its_limit() {
    let world = World::new();
    let large = json!({"note": "x".repeat(64 * 1024)});
    let deep: Value = serde_json::from_str(&format!("{{\"a\":{}}}", nested(100))).unwrap();
    for extra in [json!(null), json!([1]), json!("text"), json!(1), large, deep] {
        let answer = world.agent().create(NewPlan::new("write", &1, Approval::NotNeeded).extra(&extra));
        assert_eq!(code(answer), "INVALID_INPUT");
    }
    let answer = world.agent().create(NewPlan::new("write", &1, Approval::NotNeeded).extra(&Twice));
    assert_eq!(code(answer), "INVALID_INPUT");
    world.agent().create(NewPlan::new("write", &1, Approval::NotNeeded).extra(&json!({}))).unwrap();
}

#[test]
fn a_ttl_is_at_least_a_millisecond_and_at_most_the_longest() {
    let world = World::new();
    let create = |ttl| world.agent().create(NewPlan::new("write", &1, Approval::NotNeeded).ttl(ttl));
    let day = Duration::from_secs(24 * 60 * 60);
    for ttl in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(999),
        day + Duration::from_millis(1),
        day + Duration::from_nanos(1),
        Duration::from_millis(u64::MAX),
        Duration::MAX,
    ] {
        assert_eq!(code(create(ttl)), "INVALID_INPUT", "{ttl:?}");
    }
    assert_eq!(create(day).unwrap().expires_at.timestamp_millis() - crate::common::world::START_MS, 86_400_000);
    create(Duration::from_millis(1)).unwrap();
}

#[test]
fn a_builder_refuses_options_that_contradict_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let builder = || Gate::builder(directory.path().join("gate.db"));
    for builder in [
        builder().ttl(Duration::ZERO),
        builder().ttl(Duration::from_nanos(1)),
        builder().ttl(Duration::from_secs(10)).longest_ttl(Duration::from_secs(9)),
        builder().longest_ttl(Duration::MAX),
        builder().readers(0),
        builder().json_max_depth(0),
        builder().json_max_depth(501),
        builder().payload_max_bytes(usize::MAX),
        builder().extra_max_bytes(usize::MAX),
    ] {
        assert!(builder.open().map(drop).unwrap_err().is_invalid_input());
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was created");
}

#[test]
fn a_quorum_of_nobody_or_of_a_crowd_is_not_possible() {
    let world = World::new();
    for quorum in [0, 1_001, u32::MAX] {
        let answer = world.agent().create(NewPlan::new("write", &1, Approval::Required { quorum }));
        assert_eq!(code(answer), "INVALID_INPUT", "{quorum}");
    }
    world.quorum(&payload(1), 1_000);
}

#[test]
fn counts_digests_and_reasons_have_their_limits() {
    let world = World::new();
    let plan = || NewPlan::new("write", &1, Approval::NotNeeded);
    assert_eq!(code(world.agent().create(plan().preview_count(usize::MAX))), "INVALID_INPUT");
    assert_eq!(code(world.agent().create(plan().data_digest(""))), "INVALID_INPUT");
    assert_eq!(code(world.agent().create(plan().data_digest("x".repeat(1_025)))), "INVALID_INPUT");
    assert_eq!(code(world.agent().create(plan().reason("x".repeat(4_097)))), "INVALID_INPUT");
    let most = plan().preview_count(i64::MAX as usize).data_digest("x".repeat(1_024)).reason("x".repeat(4_096));
    world.agent().create(most).unwrap();
    world.assert_intact();
}

#[test]
fn sql_and_control_characters_are_only_text() {
    let world = World::new();
    let hostile = "'); DROP TABLE plans; --\u{0}\u{1b}[2J\u{202E}\r\n";
    let (p, extra) = (json!({ hostile: hostile }), json!({ hostile: hostile }));
    let plan = NewPlan::new("write", &p, Approval::required()).reason(hostile).data_digest(hostile).extra(&extra);
    let created = world.agent().create(plan).unwrap();
    let plan = world.ada().card(&created.plan_token).unwrap().plan;
    assert_eq!(plan.reason.as_deref(), Some(hostile));
    assert_eq!(plan.payload.fingerprint(), created.fingerprint);
    world.ada().approve(&created.plan_token, &created.seal).unwrap();
    let redeem = Redeem::new(&created.plan_token, "write").payload(&p).data_digest(hostile);
    let mut claim = world.agent().begin_execute(redeem).unwrap();
    claim.confirm_failed(hostile).unwrap();
    world.ada().reject(&created.plan_token, Some(hostile)).unwrap();
    for row in world.operator().history(&created.plan_token).unwrap() {
        let whole = serde_json::to_string(&row).unwrap();
        assert!(!whole.contains("\\u0000") && !whole.contains("\\u001b") && !whole.contains('\u{202E}'), "{whole}");
    }
    world.assert_intact();
}
