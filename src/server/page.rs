//! The page: one document without any plan data. Script and style are inline, under a nonce of the response; what it
//! shows it asks of the API, and writes as text.

use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{HeaderName, Response, StatusCode};
use axum::response::IntoResponse as _;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::json;

use super::Shared;
use super::answer::Failed;
use super::card::shown;
use crate::escape::ranges;
use crate::names::random_hex;

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = concat!(
    include_str!("page/text.js"),
    include_str!("page/session.js"),
    include_str!("page/card.js"),
    include_str!("page/queue.js"),
    include_str!("page/history.js"),
    include_str!("page/start.js"),
);

/// The hidden characters, as the escaper knows them: ranges, and a name and an explanation for each kind.
static HIDDEN: LazyLock<String> = LazyLock::new(|| {
    let all: Vec<_> =
        ranges().map(|(first, last, kind)| json!([first, last, kind.name(), kind.explanation()])).collect();
    json!(all).to_string()
});

pub(super) async fn document(State(shared): State<Arc<Shared>>) -> Response<Body> {
    answer(&shared, StatusCode::OK)
}

pub(super) fn answer(shared: &Shared, status: StatusCode) -> Response<Body> {
    let Ok(nonce) = random_hex::<16>() else { return Failed::internal().into_response() };
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    );
    let Ok(policy) = HeaderValue::from_str(&policy) else { return Failed::internal().into_response() };
    let mut response = Response::new(Body::from(page(shared, &nonce).into_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response.headers_mut().insert(HeaderName::from_static("content-security-policy"), policy);
    response
}

fn page(shared: &Shared, nonce: &str) -> Markup {
    let title = shown(&shared.title);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href="data:,";
                style nonce=(nonce) { (PreEscaped(STYLE)) }
            }
            body data-base=(shared.prefix) data-title=(title) data-hidden=(*HIDDEN) {
                (top(&title))
                noscript { p.note { "This page needs JavaScript. Without it, decide through the JSON API." } }
                (ask())
                main #main hidden {
                    (queue())
                    (history())
                }
                div #said .unseen role="status" aria-live="polite" {}
                script type="module" nonce=(nonce) { (PreEscaped(SCRIPT)) }
            }
        }
    }
}

fn top(title: &str) -> Markup {
    html! {
        header.top {
            div.bar {
                h1 { (title) }
                nav #views aria-label="Views" hidden {
                    button #to-queue type="button" aria-current="page" { "Queue " span #count .count {} }
                    button #to-history type="button" { "History" }
                }
                p.who { span #reviewer {} span #live .live data-state="off" role="status" { "Connecting" } }
            }
            div #news .bar.news hidden {
                button #fresh type="button" hidden {}
                button #clear type="button" hidden {}
                p #summary {}
            }
        }
    }
}

fn ask() -> Markup {
    html! {
        form #ask hidden {
            h2 { "Your link" }
            p #ask-why { "Paste the link that this server gave you, or the token at its end." }
            label for="ask-token" { "Link or token" }
            input #ask-token type="password" autocomplete="off" spellcheck="false" required;
            button.primary type="submit" { "Open the queue" }
            p.quiet {
                "The link is printed on the server's terminal, and lies in a file beside its database: "
                code { "<database>.owners/reviewer-<name>-<port>.link" }
            }
        }
    }
}

fn queue() -> Markup {
    html! {
        section #queue aria-label="Plans that wait" {
            p #empty .empty hidden {
                strong { "Nothing waits for a decision." }
                " New plans show here by themselves."
            }
            div #cards {}
            p #more .note hidden {}
            p.keys {
                "On a focused card: " kbd { "A" } " approve, " kbd { "R" } " reject, then " kbd { "Enter" }
                " to confirm or " kbd { "Esc" } " to leave it; " kbd { "O" } " opens folded parts, "
                kbd { "S" } " shows seal and fingerprint in full. " kbd { "J" } " and " kbd { "K" }
                " go to the next and the previous card."
            }
        }
    }
}

fn history() -> Markup {
    let states = [
        "previewed",
        "awaiting_approval",
        "approved",
        "rejected",
        "executing",
        "executed",
        "uncertain",
        "failed",
        "expired",
        "refused",
        "regated",
    ];
    html! {
        section #history hidden aria-label="History" {
            h2 { "Claimed and not settled" }
            div #stuck {}
            h2 { "What happened" }
            form #search role="search" {
                label { span { "Token, tool or caller" } input #search-q type="search" maxlength="256" spellcheck="false" autocomplete="off"; }
                label {
                    span { "State or event" }
                    select #search-state {
                        option value="" { "any" }
                        @for state in states { option value=(state) { (state.replace('_', " ")) } }
                    }
                }
                button type="submit" { "Search" }
            }
            p #searched .quiet role="status" {}
            div #timeline hidden {}
            div #rows {}
            button #older type="button" hidden { "Older rows" }
        }
    }
}
