//! A process under test: started, watched, signalled, and never left behind.

use std::fmt;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long one run of `dsh` may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How a process ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it logged.
    pub stderr: String,
}

impl Outcome {
    /// Stdout as one JSON value.
    ///
    /// # Panics
    ///
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("stdout is no JSON ({e}): {self}"))
    }

    /// True when stderr says this, wherever a report broke its lines.
    #[must_use]
    pub fn says(&self, text: &str) -> bool {
        let dense = |text: &str| text.chars().filter(|c| !c.is_whitespace() && *c != '│').collect::<String>();
        dense(&self.stderr).contains(&dense(text))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, stdout, stderr } = self;
        write!(f, "exit code {code:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}

/// Runs a command to its end, without input.
///
/// # Panics
///
/// When it cannot be started, or takes longer than [`PATIENCE`]; it is killed then.
#[must_use]
pub fn run(command: Command) -> Outcome {
    Running::start(command).finish()
}

/// Waits until something holds, and says how long it took.
///
/// # Panics
///
/// When it does not hold within [`PATIENCE`]; `what` says what was waited for.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    begun.elapsed()
}

/// A process that runs. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    line: String,
    stdout: Option<Pipe>,
    stderr: Option<Pipe>,
}

impl Running {
    /// Starts a command without input; what it writes is read as it comes.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    #[must_use]
    pub fn start(mut command: Command) -> Self {
        let line = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {line}: {e}"));
        let stdout = Some(Pipe::read(child.stdout.take().unwrap()));
        let stderr = Some(Pipe::read(child.stderr.take().unwrap()));
        Self { child, line, stdout, stderr }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.as_ref().map(Pipe::text).unwrap_or_default()
    }

    /// Waits until it has printed this text.
    ///
    /// # Panics
    ///
    /// When it does not within [`PATIENCE`], or ends before.
    pub fn wait_for(&mut self, text: &str) {
        let Self { child, line, stdout, stderr } = self;
        let seen = |pipe: &Option<Pipe>| pipe.as_ref().map(Pipe::text).unwrap_or_default();
        wait_until(&format!("{line} prints {text:?}"), || {
            let ended = child.try_wait().unwrap();
            let found = seen(stdout).contains(text);
            assert!(found || ended.is_none(), "{line} ended without printing {text:?}: {}", seen(stderr));
            found
        });
    }

    /// Sends it a signal by name, such as `INT`.
    ///
    /// # Panics
    ///
    /// When it cannot be sent.
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.pid());
        assert!(Command::new("bash").args(["-c", &kill]).status().unwrap().success(), "{kill} failed");
    }

    /// Waits for its end.
    ///
    /// # Panics
    ///
    /// When it takes longer than [`PATIENCE`]; it is killed then.
    #[must_use]
    pub fn finish(mut self) -> Outcome {
        let mut status = None;
        let begun = Instant::now();
        while status.is_none() && begun.elapsed() < PATIENCE {
            status = self.child.try_wait().unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
        if status.is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        let end = |pipe: &mut Option<Pipe>| pipe.take().map(Pipe::finish).unwrap_or_default();
        let (stdout, stderr) = (end(&mut self.stdout), end(&mut self.stderr));
        let Some(status) = status else {
            panic!("{} still ran after {PATIENCE:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}", self.line)
        };
        Outcome { code: status.code(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when it has ended, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What comes out of a process.
#[derive(Debug)]
struct Pipe {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Pipe {
    fn read(mut from: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&bytes);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 8 * 1024];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                to.lock().unwrap().extend_from_slice(&buffer[..length]);
            }
        });
        Self { bytes, reader }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    fn finish(self) -> String {
        self.reader.join().unwrap();
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }
}
