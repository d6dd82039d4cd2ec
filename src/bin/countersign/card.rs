//! A plan as people and programs see it.

use countersign::escape::{still_visible, visible};
use countersign::{CanonicalJson, EarlierRejection, PendingPlan, Plan};
use serde_json::{Value, json};

use crate::out::{Out, Style};
use crate::when::{iso, relative};

/// Everything that a reviewer decides on, as lines.
pub(crate) fn lines(card: &PendingPlan, out: &Out) -> String {
    let plan = &card.plan;
    let mut lines = Vec::new();
    let mut line = |label: &str, text: String| {
        lines.push(format!("{} {}", out.paint(Style::Label, &format!("{label:<16}")), out.wrap(&text, 17)));
    };
    line("plan", plan.plan_token.to_string());
    line("tool", visible(&plan.tool).into_owned());
    line("caller", visible(&plan.caller).into_owned());
    line("state", plan.state.as_str().to_owned());
    line(
        "reason (agent's)",
        plan.reason.as_deref().map_or("none given".to_owned(), |reason| visible(reason).into_owned()),
    );
    if let Some(count) = plan.preview_count {
        line("touches", count.to_string());
    }
    line("created", format!("{} ({})", iso(plan.created_at), relative(plan.created_at)));
    line("expires", format!("{} ({})", iso(plan.expires_at), relative(plan.expires_at)));
    let given =
        plan.approvals.iter().map(|a| format!("{} via {}, {}", visible(&a.reviewer), visible(&a.channel), iso(a.at)));
    let given: Vec<_> = given.collect();
    let count = match (plan.gated, given.len()) {
        (false, _) => "none needed".to_owned(),
        (true, 0) => format!("0 of {}", plan.approvals_needed),
        (true, some) => format!("{some} of {} ({})", plan.approvals_needed, given.join("; ")),
    };
    line("approvals", count);
    if let Some(earlier) = &card.earlier_rejection {
        line("REJECTED BEFORE", rejection(earlier));
    }
    if card.others_waiting > 0 {
        line("others waiting", format!("{} of this caller and tool", card.others_waiting));
    }
    if let Some(reason) = &plan.reject_reason {
        line("rejected for", visible(reason).into_owned());
    }
    if plan.attempt > 0 {
        line("attempt", plan.attempt.to_string());
    }
    if let Some(key) = &plan.idempotency_key {
        line("key", visible(key).into_owned());
    }
    if let Some(digest) = &plan.data_digest {
        line("data digest", visible(digest).into_owned());
    }
    if let Some(error) = &plan.error {
        line("error", visible(error).into_owned());
    }
    line("fingerprint", plan.fingerprint.clone());
    line("seal", plan.seal.to_string());
    for (label, value) in
        [("host's words", &plan.extra), ("payload", &Some(plan.payload.clone())), ("result", &plan.result)]
    {
        if let Some(value) = value {
            line(label, pretty(value));
        }
    }
    lines.join("\n")
}

fn rejection(earlier: &EarlierRejection) -> String {
    let reason = earlier.reason.as_deref().map_or("no reason given".into(), visible);
    format!("by {} on {}: {reason}", visible(&earlier.reviewer), iso(earlier.at))
}

/// The canonical text with line breaks: nothing but white space is added, so that what is shown is what runs. A hidden
/// character inside a string becomes a marker; JSON itself doubles a written backslash, so no text can look like one.
pub(crate) fn pretty(value: &CanonicalJson) -> String {
    let text = still_visible(value.as_str());
    let mut shown = String::with_capacity(text.len() * 2);
    let (mut depth, mut inside, mut escaped) = (0_usize, false, false);
    let mut rest = text.chars().peekable();
    let newline = |shown: &mut String, depth: usize| {
        shown.push('\n');
        shown.extend(std::iter::repeat_n("  ", depth + 1));
    };
    if text.starts_with(['{', '[']) && text.len() > 2 {
        newline(&mut shown, 0);
    }
    while let Some(character) = rest.next() {
        if inside {
            shown.push(character);
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => inside = false,
                _ => {}
            }
            continue;
        }
        match character {
            '"' => {
                inside = true;
                shown.push('"');
            }
            '{' | '[' if matches!(rest.peek(), Some('}' | ']')) => {
                shown.push(character);
                shown.extend(rest.next());
            }
            '{' | '[' => {
                depth += 1;
                shown.push(character);
                newline(&mut shown, depth);
            }
            '}' | ']' => {
                depth -= 1;
                newline(&mut shown, depth);
                shown.push(character);
            }
            ',' => {
                shown.push(',');
                newline(&mut shown, depth);
            }
            ':' => shown.push_str(": "),
            other => shown.push(other),
        }
    }
    shown
}

/// The stored JSON as a value.
fn value(json: Option<&CanonicalJson>) -> Value {
    json.and_then(|json| serde_json::from_str(json.as_str()).ok()).unwrap_or(Value::Null)
}

/// A plan as JSON; the names are stable.
pub(crate) fn plan_json(plan: &Plan) -> Value {
    let time = |time: Option<chrono::DateTime<chrono::Utc>>| time.map(iso);
    json!({
        "plan_token": plan.plan_token,
        "tool": plan.tool,
        "caller": plan.caller,
        "state": plan.state.as_str(),
        "gated": plan.gated,
        "reason": plan.reason,
        "preview_count": plan.preview_count,
        "created_at": iso(plan.created_at),
        "expires_at": iso(plan.expires_at),
        "decided_at": time(plan.decided_at),
        "executing_since": time(plan.executing_since),
        "settled_at": time(plan.settled_at),
        "approvals": plan.approvals.iter().map(|a| json!({
            "reviewer": a.reviewer, "channel": a.channel, "at": iso(a.at),
        })).collect::<Vec<_>>(),
        "approvals_needed": plan.approvals_needed,
        "attempt": plan.attempt,
        "instance_id": plan.instance_id,
        "idempotency_key": plan.idempotency_key,
        "data_digest": plan.data_digest,
        "fingerprint": plan.fingerprint,
        "seal": plan.seal.as_str(),
        "payload": value(Some(&plan.payload)),
        "extra": value(plan.extra.as_ref()),
        "result": value(plan.result.as_ref()),
        "error": plan.error,
        "reject_reason": plan.reject_reason,
    })
}

/// A card as JSON: the plan, and what surrounds it.
pub(crate) fn card_json(card: &PendingPlan) -> Value {
    let mut json = plan_json(&card.plan);
    json["earlier_rejection"] = card.earlier_rejection.as_ref().map_or(Value::Null, |earlier| {
        json!({
            "plan_token": earlier.plan_token, "reviewer": earlier.reviewer, "at": iso(earlier.at),
            "reason": earlier.reason,
        })
    });
    json["others_waiting"] = json!(card.others_waiting);
    json
}

#[cfg(test)]
mod tests {
    use super::pretty;

    #[test]
    fn a_payload_is_shown_with_nothing_added_but_white_space() {
        let hostile = countersign::canonical_json(&serde_json::json!({
            "a": [1, {"b": "x: {\"y\", \\u{202E}"}, [], {}], "z\u{202e}": "two\nlines\u{9b}",
        }))
        .unwrap();
        let shown = pretty(&hostile);
        insta::assert_snapshot!(shown);
        assert!(shown.chars().all(|c| c == '\n' || countersign::escape::classify(c).is_none()));
    }
}
