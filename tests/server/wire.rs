//! HTTP by hand, so that a request can be as wrong as it likes. Every answer is checked for what all must have.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use countersign::{Agent, Approval, ApprovalServer, ApprovalServerBuilder, Created, Gate, NewPlan, Operator, State};
use serde_json::{Value, json};

use super::common;

/// A gate and a server with the reviewers ada and bob.
pub(crate) struct World {
    pub(crate) gate: Gate,
    pub(crate) server: ApprovalServer,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(set: impl FnOnce(ApprovalServerBuilder) -> ApprovalServerBuilder) -> Self {
        Self::on(common::ephemeral(|builder| builder), set)
    }

    pub(crate) fn on(gate: Gate, set: impl FnOnce(ApprovalServerBuilder) -> ApprovalServerBuilder) -> Self {
        let server = set(ApprovalServer::builder(&gate)).reviewer("ada").reviewer("bob").serve(0).unwrap();
        Self { gate, server }
    }

    pub(crate) fn agent(&self) -> Agent {
        self.gate.agent("pricing-agent").unwrap()
    }

    pub(crate) fn operator(&self) -> Operator {
        self.gate.operator("test").unwrap()
    }

    /// A plan that waits.
    pub(crate) fn plan(&self) -> Created {
        self.agent().create(NewPlan::new("archive", &json!({"id": 1}), Approval::required())).unwrap()
    }

    pub(crate) fn state(&self, plan: &Created) -> State {
        self.operator().plan(&plan.plan_token).unwrap().state
    }

    pub(crate) fn events(&self, plan: &Created) -> Vec<String> {
        self.operator().history(&plan.plan_token).unwrap().into_iter().map(|row| row.event).collect()
    }

    /// The newest audit row: what writes nothing leaves it where it is.
    pub(crate) fn head(&self) -> i64 {
        self.operator().audit().head().unwrap().seq
    }

    pub(crate) fn token(&self, reviewer: &str) -> String {
        token_of(&self.server.link(reviewer).unwrap())
    }

    /// A request as ada's page sends it.
    pub(crate) fn get(&self, path: &str) -> Request {
        Request::new("GET", path, self.server.address()).bearer(&self.token("ada"))
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Request {
        Request::new("POST", path, self.server.address())
            .bearer(&self.token("ada"))
            .header("Content-Type", "application/json")
            .body(body.to_string())
    }

    pub(crate) fn approve(&self, plan: &Created) -> Request {
        self.post(&format!("/api/plans/{}/approve", plan.plan_token), &json!({"seal": plan.seal}))
    }

    pub(crate) fn reject(&self, plan: &Created, reason: Option<&str>) -> Request {
        self.post(&format!("/api/plans/{}/reject", plan.plan_token), &json!({"seal": plan.seal, "reason": reason}))
    }
}

pub(crate) fn token_of(link: &str) -> String {
    link.split_once("?token=").unwrap().1.to_owned()
}

/// A request, header by header.
#[derive(Clone)]
pub(crate) struct Request {
    method: String,
    path: String,
    address: SocketAddr,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(method: &str, path: &str, address: SocketAddr) -> Self {
        let headers = vec![("Host".to_owned(), address.to_string())];
        Self { method: method.to_owned(), path: path.to_owned(), address, headers, body: Vec::new() }
    }

    pub(crate) fn method(mut self, method: &str) -> Self {
        self.method = method.to_owned();
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// In place of all headers of that name.
    pub(crate) fn replace(self, name: &str, value: &str) -> Self {
        self.without(name).header(name, value)
    }

    pub(crate) fn bearer(self, token: &str) -> Self {
        self.replace("Authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    fn head(&self) -> String {
        let headers: String = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("{} {} HTTP/1.1\r\n{headers}", self.method, self.path)
    }

    /// Sends it with a Content-Length.
    pub(crate) fn send(&self) -> Reply {
        let length =
            if self.body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", self.body.len()) };
        let mut bytes = format!("{}{length}Connection: close\r\n\r\n", self.head()).into_bytes();
        bytes.extend_from_slice(&self.body);
        self.exchange(&bytes)
    }

    /// Sends the body in chunks, without saying how long it is.
    pub(crate) fn send_chunked(&self) -> Reply {
        let mut bytes = format!("{}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n", self.head()).into_bytes();
        for chunk in self.body.chunks(4096) {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        self.exchange(&bytes)
    }

    /// Opens the connection and sends the head alone.
    pub(crate) fn start(&self, more_headers: &str) -> TcpStream {
        let mut stream = connect(self.address);
        stream.write_all(format!("{}{more_headers}\r\n", self.head()).as_bytes()).unwrap();
        stream
    }

    fn exchange(&self, bytes: &[u8]) -> Reply {
        let mut stream = connect(self.address);
        // A server that has said no already need not take the rest.
        let _ = stream.write_all(bytes);
        let reply = Reply::read(&mut BufReader::new(stream), self.method == "HEAD");
        reply.check();
        for (_, value) in &self.headers {
            if let Some(token) = value.strip_prefix("Bearer ").filter(|token| token.len() > 20) {
                assert!(!reply.text().contains(token), "the answer repeats the token");
            }
        }
        reply
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn read(stream: &mut impl std::io::BufRead, bare: bool) -> Self {
        let (status, headers) = Self::read_head(stream);
        let mut reply = Self { status, headers, body: Vec::new() };
        if bare {
            return reply;
        }
        if reply.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = read_chunk(stream) {
                reply.body.extend(chunk);
            }
        } else {
            let length = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
            stream.take(length).read_to_end(&mut reply.body).unwrap();
        }
        reply
    }

    pub(crate) fn read_head(stream: &mut impl std::io::BufRead) -> (u16, Vec<(String, String)>) {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {line:?}")).parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { return (status, headers) };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        format!("{:?} {}", self.headers, String::from_utf8_lossy(&self.body))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    /// The answer is this "no", in the one shape.
    #[track_caller]
    pub(crate) fn refuses(&self, status: u16, code: &str) {
        let body = self.json();
        assert_eq!((self.status, body["code"].as_str()), (status, Some(code)), "{}", self.text());
        assert_eq!(body["ok"], json!(false));
        assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()));
    }

    #[track_caller]
    pub(crate) fn succeeds(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        if self.body.is_empty() { Value::Null } else { serde_json::from_slice(&self.body).unwrap_or_default() }
    }

    /// What every answer has, and what none may have.
    #[track_caller]
    pub(crate) fn check(&self) {
        let all = |name: &str| self.headers.iter().filter(|(known, _)| known == name).count();
        for (name, value) in [
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("x-frame-options", "DENY"),
        ] {
            assert_eq!((self.header(name), all(name)), (Some(value), 1), "{name}: {}", self.text());
        }
        let policy = self.header("content-security-policy").unwrap();
        assert_eq!(all("content-security-policy"), 1);
        for part in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        let open = self.headers.iter().find(|(name, _)| name.starts_with("access-control-"));
        assert_eq!(open, None, "no other site may read an answer");
    }
}

/// One chunk; `None` for the last one.
pub(crate) fn read_chunk(stream: &mut impl std::io::BufRead) -> Option<Vec<u8>> {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    let length = usize::from_str_radix(line.trim_end(), 16).ok().filter(|length| *length > 0)?;
    let mut chunk = vec![0; length + 2];
    stream.read_exact(&mut chunk).unwrap();
    chunk.truncate(length);
    Some(chunk)
}

impl Request {
    pub(crate) fn path(mut self, path: &str) -> Self {
        self.path = path.to_owned();
        self
    }
}
