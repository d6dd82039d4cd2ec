//! One browser for one test, with a fresh profile; what a test started is ended, by its id.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use fantoccini::client::Client;
use fantoccini::elements::Element;
use fantoccini::key::Key;
use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand};
use fantoccini::{ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

use super::common::child::PATIENCE;
use super::common::tools::{can, run};

/// One browser at a time: they are heavy, and deadlines are about what a person sees.
static ONE: Mutex<()> = Mutex::new(());

pub(crate) struct Browser {
    pub(crate) client: Client,
}

/// Runs a scenario. At its end nothing stands in the browser's console that a page without fault would not write;
/// `expected` names the HTTP statuses that the scenario provokes.
pub(crate) fn with_browser<F>(expected: &[u16], scenario: impl FnOnce(Browser) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let have = run("chromium", &["--version"]) && run("chromedriver", &["--version"]);
    if !can("chromium and chromedriver", have) {
        return;
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let driver = Driver::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let browser = Browser::open(&driver).await;
        let client = browser.client.clone();
        // On its own task, so that a scenario that panics leaves the session to be closed.
        let ended = tokio::spawn(scenario(browser)).await;
        let console = Browser { client: client.clone() }.console(expected).await;
        client.close().await.unwrap();
        if let Err(panic) = ended {
            eprintln!("the console: {console:?}");
            std::panic::resume_unwind(panic.into_panic());
        }
        assert_eq!(console, Vec::<String>::new(), "the browser complains");
    });
}

struct Driver {
    process: Child,
    port: u16,
    profile: tempfile::TempDir,
}

impl Driver {
    fn start() -> Self {
        let mut process = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = loop {
            let line = lines.next().expect("chromedriver says its port").unwrap();
            let Some((_, port)) = line.split_once("started successfully on port ") else { continue };
            break port.trim_end_matches('.').parse().unwrap();
        };
        // What it says later is read away, so that its pipe does not fill.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, port, profile: tempfile::tempdir().unwrap() }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The browser itself ended with its session.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Browser {
    async fn open(driver: &Driver) -> Self {
        let profile = format!("--user-data-dir={}", driver.profile.path().display());
        let options = json!({"args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=1100,900", profile,
        ]});
        let mut wanted = Capabilities::new();
        wanted.insert("goog:chromeOptions".to_owned(), options);
        wanted.insert("goog:loggingPrefs".to_owned(), json!({"browser": "ALL"}));
        let mut builder = ClientBuilder::new(HttpConnector::new());
        let client = builder.capabilities(wanted).connect(&format!("http://127.0.0.1:{}", driver.port)).await.unwrap();
        Self { client }
    }

    /// What the console shows of warnings and errors, CSP violations among them.
    async fn console(&self, expected: &[u16]) -> Vec<String> {
        let entries = self.command("se/log", json!({"type": "browser"})).await;
        let entries = entries.as_array().unwrap().iter();
        let bad = entries.filter(|entry| {
            let (level, text) = (entry["level"].as_str().unwrap(), entry["message"].as_str().unwrap());
            let provoked = expected.iter().any(|status| text.contains(&format!("status of {status} ")));
            // The page is told of a server that is gone by the browser itself.
            let gone = expected.contains(&0) && text.contains("net::ERR_");
            matches!(level, "SEVERE" | "WARNING") && !provoked && !gone
        });
        bad.map(|entry| entry["message"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) async fn command(&self, path: &'static str, body: Value) -> Value {
        self.client.issue_cmd(Raw { path, body }).await.unwrap()
    }

    /// A command of the browser's own protocol, to emulate a device.
    pub(crate) async fn emulate(&self, command: &str, params: Value) {
        self.command("goog/cdp/execute", json!({"cmd": command, "params": params})).await;
    }

    pub(crate) async fn dark(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.emulate("Emulation.setEmulatedMedia", features).await;
    }

    pub(crate) async fn size(&self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.emulate("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    pub(crate) async fn find(&self, css: &str) -> Element {
        match self.client.wait().at_most(PATIENCE).for_element(Locator::Css(css)).await {
            Ok(element) => element,
            Err(error) => panic!("no {css} on the page: {error}\n{}", self.text("body").await),
        }
    }

    /// Clicks; an element that the page replaces at this moment is looked for again.
    pub(crate) async fn click(&self, css: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.find(css).await.click().await {
                Ok(()) => return,
                Err(error) if error.is_stale_element_reference() && Instant::now() < deadline => {}
                Err(error) => panic!("{css} cannot be clicked: {error}"),
            }
        }
    }

    /// The text that a person sees at the first match; empty where there is none.
    pub(crate) async fn text(&self, css: &str) -> String {
        let script = "const e = document.querySelector(arguments[0]); return e ? e.innerText : '';";
        self.script(script, vec![json!(css)]).await.as_str().unwrap().to_owned()
    }

    pub(crate) async fn count(&self, css: &str) -> u64 {
        self.script("return document.querySelectorAll(arguments[0]).length;", vec![json!(css)]).await.as_u64().unwrap()
    }

    pub(crate) async fn script(&self, script: &str, args: Vec<Value>) -> Value {
        self.client.execute(script, args).await.unwrap()
    }

    /// A key for whatever has the focus.
    pub(crate) async fn press(&self, key: &str) {
        self.client.active_element().await.unwrap().send_keys(key).await.unwrap();
    }

    pub(crate) async fn enter(&self) {
        self.press(&char::from(Key::Enter).to_string()).await;
    }

    /// Polls a condition about the page, which announces nothing to us.
    pub(crate) async fn until(&self, what: &str, script: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.script(&format!("return Boolean({script});"), Vec::new()).await.as_bool().unwrap() {
            let body = self.text("body").await;
            assert!(Instant::now() < deadline, "never came true: {what}\n{body}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A command that the client does not know.
#[derive(Debug)]
struct Raw {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Raw {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.to_string()))
    }
}
