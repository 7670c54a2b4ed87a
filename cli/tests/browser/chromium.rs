//! Chromium without a screen, driven over its DevTools protocol: by two pipes, so that it needs no
//! port, and ends when the test does.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use serde_json::{Value, json};

/// The time that any step may take on a machine with much else to do.
const GENEROUS: Duration = Duration::from_secs(90);

/// The names under which it may be installed.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Flags for a machine without a screen and without a network.
const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
];

/// The error of a step.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A browser.
pub(crate) struct Chromium {
    process: Child,
    folder: PathBuf,
    input: File,
    messages: Receiver<Value>,
    last: u64,
    /// The messages besides answers.
    events: Vec<Value>,
}

impl Chromium {
    /// Returns where it is installed, if it is.
    pub(crate) fn find() -> Option<PathBuf> {
        let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
        let mut found = NAMES.iter().flat_map(|name| folders.iter().map(move |it| it.join(name)));
        found.find(|path| path.is_file())
    }

    /// Starts one with a profile of its own.
    pub(crate) fn start(binary: &Path) -> Outcome<Self> {
        let folder = env::temp_dir().join(format!("sdam-chromium-{}", process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let [input, output] = ["in", "out"].map(|name| folder.join(name));
        let made = Command::new("mkfifo").args([&input, &output]).status()?;
        if !made.success() {
            return Err("mkfifo has failed".into());
        }
        let process = Command::new("sh")
            .args(["-c", r#"in=$1 out=$2; shift 2; exec "$@" 3<"$in" 4>"$out""#, "sh"])
            .args([&input, &output])
            .arg(binary)
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // Each of these waits until the shell opens the other end.
        let input = File::options().write(true).open(input)?;
        let output = BufReader::new(File::open(output)?);
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in output.split(0) {
                let Ok(message) = message else { break };
                let message = serde_json::from_slice(&message).unwrap_or_default();
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        Ok(Self { process, folder, input, messages, last: 0, events: Vec::new() })
    }

    /// Opens a page in a tab of its own.
    pub(crate) fn open(&mut self, url: &str, size: (u32, u32)) -> Outcome<Tab<'_>> {
        let mut tab = self.blank(size)?;
        tab.go(url)?;
        Ok(tab)
    }

    /// Opens an empty tab.
    pub(crate) fn blank(&mut self, size: (u32, u32)) -> Outcome<Tab<'_>> {
        let made = self.call(None, "Target.createTarget", &json!({ "url": "about:blank" }))?;
        let target = text(&made["targetId"])?;
        let attach = json!({ "targetId": target, "flatten": true });
        let attached = self.call(None, "Target.attachToTarget", &attach)?;
        let session = text(&attached["sessionId"])?;
        let mut tab = Tab { chromium: self, target, session };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.call(&format!("{domain}.enable"), &json!({}))?;
        }
        tab.resize(size)?;
        Ok(tab)
    }

    fn call(&mut self, session: Option<&str>, method: &str, params: &Value) -> Outcome<Value> {
        self.last += 1;
        let mut message = json!({ "id": self.last, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        self.input.write_all(message.to_string().as_bytes())?;
        self.input.write_all(&[0])?;
        let deadline = Instant::now() + GENEROUS;
        loop {
            let message = self.receive(deadline, method)?;
            if message["id"] == self.last {
                return match message.get("error") {
                    None => Ok(message["result"].clone()),
                    Some(error) => Err(format!("{method}: {error}").into()),
                };
            }
            self.events.push(message);
        }
    }

    /// Waits for an event of a session.
    fn wait(&mut self, session: &str, event: &str) -> Outcome<()> {
        let deadline = Instant::now() + GENEROUS;
        let is_it = |message: &Value| message["sessionId"] == session && message["method"] == event;
        loop {
            if self.events.iter().any(is_it) {
                return Ok(());
            }
            let message = self.receive(deadline, event)?;
            self.events.push(message);
        }
    }

    fn receive(&self, deadline: Instant, what: &str) -> Outcome<Value> {
        let left = deadline.saturating_duration_since(Instant::now());
        let received = self.messages.recv_timeout(left);
        received.map_err(|error| format!("{what}: no answer from Chromium: {error}").into())
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A tab, which is closed when it is dropped.
pub(crate) struct Tab<'b> {
    chromium: &'b mut Chromium,
    target: String,
    session: String,
}

impl Tab<'_> {
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Outcome<Value> {
        self.chromium.call(Some(&self.session), method, params)
    }

    /// Goes to a page, and waits until all of it is there.
    pub(crate) fn go(&mut self, url: &str) -> Outcome<()> {
        self.chromium.events.clear();
        let gone = self.call("Page.navigate", &json!({ "url": url }))?;
        if let Some(error) = gone.get("errorText") {
            return Err(format!("{url}: {error}").into());
        }
        self.chromium.wait(&self.session.clone(), "Page.loadEventFired")?;
        // That may have been the end of the page before; while one goes, nothing is evaluated.
        let url = json!(url);
        let is_there = format!("location.href === {url} && document.readyState === 'complete'");
        let deadline = Instant::now() + GENEROUS;
        while !self.value(&is_there).is_ok_and(|value| value == true) {
            if Instant::now() > deadline {
                return Err(format!("never there: {url}").into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Makes the window this large.
    pub(crate) fn resize(&mut self, (width, height): (u32, u32)) -> Outcome<()> {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", &metrics).map(drop)
    }

    /// Evaluates an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Outcome<Value> {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", &params)?;
        match result.get("exceptionDetails") {
            None => Ok(result["result"]["value"].clone()),
            Some(details) => Err(format!("{expression}: {details}").into()),
        }
    }

    /// Evaluates an expression that is a number.
    pub(crate) fn number(&mut self, expression: &str) -> Outcome<f64> {
        let value = self.value(expression)?;
        value.as_f64().ok_or_else(|| format!("{expression}: {value} is no number").into())
    }

    /// Evaluates an expression that is a text.
    pub(crate) fn text(&mut self, expression: &str) -> Outcome<String> {
        let value = self.value(expression)?;
        value.as_str().map(str::to_owned).ok_or_else(|| format!("{expression}: {value}").into())
    }

    /// Presses a key, as a person does.
    pub(crate) fn press(&mut self, key: &str) -> Outcome<()> {
        let code = match key {
            "Tab" => 9,
            "Escape" => 27,
            "PageUp" => 33,
            "PageDown" => 34,
            "End" => 35,
            "Home" => 36,
            "ArrowLeft" => 37,
            "ArrowRight" => 39,
            _ => 0,
        };
        let mut down = json!({ "type": "rawKeyDown", "key": key, "windowsVirtualKeyCode": code });
        if key.chars().count() == 1 {
            down = json!({ "type": "keyDown", "key": key, "text": key });
        }
        self.call("Input.dispatchKeyEvent", &down)?;
        let up = json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", &up)?;
        Ok(())
    }

    /// Moves the mouse, or presses or releases its button there.
    pub(crate) fn mouse(&mut self, kind: &str, (x, y): (f64, f64)) -> Outcome<()> {
        let buttons = u8::from(kind != "mouseReleased");
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        let event = json!({ "type": kind, "x": x, "y": y, "button": button, "buttons": buttons,
            "clickCount": u8::from(kind != "mouseMoved") });
        self.call("Input.dispatchMouseEvent", &event).map(drop)
    }

    /// Turns the wheel, with Ctrl held down.
    pub(crate) fn wheel(&mut self, (x, y): (f64, f64), by: f64) -> Outcome<()> {
        let event = json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": by,
            "modifiers": 2 });
        self.call("Input.dispatchMouseEvent", &event).map(drop)
    }

    /// Waits until an expression is true, which an event makes it.
    pub(crate) fn wait_for(&mut self, expression: &str) -> Outcome<()> {
        let deadline = Instant::now() + GENEROUS;
        while self.value(expression)? != true {
            if Instant::now() > deadline {
                return Err(format!("never true: {expression}").into());
            }
            self.value("new Promise((done) => requestAnimationFrame(done)).then(() => 0)")?;
        }
        Ok(())
    }

    /// Shows the page in another medium, or in light or dark.
    pub(crate) fn emulate(&mut self, media: &str, scheme: &str) -> Outcome<()> {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let params = json!({ "media": media, "features": features });
        self.call("Emulation.setEmulatedMedia", &params).map(drop)
    }

    /// Returns the colours at some points of a picture of the page, each as red, green and blue.
    pub(crate) fn colors(&mut self, points: &[(f64, f64)]) -> Outcome<Vec<[u8; 3]>> {
        let shot = self.call("Page.captureScreenshot", &json!({ "format": "png" }))?;
        let size = (10, 10);
        let mut beside = self.chromium.blank(size)?;
        let expression = format!(
            "(async () => {{ const image = new Image(); \
             image.src = 'data:image/png;base64,{}'; await image.decode(); \
             const canvas = new OffscreenCanvas(image.width, image.height); \
             const context = canvas.getContext('2d'); context.drawImage(image, 0, 0); \
             return {}.map(([x, y]) => [...context.getImageData(x, y, 1, 1).data]); }})()",
            text(&shot["data"])?,
            json!(points.iter().map(|(x, y)| [x.floor(), y.floor()]).collect::<Vec<_>>()),
        );
        let found: Vec<[u8; 4]> = serde_json::from_value(beside.value(&expression)?)?;
        Ok(found.into_iter().map(|[red, green, blue, _]| [red, green, blue]).collect())
    }

    /// Returns what the page has complained of, and what it has asked a network for.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let of_tab = self.chromium.events.iter().filter(|it| it["sessionId"] == *self.session);
        let complaint = |message: &Value| {
            let params = &message["params"];
            let url = params["request"]["url"].as_str().unwrap_or_default();
            match message["method"].as_str()? {
                "Runtime.exceptionThrown" | "Log.entryAdded" => Some(params.to_string()),
                "Network.requestWillBeSent" if !url.starts_with("file:") => Some(url.to_owned()),
                _ => None,
            }
        };
        of_tab.filter_map(complaint).collect()
    }
}

impl Drop for Tab<'_> {
    fn drop(&mut self) {
        // The browser itself may be gone.
        let target = json!({ "targetId": self.target });
        let _ = self.chromium.call(None, "Target.closeTarget", &target);
    }
}

fn text(value: &Value) -> io::Result<String> {
    value.as_str().map(str::to_owned).ok_or_else(|| io::Error::other(format!("no text: {value}")))
}
