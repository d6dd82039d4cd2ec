//! What each verb costs as the file grows: 1,000, 100,000 and 1,000,000 settled plans with five audit rows each. The
//! three files are asked in turn, so that the disk's own swings meet all of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use countersign::{Agent, Approval, AuditQuery, Created, Gate, NewPlan, Operator, Outcome, Redeem, Reviewer};

use crate::figures::{Figures, median};
#[path = "../audit/fill.rs"]
#[allow(dead_code, reason = "the bench of the audit asks for more")]
mod fill;
#[cfg(feature = "approval-server")]
#[path = "routes.rs"]
mod routes;

const SIZES: [u32; 3] = [1_000, 100_000, 1_000_000];
const ROUNDS: u32 = 400;

/// The argument that makes this program the process whose memory is looked at.
pub(crate) const CHILD: &str = "--child-memory";

/// One file with its handles.
struct Site {
    path: PathBuf,
    plans: u32,
    /// Name and seconds, in the order in which they are measured.
    samples: Vec<(&'static str, Vec<f64>)>,
    agent: Agent,
    reviewer: Reviewer,
    operator: Operator,
    #[cfg(feature = "approval-server")]
    routes: routes::Routes,
    _gate: Gate,
}

pub(crate) fn run(figures: &mut Figures) {
    let directory = tempfile::Builder::new().prefix("bench-").tempdir_in(".").expect("a directory on this disk");
    let mut sites = SIZES.map(|size| {
        let path = directory.path().join(format!("{size}.db"));
        drop(Gate::open(&path).expect("the gate opens"));
        fill::fill(&path, size);
        let bytes = std::fs::metadata(&path).expect("the file is there").len();
        figures.note(format!("file bytes a plan, {size} plans"), bytes as f64 / f64::from(size), "bytes");
        Site::open(path, size)
    });
    for round in 0..ROUNDS {
        sites.rotate_left(1);
        for site in &mut sites {
            site.round(round);
        }
    }
    sites.sort_by_key(|site| site.plans);
    let mut medians = Vec::new();
    let mut paths = Vec::new();
    for site in sites {
        let of_site: Vec<_> = site.samples.into_iter().map(|(name, mut times)| (name, median(&mut times))).collect();
        medians.push(of_site);
        paths.push(site.path);
    }
    for (at, (name, smallest)) in medians[0].iter().enumerate() {
        for (size, of_site) in SIZES.iter().zip(&medians) {
            figures.note(format!("{name}, {size} plans"), of_site[at].1 * 1e6, "us");
        }
        figures.at_most(format!("{name}, largest file over smallest"), medians[2][at].1 / smallest, 1.3);
    }
    if cfg!(not(feature = "approval-server")) {
        println!("skipped: page and JSON routes need --features approval-server");
    }
    for (size, path) in SIZES.iter().zip(&paths) {
        figures.at_most(format!("peak memory of a process, {size} plans"), peak_mb(path), 20.0);
    }
}

impl Site {
    /// 100 waiting and 100 stuck plans stand in every file.
    fn open(path: PathBuf, plans: u32) -> Self {
        let gate = Gate::builder(&path).reconcile(|_| Ok(Outcome::Unknown)).max_pending(1_000).open();
        let gate = gate.expect("the gate opens");
        let agent = gate.agent("pricing-agent").expect("a name");
        for number in 0..100 {
            create(&agent, &format!("waiting {number}"), Approval::required());
            let stuck = create(&agent, &format!("stuck {number}"), Approval::NotNeeded);
            drop(agent.begin_execute(Redeem::stored(&stuck.plan_token, TOOL)).expect("claimed"));
        }
        let operator = gate.operator("olga").expect("a name");
        operator.recover().expect("all uncertain");
        Self {
            path,
            plans,
            samples: Vec::new(),
            agent,
            reviewer: gate.reviewer("ada").expect("a name"),
            operator,
            #[cfg(feature = "approval-server")]
            routes: routes::Routes::new(&gate),
            _gate: gate,
        }
    }

    fn time<T>(&mut self, name: &'static str, f: impl FnOnce(&Self) -> T) -> T {
        let start = Instant::now();
        let value = f(self);
        let seconds = start.elapsed().as_secs_f64();
        match self.samples.iter_mut().find(|(known, _)| *known == name) {
            Some((_, times)) => times.push(seconds),
            None => self.samples.push((name, vec![seconds])),
        }
        value
    }

    fn round(&mut self, round: u32) {
        let payload = format!("round {round}");
        let created = self.time("create", |site| create(&site.agent, &payload, Approval::required()));
        let token = &created.plan_token;
        self.time("approve", |site| site.reviewer.approve(token, &created.seal)).expect("approved");
        let redeem = Redeem::stored(token, TOOL);
        let mut claim = self.time("begin_execute", |site| site.agent.begin_execute(redeem)).expect("claimed");
        self.time("confirm", |_| claim.confirm_executed(&1)).expect("confirmed");
        let other = create(&self.agent, &format!("no {round}"), Approval::NotNeeded);
        self.time("reject", |site| site.reviewer.reject(&other.plan_token, Some("no"))).expect("rejected");
        self.time("plan", |site| site.agent.plan(token)).expect("read");
        self.time("history", |site| site.operator.history(token)).expect("read");
        let done = Duration::from_secs(60);
        self.time("wait_for_decision", |site| site.agent.wait_for_decision(token, done)).expect("decided");
        if round.is_multiple_of(10) {
            self.time("pending(100)", |site| site.reviewer.pending(100)).expect("listed");
            self.time("executing", |site| site.operator.executing(100)).expect("listed");
            self.time("recover, 100 stuck", |site| site.operator.recover()).expect("scanned");
            #[cfg(feature = "approval-server")]
            for (name, path) in routes::all(token.as_str()) {
                self.time(name, |site| site.routes.get(&path));
            }
        }
    }
}

const TOOL: &str = "update_prices";

fn create(agent: &Agent, payload: &str, approval: Approval) -> Created {
    agent.create(NewPlan::new(TOOL, &payload, approval)).expect("created")
}

/// The peak of a process that opens the file, lists, exports and verifies all of it.
fn peak_mb(path: &Path) -> f64 {
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new(program).arg(CHILD).arg(path).output().expect("a process starts");
    let text = String::from_utf8(output.stdout).expect("a number");
    text.trim().parse().unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// That process.
pub(crate) fn child(path: &str) {
    let gate = Gate::open(path).expect("the gate opens");
    let operator = gate.operator("olga").expect("a name");
    gate.reviewer("ada").expect("a name").pending(100).expect("listed");
    operator.executing(100).expect("listed");
    operator.recover().expect("scanned");
    let audit = operator.audit();
    let mut after = 0;
    loop {
        let page = audit.query(&AuditQuery::new().after(after).limit(1_000)).expect("exported");
        match page.last() {
            Some(last) => after = last.seq,
            None => break,
        }
    }
    assert!(audit.verify(None).expect("walked").is_intact());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or("");
    let kb: f64 = line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).unwrap_or(f64::NAN);
    println!("{}", kb / 1024.0);
}
