//! Tells a webhook on this machine that a plan waits for approval.
//!
//! ```text
//! cargo run --example webhook                                  # with a receiver of its own, to see one message
//! cargo run --example webhook -- http://127.0.0.1:8080/hook    # your receiver
//! ```
//!
//! A sink is called on the thread of the verb, so it must not wait: this one hands a message to a bounded queue, and a
//! thread posts it. What finds no room is counted; the audit table is the record, and `pending` lists what waits.
//!
//! The post is a few lines over a TcpStream: loopback needs no TLS, and a gate gains no HTTP client. For a webhook
//! elsewhere put your own client into `post`.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use countersign::{Approval, AuditEvent, AuditSink, Gate, NewPlan};

/// How many messages wait while the webhook is slow.
const QUEUE: usize = 100;
/// How long one post may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Queues a message for each plan that begins to wait.
struct Webhook {
    queue: SyncSender<String>,
    dropped: AtomicU64,
}

impl AuditSink for Webhook {
    fn on_event(&self, event: &AuditEvent) {
        // `regated` sends a plan back to the reviewers too.
        let waits = event.to_state.as_deref() == Some("awaiting_approval");
        if !waits || !matches!(event.event.as_str(), "awaiting_approval" | "regated") {
            return;
        }
        // No plan token: it redeems the plan, and whoever decides finds the plan on the approval page.
        let message = serde_json::json!({
            "event": "plan_waits", "seq": event.seq, "tool": event.tool, "caller": event.caller,
            "reason": event.reason, "preview_count": event.preview_count,
        });
        if self.queue.try_send(message.to_string()).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Where to post: a URL of this machine.
struct Target {
    address: SocketAddr,
    path: String,
}

impl Target {
    fn parse(url: &str) -> Result<Self, Box<dyn Error>> {
        let rest = url.strip_prefix("http://").ok_or("the webhook's URL begins with http://")?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if !path.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("the webhook's path has a character that must be escaped".into());
        }
        let address: SocketAddr = host.replacen("localhost", "127.0.0.1", 1).parse()?;
        if !address.ip().is_loopback() {
            return Err("this example posts without TLS, so to loopback alone".into());
        }
        Ok(Self { address, path: if path.is_empty() { "/".to_owned() } else { path.to_owned() } })
    }
}

/// One POST; answers the status line.
fn post(target: &Target, body: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect_timeout(&target.address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        target.path,
        target.address,
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.take(64 * 1024).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.lines().next().unwrap_or_default().to_owned();
    if status.split(' ').nth(1).is_some_and(|code| code.starts_with('2')) { Ok(status) } else { Err(status.into()) }
}

/// Posts what is queued until the sink is gone; a message that fails is tried three times.
fn deliver(target: &Target, queue: &Receiver<String>) {
    for message in queue {
        let delivered = (0..3).any(|attempt| match post(target, &message) {
            Ok(_) => true,
            Err(error) => {
                eprintln!("webhook: {error}");
                thread::sleep(Duration::from_millis(200 << attempt));
                false
            }
        });
        if !delivered {
            eprintln!("webhook: gave up on {message}");
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (target, receiver) = match std::env::args().nth(1) {
        Some(url) => (Target::parse(&url)?, None),
        None => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let url = format!("http://{}/hook", listener.local_addr()?);
            (Target::parse(&url)?, Some(thread::spawn(move || receive_one(&listener))))
        }
    };
    let (queue, queued) = sync_channel(QUEUE);
    let sink = Arc::new(Webhook { queue, dropped: AtomicU64::new(0) });
    let delivering = thread::spawn(move || deliver(&target, &queued));

    let directory = std::env::temp_dir().join(format!("countersign-webhook-{}", std::process::id()));
    std::fs::create_dir(&directory)?;
    let gate = Gate::builder(directory.join("gate.db")).audit_sink(sink.clone()).open()?;
    let agent = gate.agent("pricing-agent")?;
    agent.create(
        NewPlan::new("update_prices", &serde_json::json!({"category": "tea", "percent": -10}), Approval::required())
            .reason("spring sale")
            .preview_count(62),
    )?;

    // A host goes on here. This one ends: the last sender goes, the queue runs empty, the thread ends.
    gate.close()?;
    drop((agent, gate));
    println!("messages dropped: {}", sink.dropped.load(Ordering::Relaxed));
    drop(sink);
    delivering.join().map_err(|_| "the delivering thread panicked")?;
    if let Some(receiver) = receiver {
        let message = receiver.join().map_err(|_| "the receiving thread panicked")??;
        println!("the webhook was told: {message}");
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

/// A receiver for one message: answers 204 and returns the body.
fn receive_one(listener: &TcpListener) -> std::io::Result<String> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read = stream.read(&mut piece)?;
        request.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse::<usize>().ok());
            if read == 0 || length.is_none_or(|length| body.len() >= length) {
                stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")?;
                return Ok(body.to_owned());
            }
        } else if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}
