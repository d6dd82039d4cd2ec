//! A new file that many processes open at once.

use serde_json::{Value, json};

use crate::common::child::{Child, hear, say};
use crate::common::{self, invariants};

/// Opens each file that it is told to.
pub(crate) fn opener(_: &Value) {
    say("ready");
    loop {
        let path = hear();
        if path.is_empty() {
            return;
        }
        match common::builder(&path).open() {
            Ok(gate) => {
                let head = gate.operator("op").unwrap().audit().head().unwrap();
                say(&format!("opened {}", head.store_id));
            }
            Err(error) => say(&format!("error {} {error}", error.code())),
        }
    }
}

#[test]
fn twelve_processes_open_25_fresh_files_at_once() {
    let directory = common::directory();
    let mut openers: Vec<_> = (0..12).map(|_| Child::start("opener", &json!({}))).collect();
    for opener in &openers {
        opener.expect("ready");
    }
    for number in 0..25 {
        let path = directory.join(format!("{number}.db"));
        for opener in &mut openers {
            opener.tell(path.to_str().unwrap());
        }
        let stores: Vec<_> = openers.iter().map(|opener| opener.expect("opened")).collect();
        assert!(stores.iter().all(|store| *store == stores[0]), "one file, two stores: {stores:?}");
        assert_eq!(invariants::number(&path, "SELECT count(*) FROM audit_events"), 1);
    }
    openers.into_iter().for_each(Child::finish);
}
