//! The approval page's routes, over a socket as a browser asks.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use countersign::{ApprovalServer, Gate};

/// A server on one file.
pub(crate) struct Routes {
    server: ApprovalServer,
    token: String,
}

/// What is asked for, with the plan that was just settled.
pub(crate) fn all(plan: &str) -> [(&'static str, String); 6] {
    [
        ("GET /", "/".to_owned()),
        ("GET /api/plans", "/api/plans".to_owned()),
        ("GET /api/plans/{token}", format!("/api/plans/{plan}")),
        ("GET /api/history", "/api/history".to_owned()),
        ("GET /api/history/{token}", format!("/api/history/{plan}")),
        ("GET /api/stuck", "/api/stuck".to_owned()),
    ]
}

impl Routes {
    pub(crate) fn new(gate: &Gate) -> Self {
        let server = ApprovalServer::builder(gate).reviewer("ada").serve(0).expect("a free port");
        let link = server.link("ada").expect("a link");
        let token = link.split_once("?token=").expect("with its token").1.to_owned();
        Self { server, token }
    }

    pub(crate) fn get(&self, path: &str) {
        let mut stream = TcpStream::connect(self.server.address()).expect("it listens");
        // The page itself takes the token of the link; the routes take the header.
        let path = if path == "/" { format!("/?token={}", self.token) } else { path.to_owned() };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
            self.server.address(),
            self.token
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
}
