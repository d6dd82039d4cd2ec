//! Other processes: this test binary run again, with a role. They talk in lines over pipes and are never waited for by
//! the clock.
//!
//! A binary that uses roles has one test `role` that calls [`play`]. Without a role in its environment that test does
//! nothing.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::Value;

const ROLE: &str = "COUNTERSIGN_TEST_ROLE";
const ARGS: &str = "COUNTERSIGN_TEST_ARGS";
/// libtest writes to the same pipe; what stands behind this mark is ours.
const MARK: &str = "@@ ";
/// Far beyond everything that a loaded machine needs: past it a test is hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// A role: what a child process does with its arguments.
pub(crate) type Role = (&'static str, fn(&Value));

/// Plays the role that the environment names, in a child process.
pub(crate) fn play(roles: &[Role]) {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (_, run) = roles.iter().find(|(name, _)| *name == role).unwrap_or_else(|| panic!("no role {role}"));
    run(&serde_json::from_str(&std::env::var(ARGS).unwrap()).unwrap());
}

/// In a child: tells the parent something.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A parent that is gone is no reason to fail.
    let _ = writeln!(out, "{MARK}{line}").and_then(|()| out.flush());
}

/// In a child: waits for the parent's next line.
pub(crate) fn hear() -> String {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// How a child is started.
pub(crate) struct Start {
    wrapper: Vec<String>,
    env: Vec<(String, String)>,
}

impl Start {
    pub(crate) fn plain() -> Self {
        Self { wrapper: Vec::new(), env: Vec::new() }
    }

    /// Behind another program, as `strace` or `unshare`.
    pub(crate) fn behind<S: Into<String>>(wrapper: impl IntoIterator<Item = S>) -> Self {
        Self { wrapper: wrapper.into_iter().map(Into::into).collect(), env: Vec::new() }
    }

    pub(crate) fn role(self, role: &str, args: &Value) -> Child {
        let exe = std::env::current_exe().unwrap();
        let mut words: Vec<_> = self.wrapper.into_iter().map(std::ffi::OsString::from).collect();
        words.push(exe.into());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .args(["role", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(ARGS, args.to_string())
            .envs(self.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let stdin = process.stdin.take();
        let (send, lines) = channel();
        let out = process.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                let Ok(line) = line else { return };
                if let Some((_, said)) = line.split_once(MARK)
                    && send.send(said.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let (send_error, errors) = channel();
        let err = process.stderr.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                if send_error.send(line).is_err() {
                    return;
                }
            }
        });
        Child { process: Some(process), stdin, lines, errors, role: role.to_owned() }
    }
}

/// A child process; killed when it is dropped.
pub(crate) struct Child {
    process: Option<std::process::Child>,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    role: String,
}

impl Child {
    pub(crate) fn start(role: &str, args: &Value) -> Self {
        Start::plain().role(role, args)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().unwrap().id()
    }

    /// The next line; `None` when the child is gone.
    pub(crate) fn next(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the child {} hangs; it said: {}", self.role, self.complaint()),
        }
    }

    /// Waits for a line that begins with this word, and gives the rest of it.
    pub(crate) fn expect(&self, word: &str) -> String {
        let line = self.next().unwrap_or_else(|| panic!("the child {} died: {}", self.role, self.complaint()));
        let (first, rest) = line.split_once(' ').unwrap_or((&line, ""));
        assert_eq!(first, word, "the child {} said {line:?}; {}", self.role, self.complaint());
        rest.to_owned()
    }

    /// What it wrote to standard error so far.
    pub(crate) fn complaint(&self) -> String {
        // The pipe of a process that just died may still be read.
        let mut all = Vec::new();
        while let Ok(line) = self.errors.recv_timeout(Duration::from_millis(if all.is_empty() { 500 } else { 20 })) {
            all.push(line);
        }
        all.join("\n")
    }

    pub(crate) fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).unwrap_or_else(|error| {
            panic!("the child {} does not listen ({error}): {}", self.role, self.complaint());
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill(&mut self) -> ExitStatus {
        let process = self.process.as_mut().unwrap();
        let _ = process.kill();
        process.wait().unwrap()
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        drop(self.stdin.take());
        self.process.as_mut().unwrap().wait().unwrap()
    }

    /// Waits for its end, which has to be a good one.
    pub(crate) fn finish(mut self) {
        let status = self.wait();
        assert!(status.success(), "the child {} ended with {status}: {}", self.role, self.complaint());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(process) = self.process.as_mut() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
