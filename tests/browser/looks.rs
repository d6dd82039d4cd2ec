//! How the page looks, and what it makes of text that wants to be more than text.

use std::sync::Arc;

use countersign::{Approval, ApprovalServer, NewPlan, Rendered};
use serde_json::{Value, json};

use super::common;
use super::driver::{Browser, with_browser};
use super::page::{ALL_ARMED, World};

/// Every piece of text that shows, with less contrast against what is behind it than WCAG's AA asks for.
const PALE: &str = r"
  const parse = (text) => text.match(/[\d.]+/g).map(Number);
  const over = (top, below) => { const a = top[3] ?? 1; return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a)); };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const pale = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const element = node.parentElement;
    if (!node.data.trim() || ['STYLE', 'SCRIPT', 'TEMPLATE', 'NOSCRIPT'].includes(element.tagName)) continue;
    if (!element.checkVisibility({visibilityProperty: true}) || element.closest(':disabled, .unseen, thead')) continue;
    const chain = [];
    for (let e = element; e; e = e.parentElement) chain.unshift(e);
    let back = [255, 255, 255], opacity = 1;
    for (const e of chain) {
      const style = getComputedStyle(e);
      back = over(parse(style.backgroundColor), back);
      opacity *= Number(style.opacity);
    }
    const style = getComputedStyle(element);
    const front = over([...parse(style.color).slice(0, 3), opacity], back);
    const [a, b] = [light(front), light(back)].sort((p, q) => q - p);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) pale.push(`${ratio.toFixed(2)} ${element.className || element.tagName}: ${node.data.trim().slice(0, 40)}`);
  }
  return pale;";

/// What a finger or a screen reader cannot use: controls without a name.
const NAMELESS: &str = r"
  return [...document.querySelectorAll('button, input, select, [tabindex]')]
    .filter((e) => e.checkVisibility())
    .filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length
      || document.getElementById(e.getAttribute('aria-labelledby'))?.textContent.trim()))
    .map((e) => e.outerHTML);";

const OVERFLOW: &str = "return document.documentElement.scrollWidth - document.documentElement.clientWidth;";

async fn looks_right(browser: &Browser, what: &str) {
    let none = Vec::<Value>::new;
    assert_eq!(browser.script(PALE, none()).await, json!([]), "pale text: {what}");
    assert_eq!(browser.script(NAMELESS, none()).await, json!([]), "controls without a name: {what}");
    assert_eq!(browser.script(OVERFLOW, none()).await, json!(0), "wider than the window: {what}");
}

#[test]
fn every_view_is_readable_in_light_in_dark_and_at_375_pixels() {
    let world = Arc::new(World::new());
    let agent = world.gate.agent(&format!("agent-{}", "long".repeat(30))).unwrap();
    let rejected = agent.create(NewPlan::new("drop_table", &0, Approval::required())).unwrap();
    world.gate.reviewer("bob").unwrap().reject(&rejected.plan_token, Some("never")).unwrap();
    let wide = json!({"word": "w".repeat(300), "hidden": "a\u{200B}b", "again": 0});
    let reasons = [None, Some("a plain reason".to_owned()), Some(format!("{} \u{202E}", "unbroken".repeat(200)))];
    for (number, reason) in reasons.into_iter().enumerate() {
        let tool = ["drop_table", "archive", "archive"][number];
        let plan = NewPlan::new(tool, if number == 0 { &Value::Null } else { &wide }, Approval::required());
        let plan = plan.idempotency_key(format!("{number}{}", "k".repeat(250))).preview_count(number * 10_000);
        agent
            .create(match reason {
                Some(reason) => plan.reason(reason),
                None => plan,
            })
            .unwrap();
    }
    agent.create(NewPlan::new("drop_table", &0, Approval::NotNeeded)).unwrap();
    with_browser(&[], {
        let world = world.clone();
        move |browser| async move {
            browser.open_queue(&world.link()).await;
            browser.until("armed", ALL_ARMED).await;
            for (width, dark) in [(1280, false), (1280, true), (375, false), (375, true)] {
                browser.size(width, 800).await;
                browser.dark(dark).await;
                let what = |view: &str| format!("{view}, {width} pixels, dark: {dark}");
                browser.click("#to-queue").await;
                browser.until("armed", ALL_ARMED).await;
                looks_right(&browser, &what("queue")).await;
                browser.click(".card .link").await;
                browser.until("armed anew", ALL_ARMED).await;
                browser.click(".card .reject").await;
                looks_right(&browser, &what("a rejection")).await;
                browser.click(".card .foot button:last-child").await;
                browser.click("#to-history").await;
                browser.until("rows", "document.querySelector('#rows tbody tr')").await;
                looks_right(&browser, &what("history")).await;
                browser.click("#rows td[data-name=Plan] button").await;
                browser.until("timeline", "!document.querySelector('#timeline').hidden").await;
                looks_right(&browser, &what("timeline")).await;
                browser.click("#timeline .link").await;
            }
            browser.click("#to-queue").await;
            let queue = world.gate.reviewer("bob").unwrap().pending(10).unwrap();
            world.gate.reviewer("bob").unwrap().reject(&queue.items[0].plan.plan_token, Some("no")).unwrap();
            browser.until("one is over", "document.querySelector('.card.over')").await;
            looks_right(&browser, "a decided card in the dark").await;
            browser.dark(false).await;
            looks_right(&browser, "a decided card").await;
        }
    });
}

