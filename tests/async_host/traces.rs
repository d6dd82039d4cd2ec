//! What goes to `tracing`: enough to follow a plan, and nothing to redeem or read it.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};

use countersign::{Approval, AuditEvent, AuditSink, NewPlan, Outcome, Redeem};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

use super::{Locked, SOON, common};

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Written {
    /// What this process has told so far. One subscriber for all of its threads, at the finest level, as a host has one:
    /// what other tests do meanwhile is told here too.
    fn by_all() -> &'static Self {
        static ALL: OnceLock<Written> = OnceLock::new();
        ALL.get_or_init(|| {
            let written = Self::default();
            let to = written.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_max_level(LevelFilter::TRACE)
                .with_span_events(FmtSpan::FULL)
                .with_ansi(false)
                .with_writer(move || to.clone())
                .finish();
            tracing::subscriber::set_global_default(subscriber).unwrap();
            written
        })
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

struct Panics;

impl AuditSink for Panics {
    fn on_event(&self, event: &AuditEvent) {
        assert_ne!(event.event, "awaiting_approval");
    }
}

#[test]
fn traces_follow_a_plan_and_hold_no_whole_token_payload_or_reason() {
    let written = Written::by_all();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (token, claim_token) = runtime.block_on(async {
        let gate = common::ephemeral(|builder| {
            builder.audit_sink(Arc::new(Panics)).reconcile(|_| Ok(Outcome::done(&"secret-result")))
        });
        let (agent, ada) = (gate.agent("agent").unwrap(), gate.reviewer("ada").unwrap());
        let payload = serde_json::json!({"note": "secret-payload"});
        let plan = NewPlan::new("update_prices", &payload, Approval::required())
            .reason("secret-reason")
            .data_digest("secret-digest")
            .idempotency_key("secret-key");
        let created = agent.create_async(plan).await.unwrap();
        let token = created.plan_token.as_str().to_owned();
        let redeem = || Redeem::stored(&token, "update_prices").data_digest("secret-digest");
        agent.begin_execute_async(redeem()).await.unwrap_err();
        // A token where a tool's name is expected.
        agent.begin_execute_async(Redeem::stored(&token, token.clone())).await.unwrap_err();
        agent.plan("f".repeat(48)).unwrap_err();
        ada.approve_async(&token, &created.seal).await.unwrap();
        agent.wait_for_decision_async(&token, SOON).await.unwrap();
        let claim = agent.begin_execute(redeem()).unwrap();
        let claim_token = claim.claim_token().to_owned();
        claim.record_host_event("step", "secret-detail").unwrap();
        drop(claim);
        gate.operator("olga").unwrap().recover_async().await.unwrap();
        gate.operator("olga").unwrap().settle(&token, &Outcome::Failed("secret-error".to_owned())).unwrap_err();
        let other = agent.create(NewPlan::new("update_prices", &7, Approval::NotNeeded)).unwrap();
        ada.reject(&other.plan_token, Some("secret-no")).unwrap();
        (token, claim_token)
    });
    let text = written.text();
    let prefix = &token[..8];
    for expected in [
        "verb=\"create\"",
        "verb=\"approve\"",
        "verb=\"recover\"",
        &format!("plan=\"{prefix}\""),
        "event=\"awaiting_approval\"",
        "event=\"refused\"",
        "code=\"AWAITING_APPROVAL\"",
        "code=\"PLAN_MISMATCH\"",
        "event=\"executed\"",
        "event=\"host:step\"",
        "tool=\"update_prices\"",
        "the audit sink panicked",
    ] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
    assert!(!text.contains("secret-"), "{text}");
    for secret in [&token, &claim_token] {
        assert!(!text.contains(&secret[..12]), "{text}");
    }
    // Nothing of 12 hex digits or more is a token's; fingerprints and seals stay out too.
    let longest = text.split(|c: char| !c.is_ascii_hexdigit()).map(str::len).max().unwrap();
    assert!(longest < 12, "{text}");
}

#[test]
fn a_failure_of_the_store_is_told_by_its_code_alone() {
    let written = Written::by_all();
    let gate = common::ephemeral(|builder| builder.busy_deadline(std::time::Duration::from_millis(500)));
    let locked = Locked::take(gate.path());
    // No other test of this binary lifts a rejection in vain.
    let fingerprint = "0".repeat(64);
    let error = gate.reviewer("ada").unwrap().lift_rejection("tool", fingerprint, "secret-reason").unwrap_err();
    assert!(error.is_busy());
    locked.release();
    let text = written.text();
    let told = text.lines().find(|line| line.contains("lift_rejection") && line.contains("WARN")).unwrap_or_default();
    assert!(told.ends_with("failed code=\"BUSY\""), "{told}");
}
