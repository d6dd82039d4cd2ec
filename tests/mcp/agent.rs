//! The agent's side: an MCP client, and a recorder of every byte that reaches it.

use std::process::Stdio;
use std::sync::Mutex;

use rmcp::model::{CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest};
use rmcp::service::{PeerRequestOptions, RunningService};
use rmcp::{RoleClient, ServiceError, ServiceExt as _};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::recorder::Seen;
use super::server::{Place, program};

/// One run of the server with a client.
pub(super) struct Session {
    pub(super) client: RunningService<RoleClient, ()>,
    child: Child,
    notes: Mutex<Seen>,
    copying: Vec<JoinHandle<Vec<u8>>>,
}

impl Session {
    pub(super) async fn start(place: &Place) -> Self {
        let mut child = Command::new(program())
            .arg(place.path())
            .env("RUST_LOG", "trace")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let copying = vec![
            tokio::spawn(copy(stdout, theirs)),
            tokio::spawn(copy(child.stderr.take().unwrap(), tokio::io::sink())),
        ];
        let client = ().serve((ours, stdin)).await.unwrap();
        Self { client, child, notes: Mutex::default(), copying }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub(super) async fn call(&self, tool: &'static str, args: Value) -> Result<CallToolResult, ServiceError> {
        self.client.call_tool(params(tool, args)).await
    }

    /// A call that is answered; its result.
    pub(super) async fn ok(&self, tool: &'static str, args: Value) -> Value {
        let result = self.call(tool, args).await.unwrap();
        assert_eq!(result.is_error, Some(false), "{tool}: {result:?}");
        structured(&result)
    }

    /// A call that is refused: a tool's error with code, message and hint.
    pub(super) async fn refused(&self, tool: &'static str, args: Value) -> Value {
        let result = self.call(tool, args).await.unwrap();
        assert_eq!(result.is_error, Some(true), "{tool}: {result:?}");
        let refused = structured(&result);
        for part in ["code", "message", "hint"] {
            assert!(refused[part].as_str().is_some_and(|text| !text.is_empty()), "{refused}");
        }
        refused
    }

    /// A call beside this task.
    pub(super) fn start_call(
        &self,
        tool: &'static str,
        args: Value,
    ) -> JoinHandle<Result<CallToolResult, ServiceError>> {
        let peer = self.client.peer().clone();
        tokio::spawn(async move { peer.call_tool(params(tool, args)).await })
    }

    /// A call that the client cancels when `then` says so.
    pub(super) async fn start_and_cancel(&self, tool: &'static str, args: Value, then: impl FnOnce()) {
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params(tool, args)));
        let options = PeerRequestOptions::default();
        let handle = self.client.peer().send_cancellable_request(request, options).await.unwrap();
        tokio::task::block_in_place(then);
        handle.cancel(Some("the user changed their mind".to_owned())).await.unwrap();
    }

    pub(super) fn note(&self, what: &str, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "{what}");
        self.notes.lock().unwrap().add(bytes);
    }

    /// SIGKILL, as a crash has it.
    pub(super) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Closes standard input, as a client does; the server ends by itself. Answers all that was seen.
    pub(super) async fn end(mut self) -> Seen {
        self.client.cancel().await.unwrap();
        assert!(self.child.wait().await.unwrap().success());
        let mut seen = self.notes.into_inner().unwrap();
        for stream in self.copying {
            seen.add(&stream.await.unwrap());
        }
        seen
    }
}

fn params(tool: &'static str, args: Value) -> CallToolRequestParams {
    let Value::Object(args) = args else { panic!("arguments are an object") };
    CallToolRequestParams::new(tool).with_arguments(args)
}

/// The structured content, which the text repeats for clients that know no other.
fn structured(result: &CallToolResult) -> Value {
    let structured = result.structured_content.clone().expect("structured content");
    let text = result.content[0].as_text().expect("a text");
    assert_eq!(serde_json::from_str::<Value>(&text.text).unwrap(), structured);
    structured
}

/// Passes on what it records, until the end of the stream. Answers the record.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> Vec<u8> {
    let mut seen = Vec::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut piece).await.unwrap();
        if read == 0 {
            return seen;
        }
        seen.extend_from_slice(&piece[..read]);
        // A client that is gone reads no more; the recorder goes on.
        let _ = to.write_all(&piece[..read]).await;
    }
}