#[test]
fn script_in_every_field_of_a_plan_stays_text() {
    let attack = "<img src=x onerror=\"window.hit=1\"><script>window.hit=1</script>{{7*7}}</style>\"'>";
    let gate = common::ephemeral(|builder| builder);
    let agent = gate.agent("pricing-agent").unwrap();
    let payload = json!({attack: attack});
    let first = agent.create(NewPlan::new("archive", &payload, Approval::required())).unwrap();
    gate.reviewer("bob").unwrap().reject(&first.plan_token, Some(attack)).unwrap();
    let plan = NewPlan::new("archive", &payload, Approval::required()).reason(attack).idempotency_key(attack);
    agent.create(plan.extra(&json!({"note": attack})).data_digest(attack)).unwrap();
    let server = ApprovalServer::builder(&gate)
        .reviewer("ada")
        .title(attack)
        .expose_raw_payload()
        .render_plan(move |_| Ok(Rendered::new().title(attack).detail(attack, attack)))
        .serve(0)
        .unwrap();
    let link = server.link("ada").unwrap();
    with_browser(&[], move |browser| async move {
        browser.open_queue(&link).await;
        browser.until("armed", ALL_ARMED).await;
        browser.click(".card .raw button").await;
        let card = browser.text(".card").await;
        // Reason, key, title, label, value, the earlier rejection, and the payload.
        assert!(card.matches("onerror").count() >= 8, "{card}");
        browser.click("#to-history").await;
        browser.until("rows", "document.querySelectorAll('#rows tbody tr').length === 4").await;
        browser.click("#rows td[data-name=Plan] button").await;
        browser.until("timeline", "!document.querySelector('#timeline').hidden").await;
        assert_eq!(browser.script("return window.hit ?? null;", Vec::new()).await, Value::Null);
        assert_eq!(browser.count("img, body script:not([nonce])").await, 0);
        assert!(browser.client.title().await.unwrap().ends_with(attack));
    });
    server.close();
}

#[test]
fn what_hides_is_marked_and_explained() {
    let world = Arc::new(World::new());
    let payload = json!({"file": "invoice\u{202E}fdp.exe", "literal": "\\u{202E}", "line": "a\nb"});
    let plan = NewPlan::new("send", &payload, Approval::required()).reason("pay\u{200B}pal\nsecond line \\u{200B}");
    world.gate.agent("pricing-agent").unwrap().create(plan).unwrap();
    with_browser(&[], {
        let world = world.clone();
        move |browser| async move {
            browser.open_queue(&world.link()).await;
            browser.until("armed", ALL_ARMED).await;
            let script = "return [...document.querySelectorAll('.card .mark')].map((m) => [m.textContent, m.title.split('.')[0]]);";
            let marks = browser.script(script, Vec::new()).await;
            assert_eq!(
                marks,
                json!([
                    ["\\u{200B}", "U+200B, zero-width character"],
                    ["\\n", "U+000A, control character"],
                    ["\\u{5C}", "U+005C, written out"],
                    ["\\u202e", "U+202E, direction control"],
                    ["\\n", "U+000A, control character"],
                ])
            );
            let said = browser.text(".card").await;
            assert!(said.contains("1 × zero-width character. It takes no room"), "{said}");
            assert!(said.contains("1 × direction control. It can make the characters"), "{said}");
            assert!(!said.contains(['\u{202E}', '\u{200B}']));
            browser.picture("hidden").await;
        }
    });
}
