//! The stream: it says that something changed, to those who may know.

use std::io::BufReader;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use countersign::{Approval, Gate, NewPlan};
use serde_json::{Value, json};

use super::common::child::{self, Child};
use super::wire::{Reply, World, read_chunk};

/// Another process, which proposes one plan for each line that it hears.
pub(crate) fn propose(args: &Value) {
    let gate = Gate::open(args["db"].as_str().unwrap()).unwrap();
    let agent = gate.agent("another-process").unwrap();
    child::say("ready");
    while !child::hear().is_empty() {
        agent.create(NewPlan::new("archive", &1, Approval::required())).unwrap();
        child::say("proposed");
    }
}

struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(world: &World, reviewer: &str) -> Self {
        let stream = world.get("/api/events").bearer(&world.token(reviewer)).start("");
        let mut stream = BufReader::new(stream);
        let (status, headers) = Reply::read_head(&mut stream);
        let reply = Reply { status, headers, body: Vec::new() };
        reply.check();
        assert_eq!((status, reply.header("content-type")), (200, Some("text/event-stream")));
        Self(stream)
    }

    /// The next event's text; `None` when the stream has ended. Comments that keep it alive are left out.
    fn next(&mut self) -> Option<String> {
        loop {
            let text = String::from_utf8(read_chunk(&mut self.0)?).unwrap();
            if !text.starts_with(':') {
                return Some(text);
            }
        }
    }
}

pub(crate) fn first_events(world: &World, count: usize) -> String {
    let mut stream = Stream::open(world, "ada");
    (0..count).map(|_| stream.next().unwrap()).collect()
}

#[test]
fn a_plan_of_another_process_is_announced_within_a_second() {
    let world = World::new();
    let mut stream = Stream::open(&world, "ada");
    assert_eq!(stream.next().unwrap(), format!("event: head\ndata: {{\"seq\":{}}}\n\n", world.head()));
    let mut other = Child::start("propose", &json!({"db": world.gate.path()}));
    other.expect("ready");
    let mut took = Vec::new();
    for _ in 0..5 {
        other.tell("go");
        other.expect("proposed");
        let since = Instant::now();
        let event = stream.next().unwrap();
        took.push(since.elapsed());
        assert_eq!(event, format!("event: head\ndata: {{\"seq\":{}}}\n\n", world.head()));
    }
    took.sort();
    println!("from the commit in another process to the event: {took:?}");
    assert!(took[2] < Duration::from_secs(1), "{took:?}");
    other.finish();
}

#[test]
fn a_rotation_ends_the_streams_of_that_reviewer_alone() {
    let world = World::new();
    let (mut ada, mut bob) = (Stream::open(&world, "ada"), Stream::open(&world, "bob"));
    assert!(ada.next().is_some() && bob.next().is_some());
    world.server.rotate("ada").unwrap();
    assert_eq!(ada.next(), None);
    world.plan();
    assert!(bob.next().unwrap().contains(&format!("{{\"seq\":{}}}", world.head())));
}

#[test]
fn the_close_ends_every_stream() {
    let World { gate, server } = World::new();
    let world = World { gate, server };
    let mut stream = Stream::open(&world, "ada");
    assert!(stream.next().is_some());
    let since = Instant::now();
    world.server.close();
    assert_eq!(stream.next(), None);
    assert!(since.elapsed() < Duration::from_secs(10));
}

#[test]
fn streams_are_bounded_and_others_are_told_that_it_is_busy() {
    let world = World::new();
    let mut open: Vec<_> = (0..64).map(|_| Stream::open(&world, "ada")).collect();
    world.get("/api/events").send().refuses(503, "BUSY");
    world.get("/api/plans").send().succeeds();
    // Those that are open go on.
    world.plan();
    for stream in &mut open {
        assert!(stream.next().is_some());
    }
}
