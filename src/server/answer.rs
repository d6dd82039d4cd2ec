//! Answers: JSON, and the one shape of a "no".

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use serde::Serialize;

use crate::error::{Error, Refusal, RefusalCode};

/// A body of JSON.
pub(super) struct Json<T>(pub(super) T);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response<Body> {
        match serde_json::to_vec(&self.0) {
            Ok(bytes) => json(StatusCode::OK, bytes),
            Err(_) => Failed::internal().into_response(),
        }
    }
}

fn json(status: StatusCode, bytes: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    response
}

/// A request that got a "no". The message holds nothing that the request or the machine brought along.
#[derive(Debug)]
pub(super) struct Failed {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: Option<String>,
    reason: Option<String>,
}

#[derive(Serialize)]
struct FailedBody<'a> {
    ok: bool,
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl Failed {
    fn own(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), hint: None, reason: None }
    }

    pub(super) fn forbidden() -> Self {
        Self::own(StatusCode::FORBIDDEN, "FORBIDDEN", "the request does not come from this server's own page")
    }

    pub(super) fn unauthorized() -> Self {
        Self::own(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", "no reviewer has this token")
    }

    pub(super) fn not_found() -> Self {
        Self::own(StatusCode::NOT_FOUND, "NOT_FOUND", "there is nothing at this address")
    }

    pub(super) fn method_not_allowed() -> Self {
        Self::own(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", "this address does not take that method")
    }

    pub(super) fn media_type() -> Self {
        Self::own(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UNSUPPORTED_MEDIA_TYPE", "the body must be application/json")
    }

    pub(super) fn too_large() -> Self {
        Self::own(StatusCode::PAYLOAD_TOO_LARGE, "PAYLOAD_TOO_LARGE", "the body is larger than 64 KiB")
    }

    pub(super) fn too_slow() -> Self {
        Self::own(StatusCode::REQUEST_TIMEOUT, "REQUEST_TIMEOUT", "the body did not arrive in time")
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::own(StatusCode::BAD_REQUEST, "BAD_REQUEST", message)
    }

    pub(super) fn busy() -> Self {
        Self::own(StatusCode::SERVICE_UNAVAILABLE, "BUSY", "the server is busy; nothing was changed")
    }

    pub(super) fn internal() -> Self {
        Self::own(
            StatusCode::INTERNAL_SERVER_ERROR,
            "INTERNAL_ERROR",
            "the server could not do this; its host has the details",
        )
    }

    /// The gate's answer. A refusal is passed on; of a failure, only that there was one, and the host is told the rest.
    pub(super) fn from_gate(error: &Error) -> Self {
        if let Some(refusal) = error.refusal() {
            return Self::refused(refusal);
        }
        if error.is_invalid_input() {
            return Self::bad_request(error.to_string());
        }
        crate::report::problem(&format!("approval server: {error}"));
        if error.is_busy() { Self::busy() } else { Self::internal() }
    }

    fn refused(refusal: &Refusal) -> Self {
        Self {
            status: status(refusal.code()),
            code: refusal.code().as_str(),
            message: refusal.message().to_owned(),
            hint: Some(refusal.hint().to_owned()),
            reason: refusal.reason().map(str::to_owned),
        }
    }
}

fn status(code: RefusalCode) -> StatusCode {
    match code {
        RefusalCode::UnknownToken => StatusCode::NOT_FOUND,
        RefusalCode::PlanExpired => StatusCode::GONE,
        RefusalCode::PlanUsed
        | RefusalCode::PlanRejected
        | RefusalCode::AlreadyExecuting
        | RefusalCode::ApprovalMismatch => StatusCode::CONFLICT,
        RefusalCode::SelfApproval => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_REQUEST,
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response<Body> {
        let body = FailedBody {
            ok: false,
            code: self.code,
            message: &self.message,
            hint: self.hint.as_deref(),
            reason: self.reason.as_deref(),
        };
        // A struct of texts always serialises.
        let mut response = json(self.status, serde_json::to_vec(&body).unwrap_or_default());
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
