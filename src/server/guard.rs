//! The guard: where a request comes from, then whose token it carries, then all else.
//!
//! It stands before every route and before every 404. The decisions are pure functions over the headers.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{ACCEPT, AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::Shared;
use super::answer::Failed;
use super::listen::Visitor;
use super::tokens::{Pass, Tokens};

/// The only names under which the server is reached. A request that was sent anywhere else is not for it.
#[derive(Debug)]
pub(super) struct Authorities(Vec<String>);

impl Authorities {
    /// The loopback spellings with the bound port.
    pub(super) fn loopback(port: u16) -> Self {
        let names = ["127.0.0.1", "localhost", "[::1]"];
        let mut all: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
        if port == 80 {
            // Clients leave the scheme's own port out.
            all.extend(names.iter().map(|&name| name.to_owned()));
        }
        Self(all)
    }

    /// Exactly the one that the host told.
    pub(super) fn exactly(authority: &str) -> Self {
        Self(vec![authority.to_owned()])
    }

    fn has(&self, host: &str) -> bool {
        self.0.iter().any(|known| known == host)
    }
}

/// A pasted link, where the token stands in the address. Everywhere else the header alone counts.
fn is_document(method: &Method, path: &str, prefix: &str) -> bool {
    let rest = path.strip_prefix(prefix);
    matches!(*method, Method::GET | Method::HEAD)
        && rest.is_some_and(|rest| rest == "/" || (rest.is_empty() && !prefix.is_empty()))
}

/// One Host that names this server, and nothing that says that another site is behind the request.
fn comes_from_here(authorities: &Authorities, uri: &Uri, headers: &HeaderMap) -> bool {
    let Some(host) = only(headers, &HOST).filter(|host| authorities.has(host)) else { return false };
    if uri.authority().is_some_and(|authority| authority.as_str() != host) {
        return false;
    }
    let origin_is_here = match Given::of(headers, &ORIGIN) {
        Given::No => true,
        Given::Once(origin) => origin.strip_prefix("http://") == Some(host),
        Given::Otherwise => false,
    };
    let site_is_here = match Given::of(headers, &HeaderName::from_static("sec-fetch-site")) {
        Given::No => true,
        Given::Once(site) => site == "same-origin" || site == "none",
        Given::Otherwise => false,
    };
    origin_is_here && site_is_here
}

enum Given<'a> {
    No,
    Once(&'a str),
    /// Twice, or not readable as text.
    Otherwise,
}

impl<'a> Given<'a> {
    fn of(headers: &'a HeaderMap, name: &HeaderName) -> Self {
        let mut all = headers.get_all(name).iter();
        match (all.next().map(HeaderValue::to_str), all.next()) {
            (None, _) => Self::No,
            (Some(Ok(value)), None) => Self::Once(value),
            _ => Self::Otherwise,
        }
    }
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    match Given::of(headers, name) {
        Given::Once(value) => Some(value),
        Given::No | Given::Otherwise => None,
    }
}

fn bearer(tokens: &Tokens, headers: &HeaderMap) -> Option<Pass> {
    only(headers, &AUTHORIZATION)?.strip_prefix("Bearer ").and_then(|token| tokens.check(token))
}

/// The token of a pasted link: `Some(None)` where there is one and it is nobody's.
fn link_token(tokens: &Tokens, uri: &Uri) -> Option<Option<Pass>> {
    let query = uri.query().unwrap_or("");
    let mut given = query.split('&').filter_map(|pair| pair.strip_prefix("token="));
    match (given.next(), given.next()) {
        (None, _) => None,
        (Some(token), None) => Some(tokens.check(token)),
        (Some(_), Some(_)) => Some(None),
    }
}

/// `%` and two hex digits, or no `%` at all.
fn escapes_are_whole(path: &str) -> bool {
    let bytes = path.as_bytes();
    let whole = |at: usize| bytes.get(at + 1..at + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    bytes.iter().enumerate().filter(|&(_, &b)| b == b'%').all(|(at, _)| whole(at))
}

/// The layer around every route. The [`Pass`] is handed on as an extension.
pub(super) async fn guard(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let mut response = match admit(&shared, &mut request) {
        Ok(()) => next.run(request).await,
        Err(Denied::Failed(no)) => no.into_response(),
        // A person with a link of yesterday: the same bare document, which asks for today's.
        Err(Denied::StaleLink) => super::page::answer(&shared, StatusCode::UNAUTHORIZED),
    };
    let headers = response.headers_mut();
    for (name, value) in ALWAYS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    // The document brings its own, with the nonce.
    headers.entry("content-security-policy").or_insert(HeaderValue::from_static(NOTHING));
    response
}

enum Denied {
    Failed(Failed),
    StaleLink,
}

impl From<Failed> for Denied {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

fn admit(shared: &Shared, request: &mut Request) -> Result<(), Denied> {
    let (method, uri, headers) = (request.method(), request.uri(), request.headers());
    if !comes_from_here(&shared.authorities, uri, headers) {
        return Err(Failed::forbidden().into());
    }
    let pass = bearer(&shared.tokens, headers);
    if is_document(method, uri.path(), &shared.prefix) {
        if let Some(None) = link_token(&shared.tokens, uri) {
            let reads_html = only(headers, &ACCEPT).is_some_and(|accept| accept.contains("text/html"));
            return Err(if reads_html { Denied::StaleLink } else { Failed::unauthorized().into() });
        }
    } else if pass.is_none() {
        return Err(Failed::unauthorized().into());
    }
    if !escapes_are_whole(uri.path()) {
        return Err(Failed::not_found().into());
    }
    if let Some(pass) = pass {
        if let Some(visitor) = request.extensions().get::<Visitor>() {
            visitor.welcome();
        }
        request.extensions_mut().insert(pass);
    }
    Ok(())
}

/// On every answer.
const ALWAYS: [(&str, &str); 6] = [
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// The policy of every answer that is no document.
const NOTHING: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
