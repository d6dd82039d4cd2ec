//! Threads that share one gate, and processes that share one file.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use countersign::{Approval, Gate, NewPlan, Redeem};

use crate::Options;
use crate::figures::{Figures, median};

/// The argument that makes this program one of the processes.
pub(crate) const CHILD: &str = "--child-process";

/// Whole lifecycles with a payload of 1 KiB until the time is over; answers how many transitions.
fn work_for(gate: &Gate, seconds: f64) -> u64 {
    let (agent, reviewer) = (gate.agent("pricing-agent").expect("a name"), gate.reviewer("ada").expect("a name"));
    let payload = crate::payload::of_size(1024);
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut made = 0;
    while Instant::now() < until {
        let plan = NewPlan::new("update_prices", &payload, Approval::required());
        let created = agent.create(plan).expect("created");
        reviewer.approve(&created.plan_token, &created.seal).expect("approved");
        let redeem = Redeem::new(&created.plan_token, "update_prices").payload(&payload);
        agent.begin_execute(redeem).expect("claimed").confirm_executed(&()).expect("confirmed");
        made += 4;
    }
    made
}

pub(crate) fn threads(options: &Options, figures: &mut Figures) {
    let (rounds, seconds) = if options.quick { (15, 0.25) } else { (15, 1.0) };
    let directory = tempfile::Builder::new().prefix("bench-").tempdir_in(".").expect("a directory on this disk");
    let gate = Gate::open(directory.path().join("gate.db")).expect("the gate opens");
    let sixteen = || {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(|| work_for(&gate, seconds))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum::<u64>()
        })
    };
    let (mut alone, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (before, together, after) = (work_for(&gate, seconds), sixteen(), work_for(&gate, seconds));
        alone.extend([before as f64 / seconds, after as f64 / seconds]);
        ratios.push(2.0 * together as f64 / (before + after) as f64);
    }
    figures.note("one thread", median(&mut alone), "tx/s");
    figures.at_least("16 threads on one gate, of one thread's rate", median(&mut ratios), 0.95);
}

pub(crate) fn run(options: &Options, figures: &mut Figures) {
    let (rounds, seconds) = if options.quick { (5, 0.7) } else { (9, 2.0) };
    let directory = tempfile::Builder::new().prefix("bench-").tempdir_in(".").expect("a directory on this disk");
    let path = directory.path().join("gate.db");
    // Hosts come and go, and one of them is always there: so no round begins with a log that has to grow first.
    let _host = Gate::open(&path).expect("the gate opens");
    let mut alone = Vec::new();
    let mut several = [2, 4, 8].map(|count| (count, Vec::new(), Vec::new()));
    // The disk's rate swings within seconds: each round of several stands between two rounds of one, and the median of
    // the rounds counts.
    let one = || together(&path, 1, seconds)[0];
    let mut before = one();
    for _ in 0..rounds {
        for (count, ratios, slowest) in &mut several {
            let made = together(&path, *count, seconds);
            let after = one();
            let sum: u64 = made.iter().sum();
            ratios.push(2.0 * sum as f64 / (before + after) as f64);
            slowest.push(made.iter().copied().min().unwrap_or(0) as f64 * *count as f64 / sum as f64);
            alone.push(after as f64 / seconds);
            before = after;
        }
    }
    figures.note("one process", median(&mut alone), "tx/s");
    for (count, mut ratios, mut slowest) in several {
        figures.at_least(format!("{count} processes, of one process's rate"), median(&mut ratios), 0.85);
        figures.at_least(format!("{count} processes, slowest of the mean"), median(&mut slowest), 0.25);
    }
}

/// Runs that many processes at once; what each of them made.
fn together(path: &Path, count: usize, seconds: f64) -> Vec<u64> {
    let program = std::env::current_exe().expect("this program has a path");
    let mut children: Vec<_> = (0..count)
        .map(|_| {
            let mut command = Command::new(&program);
            command.arg(CHILD).arg(path).arg(seconds.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().expect("a process starts")
        })
        .collect();
    let mut answers: Vec<_> =
        children.iter_mut().map(|child| BufReader::new(child.stdout.take().expect("piped"))).collect();
    let mut line = String::new();
    for answer in &mut answers {
        line.clear();
        answer.read_line(&mut line).expect("it says that it is ready");
    }
    for child in &mut children {
        child.stdin.take().expect("piped").write_all(b"go\n").expect("it listens");
    }
    let made = answers
        .iter_mut()
        .map(|answer| {
            let mut line = String::new();
            answer.read_line(&mut line).expect("it says how many");
            line.trim().parse().expect("a number")
        })
        .collect();
    for mut child in children {
        assert!(child.wait().expect("it ends").success());
    }
    made
}

/// One of the processes: opens, says so, waits for the word, works, says how many.
pub(crate) fn child(arguments: &[String]) {
    let gate = Gate::open(&arguments[0]).expect("the gate opens");
    let seconds: f64 = arguments[1].parse().expect("seconds");
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("the word");
    println!("{}", work_for(&gate, seconds));
}
