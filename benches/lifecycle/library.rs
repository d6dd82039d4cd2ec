//! The library against hand-written SQL: each transition, and the whole lifecycle.

use std::path::Path;
use std::time::Instant;

use countersign::{Agent, Approval, Claim, Created, Gate, NewPlan, Redeem, Reviewer};

use crate::Options;
use crate::figures::{Figures, median};
use crate::floor::{Bare, Contender, Ours, payload};

/// The library as a contender.
pub(crate) struct Library {
    _gate: Gate,
    agent: Agent,
    reviewer: Reviewer,
    payload: serde_json::Value,
    created: Option<Created>,
    claim: Option<Claim>,
}

impl Library {
    pub(crate) fn open(path: &Path) -> Self {
        let gate = Gate::open(path).expect("the gate opens");
        Self {
            agent: gate.agent("pricing-agent").expect("a name"),
            reviewer: gate.reviewer("ada").expect("a name"),
            _gate: gate,
            payload: payload(),
            created: None,
            claim: None,
        }
    }

    fn created(&self) -> &Created {
        self.created.as_ref().expect("create came first")
    }
}

impl Contender for Library {
    fn create(&mut self) {
        let plan = NewPlan::new("update_prices", &self.payload, Approval::required());
        self.created = Some(self.agent.create(plan).expect("created"));
    }

    fn approve(&mut self) {
        let created = self.created();
        self.reviewer.approve(&created.plan_token, &created.seal).expect("approved");
    }

    fn begin(&mut self) {
        let redeem = Redeem::new(&self.created().plan_token, "update_prices").payload(&self.payload);
        self.claim = Some(self.agent.begin_execute(redeem).expect("claimed"));
    }

    fn confirm(&mut self) {
        self.claim.as_mut().expect("begin came first").confirm_executed(&()).expect("confirmed");
    }
}

/// Rounds before any is counted: each log has been as long as it gets, and was begun anew.
const WARM_UP: usize = 200;
const BLOCK: usize = 100;

const PARTS: [&str; 4] = ["create", "approve", "begin_execute", "confirm"];

/// Seconds of each part of one lifecycle.
fn lifecycle(contender: &mut dyn Contender) -> [f64; 4] {
    let mut taken = [0.0; 4];
    for (part, taken) in taken.iter_mut().enumerate() {
        let start = Instant::now();
        match part {
            0 => contender.create(),
            1 => contender.approve(),
            2 => contender.begin(),
            _ => contender.confirm(),
        }
        *taken = start.elapsed().as_secs_f64();
    }
    taken
}

pub(crate) fn run(options: &Options, figures: &mut Figures) {
    let lifecycles = if options.quick { 2_400 } else { 12_000 };
    let disk = tempfile::Builder::new().prefix("bench-").tempdir_in(".").expect("a directory on this disk");
    compare("FULL on disk", disk.path(), "FULL", lifecycles, [Some(0.90), Some(0.70)], figures);
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        let memory = tempfile::tempdir_in(memory).expect("a directory in memory");
        // A sync does nothing there; the library runs with FULL all the same, the floors with OFF.
        compare("in memory", memory.path(), "OFF", lifecycles, [Some(0.60), None], figures);
    } else {
        println!("skipped: needs a file system in memory at /dev/shm");
    }
}

fn compare(
    place: &str,
    directory: &Path,
    synchronous: &str,
    lifecycles: usize,
    targets: [Option<f64>; 2],
    figures: &mut Figures,
) {
    let mut bare = Bare::open(&directory.join("bare.db"), synchronous);
    let mut ours = Ours::open(&directory.join("ours.db"), synchronous);
    let mut library = Library::open(&directory.join("library.db"));
    let mut samples: [[Vec<f64>; 5]; 3] = Default::default();
    // Of each block of rounds the ratios of its sums, which hold the checkpoints; of the blocks the median, so that a disk
    // that stalls once meets one block.
    let mut block = [0.0; 3];
    let mut blocks = [const { Vec::new() }; 2];
    for round in 0..WARM_UP + lifecycles {
        let mut contenders: [(usize, &mut dyn Contender); 3] = [(0, &mut bare), (1, &mut ours), (2, &mut library)];
        // In turn, and each goes first as often as the others.
        contenders.rotate_left(round % 3);
        for (which, contender) in contenders {
            let parts = lifecycle(contender);
            if round < WARM_UP {
                continue;
            }
            for (part, seconds) in parts.iter().enumerate() {
                samples[which][part].push(*seconds);
            }
            samples[which][4].push(parts.iter().sum());
            block[which] += parts.iter().sum::<f64>();
        }
        if round >= WARM_UP && (round + 1 - WARM_UP).is_multiple_of(BLOCK) {
            let [bare, ours, library] = std::mem::take(&mut block);
            blocks[0].push(ours / library);
            blocks[1].push(bare / library);
        }
    }
    let medians = samples.map(|parts| parts.map(|mut part| median(&mut part)));
    for (part, name) in PARTS.iter().chain(["lifecycle"].iter()).enumerate() {
        for (which, who) in ["bare", "our schema", "library"].iter().enumerate() {
            figures.note(format!("{place}: {name}, {who}"), medians[which][part] * 1e6, "us");
        }
        figures.note(format!("{place}: {name}, library / our schema"), medians[1][part] / medians[2][part], "");
        figures.note(format!("{place}: {name}, library / bare"), medians[0][part] / medians[2][part], "");
    }
    for (mut ratios, (target, over)) in blocks.into_iter().zip(targets.into_iter().zip(["our schema", "bare"])) {
        let ratio = median(&mut ratios);
        let name = format!("{place}: throughput, library / {over}");
        match target {
            Some(target) => figures.at_least(name, ratio, target),
            None => figures.note(name, ratio, ""),
        }
    }
}
