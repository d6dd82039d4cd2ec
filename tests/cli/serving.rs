//! The approval server, started from the terminal.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use super::host::Host;
use super::run::{command, directory, run};

#[test]
fn it_serves_this_file_on_loopback_until_a_signal_and_prints_no_link_into_a_pipe() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    let mut host = Host::start(&db);
    let token = host.tell("gated shoes");
    let mut child = command(Some(&db), &["serve", "--reviewer", "ada", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let port = u16::try_from(said["port"].as_u64().unwrap()).unwrap();
    let links = || -> Vec<_> {
        let all = std::fs::read_dir(dir.path().join("gate.db.owners")).unwrap();
        all.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "link")).collect()
    };
    let link = std::fs::read_to_string(&links()[0]).unwrap();
    let secret = link.trim().split_once("token=").unwrap().1.to_owned();
    let ask = |authorization: &str| {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(socket, "GET /api/plans HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{authorization}Connection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("").starts_with("HTTP/1.1 401"));
    let answer = ask(&format!("Authorization: Bearer {secret}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(&token), "{answer}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    let printed = format!("{said}{rest:?}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!printed.contains(&secret), "{printed}");
    assert_eq!(links(), [""; 0].map(std::path::PathBuf::from));
}

#[test]
fn it_needs_a_reviewer_and_a_free_port() {
    let dir = directory();
    let db = dir.path().join("gate.db");
    drop(Host::start(&db));
    assert!(run(&db, &["serve"]).failed(2).contains("--reviewer <NAME>"));
    assert!(run(&db, &["serve", "--reviewer", "not a name"]).failed(2).contains("is not a name"));
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let failed = run(&db, &["serve", "--reviewer", "ada", "--port", &port]);
    assert_eq!(failed.code, 3, "{}", failed.stderr);
    assert!(failed.stderr.contains(&port), "{}", failed.stderr);
}
