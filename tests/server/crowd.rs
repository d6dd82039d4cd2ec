//! Slow clients, and very many of them.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use super::wire::{Reply, World, connect};

/// Sockets of both sides are this process's.
fn raise_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(8_192, |most| most.min(8_192));
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).unwrap();
    assert!(wanted >= 2_048, "this needs 2,048 descriptors");
}

#[test]
fn a_thousand_idle_connections_do_not_stop_a_reviewer() {
    raise_descriptors();
    let world = World::new();
    let plan = world.plan();
    // This one is a guest already, and stays.
    let mut guest = BufReader::new(world.get("/api/events").start(""));
    assert_eq!(Reply::read_head(&mut guest).0, 200);
    let mut idle: Vec<TcpStream> = (0..1_000).map(|_| connect(world.server.address())).collect();
    for (at, stream) in idle.iter_mut().enumerate() {
        // Some say nothing, some say half a head.
        if at % 2 == 0 {
            let _ = stream.write_all(b"GET /api/plans HTTP/1.1\r\nHost: ");
        }
    }
    // A machine may stand still for seconds, but hardly three times in a row.
    let took = [(); 3].map(|()| {
        let since = Instant::now();
        assert_eq!(world.get("/api/plans").send().succeeds()["total"], json!(1));
        since.elapsed()
    });
    assert!(took.iter().any(|took| *took < Duration::from_secs(3)), "{took:?}");
    assert_eq!(world.approve(&plan).send().succeeds()["status"], json!("approved"));
    // The oldest ones were shown out; the guest was not.
    idle[0].set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert_eq!(idle[0].read(&mut [0; 1]).unwrap_or(0), 0);
    let mut line = [0; 1];
    guest.read_exact(&mut line).unwrap();
}

#[test]
fn a_head_that_does_not_come_is_not_waited_for() {
    let world = World::new();
    let since = Instant::now();
    let mut slow = connect(world.server.address());
    slow.write_all(b"GET /api/plans HTTP/1.1\r\n").unwrap();
    let mut silent = connect(world.server.address());
    for stream in [&mut slow, &mut silent] {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(!String::from_utf8_lossy(&rest).contains("200"), "{rest:?}");
    }
    assert!(since.elapsed() < Duration::from_secs(40), "{:?}", since.elapsed());
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for() {
    let world = World::new();
    let plan = world.plan();
    let mut stream = BufReader::new(world.approve(&plan).start("Content-Length: 100\r\n"));
    let reply = Reply::read(&mut stream, false);
    reply.check();
    reply.refuses(408, "REQUEST_TIMEOUT");
    assert_eq!(world.events(&plan), ["awaiting_approval"]);
}

#[test]
fn a_body_that_breaks_off_decides_nothing() {
    let world = World::new();
    let plan = world.plan();
    let body = json!({"seal": plan.seal}).to_string();
    let mut stream = world.approve(&plan).start(&format!("Content-Length: {}\r\n", body.len() + 1));
    stream.write_all(body.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    assert_eq!(world.events(&plan), ["awaiting_approval"]);
}
