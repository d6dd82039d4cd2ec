//! The person's side: the link's file, and requests as a browser sends them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::server::Place;

pub(super) struct Page {
    file: PathBuf,
    port: u16,
    pub(super) token: String,
}

impl Page {
    /// The page of the server that runs there, once its link is written.
    pub(super) fn of(place: &Place) -> Option<Self> {
        let owners = std::fs::read_dir(place.path().join("gate.db.owners")).ok()?;
        let is_link =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("reviewer-"));
        let file = owners.flatten().map(|entry| entry.path()).find(is_link)?;
        #[allow(clippy::disallowed_methods, reason = "the link's file, never the database")]
        let link = std::fs::read_to_string(&file).ok()?;
        let rest = link.trim().strip_prefix("http://127.0.0.1:").expect("a link of this machine");
        let (port, token) = rest.split_once("/?token=").expect("a link with a token");
        assert!(token.len() >= 32);
        Some(Self { port: port.parse().unwrap(), token: token.to_owned(), file })
    }

    pub(super) fn mode(&self) -> u32 {
        std::fs::metadata(&self.file).unwrap().permissions().mode() & 0o777
    }

    pub(super) fn get(&self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\n{}\r\n", self.headers()))
    }

    pub(super) fn decide(&self, plan: &str, action: &str, seal: &str) -> String {
        let body = serde_json::json!({"seal": seal}).to_string();
        self.send(&format!(
            "POST /api/plans/{plan}/{action} HTTP/1.1\r\n{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.headers(),
            body.len()
        ))
    }

    fn headers(&self) -> String {
        format!("Host: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n", self.port, self.token)
    }

    fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(super::SOON)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}
