//! How the link reaches the person, and nobody else.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use countersign::{ApprovalServer, Gate};
use serde_json::{Value, json};

use super::common;

use super::common::tools::{can, run};
use super::wire::{Request, World, token_of};

fn links_of(gate: &Gate) -> Vec<PathBuf> {
    let name = format!("{}.owners", gate.path().file_name().unwrap().to_string_lossy());
    let entries = std::fs::read_dir(gate.path().with_file_name(name)).unwrap();
    let mut links: Vec<_> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.to_string_lossy().contains("link")).collect();
    links.sort();
    links
}

#[test]
fn each_link_lies_in_a_file_for_this_user_alone_until_the_close() {
    let World { gate, server } = World::new();
    let files = links_of(&gate);
    let names: Vec<_> = files.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    let port = server.port();
    assert_eq!(names, [format!("reviewer-ada-{port}.link"), format!("reviewer-bob-{port}.link")]);
    for (file, (_, link)) in files.iter().zip(server.links()) {
        assert_eq!(std::fs::read_to_string(file).unwrap().trim_end(), link);
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(link.starts_with(&format!("http://127.0.0.1:{port}/?token=")));
    }
    let directory = files[0].parent().unwrap();
    assert_eq!(std::fs::metadata(directory).unwrap().permissions().mode() & 0o777, 0o700);
    let link = server.rotate("ada").unwrap();
    assert_eq!(std::fs::read_to_string(&files[0]).unwrap().trim_end(), link);
    server.close();
    assert_eq!(links_of(&gate), Vec::<PathBuf>::new());
}

#[test]
fn a_dead_servers_link_is_removed_and_a_live_ones_is_not() {
    let gate = common::ephemeral(|builder| builder);
    let live = World::on(gate.clone(), |builder| builder);
    let dead = links_of(&gate)[0].with_file_name("reviewer-ada-1.link");
    std::fs::write(&dead, "http://127.0.0.1:1/?token=0").unwrap();
    let later = World::on(gate.clone(), |builder| builder);
    assert!(!dead.exists());
    assert_eq!(links_of(&gate).len(), 4);
    drop((live, later));
}

#[test]
fn it_listens_on_loopback_alone() {
    let world = World::new();
    assert_eq!(world.server.address().ip(), std::net::Ipv4Addr::LOCALHOST);
    let port = world.server.port();
    // The same port on another of this machine's addresses is free.
    drop(TcpListener::bind(("127.0.0.2", port)).unwrap());
}

#[test]
fn a_busy_port_is_an_error_and_leaves_no_link() {
    let gate = common::ephemeral(|builder| builder);
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = ApprovalServer::builder(&gate).reviewer("ada").serve(port).unwrap_err();
    assert!(error.is_unsupported(), "{error:?}");
    assert!(
        error.to_string().starts_with(&format!("the approval server cannot listen on 127.0.0.1:{port}: ")),
        "{error}"
    );
    assert_eq!(links_of(&gate), Vec::<PathBuf>::new());
}

#[test]
fn after_the_close_nobody_listens() {
    let World { server, gate: _gate } = World::new();
    let address = server.address();
    server.close();
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn what_is_printed_of_a_server_holds_no_token() {
    let world = World::new();
    let token = world.token("ada");
    let printed = format!("{:?}", world.server);
    assert!(printed.contains("127.0.0.1") && !printed.contains(&token[..8]), "{printed}");
}

/// Another process that serves, is asked something wrong, decides, and goes; what it printed is its parent's to judge.
pub(crate) fn serve(args: &Value) {
    let gate = Gate::open(args["db"].as_str().unwrap()).unwrap();
    let world =
        World::on(gate, |builder| builder.render_plan(|_| panic!("on purpose")).on_decision(|_| panic!("on purpose")));
    let plan = world.plan();
    world.get("/api/plans").send().succeeds();
    world.get(&format!("/?token={}", world.token("ada"))).send().succeeds();
    world.approve(&plan).send().succeeds();
    world.server.rotate("bob").unwrap();
    let first = std::fs::read_to_string(links_of(&world.gate).first().unwrap()).unwrap();
    // Its own arguments and environment, as others of this machine's users see them.
    for file in ["/proc/self/cmdline", "/proc/self/environ"] {
        let seen = std::fs::read(file).unwrap();
        assert!(!String::from_utf8_lossy(&seen).contains(&world.token("ada")), "{file}");
    }
    std::fs::write(args["copy"].as_str().unwrap(), format!("{first}{}", world.token("bob"))).unwrap();
}

/// Runs it behind a wrapper; answers all that it printed, ada's token and bob's.
fn printed(wrapper: &[&str]) -> (String, String, String) {
    let directory = common::directory();
    let copy = directory.join("copy");
    let args = json!({"db": directory.join("gate.db"), "copy": copy});
    let exe = std::env::current_exe().unwrap();
    let mut words: Vec<&Path> = wrapper.iter().map(Path::new).collect();
    words.push(&exe);
    let output = Command::new(words[0])
        .args(&words[1..])
        .args(["role", "--exact", "--nocapture", "--test-threads=1"])
        .env("COUNTERSIGN_TEST_ROLE", "serve")
        .env("COUNTERSIGN_TEST_ARGS", args.to_string())
        .output()
        .unwrap();
    let all = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{all}");
    let copied = std::fs::read_to_string(copy).unwrap();
    let (link, bob) = copied.split_once('\n').unwrap();
    (all, token_of(link), bob.to_owned())
}

#[test]
fn piped_output_holds_no_token_whatever_goes_wrong() {
    let (all, ada, bob) = printed(&[]);
    assert!(all.contains("render_plan failed"), "the host is told: {all}");
    assert!(all.contains("on_decision panicked"), "the host is told: {all}");
    assert!(!all.contains(&ada[..16]) && !all.contains(&bob[..16]) && !all.contains("token="), "{all}");
}

#[test]
fn a_terminal_is_shown_the_links() {
    if !can("the program script", run("script", &["-qec", "true", "/dev/null"])) {
        return;
    }
    let (all, ada, bob) = printed(&["sh", "-c", "exec script -qec \"$0 $*\" /dev/null"]);
    assert!(all.contains(&format!("/?token={ada}")), "{all}");
    assert!(all.contains(&format!("/?token={bob}")), "the rotated one too: {all}");
}

#[test]
fn a_synchronous_host_and_an_asynchronous_one_can_serve() {
    // This test is the synchronous one.
    let world = World::new();
    world.get("/api/plans").send().succeeds();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let gate = world.gate.clone();
    runtime.block_on(async {
        let server = ApprovalServer::builder(&gate).reviewer("ada").serve(0).unwrap();
        let token = token_of(&server.link("ada").unwrap());
        Request::new("GET", "/api/plans", server.address()).bearer(&token).send().succeeds();
        server.close();
    });
}
