//! Figures beside their targets.

use serde_json::{Value, json};

/// One figure.
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    target: Option<Target>,
}

#[derive(Clone, Copy)]
enum Target {
    AtLeast(f64),
    AtMost(f64),
}

/// All figures of a run.
#[derive(Default)]
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    pub(crate) fn note(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.0.push(Figure { name: name.into(), value, unit, target: None });
    }

    pub(crate) fn at_least(&mut self, name: impl Into<String>, value: f64, target: f64) {
        self.0.push(Figure { name: name.into(), value, unit: "", target: Some(Target::AtLeast(target)) });
    }

    pub(crate) fn at_most(&mut self, name: impl Into<String>, value: f64, target: f64) {
        self.0.push(Figure { name: name.into(), value, unit: "", target: Some(Target::AtMost(target)) });
    }

    pub(crate) fn missed(&self) -> usize {
        self.0.iter().filter(|figure| !figure.met()).count()
    }

    pub(crate) fn print(&self) {
        for figure in &self.0 {
            let target = match figure.target {
                None => String::new(),
                Some(Target::AtLeast(target)) => format!("  target >= {target:<6}"),
                Some(Target::AtMost(target)) => format!("  target <= {target:<6}"),
            };
            let verdict = match (figure.target, figure.met()) {
                (None, _) => "",
                (_, true) => "ok",
                (_, false) => "MISSED",
            };
            println!("{:<58} {:>12.3} {:<6}{target}{verdict}", figure.name, figure.value, figure.unit);
        }
        println!("{} figures, {} missed", self.0.len(), self.missed());
    }

    pub(crate) fn json(&self) -> String {
        let all: Vec<Value> = self
            .0
            .iter()
            .map(|figure| {
                let target = figure.target.map(|target| match target {
                    Target::AtLeast(least) => json!({"at_least": least}),
                    Target::AtMost(most) => json!({"at_most": most}),
                });
                json!({"name": figure.name, "value": figure.value, "unit": figure.unit, "target": target, "met": figure.met()})
            })
            .collect();
        format!("{:#}\n", json!(all))
    }
}

impl Figure {
    fn met(&self) -> bool {
        match self.target {
            None => true,
            Some(Target::AtLeast(target)) => self.value >= target,
            Some(Target::AtMost(target)) => self.value <= target,
        }
    }
}

/// The median; samples are never empty.
pub(crate) fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
