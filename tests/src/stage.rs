//! The default composition with a scripted provider: what ships, plus one overlay.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::built;

/// A home folder, an empty working folder, and a mock provider that runs as a process of its own as long as this lives.
#[derive(Debug)]
pub struct Stage {
    dir: TempDir,
    provider: Child,
    url: String,
}

impl Stage {
    /// Starts the provider with this script (`docs/mock-provider.md`). `@PROVIDER@` in the overlay stands for its URL.
    ///
    /// # Panics
    ///
    /// When the provider does not start, for example because of its script: the message is on stderr.
    #[must_use]
    pub fn new(script: &str, overlay: &str) -> Self {
        let dir = TempDir::new().unwrap();
        fs::write(dir.path().join("provider.toml"), script).unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        let mut command = Command::new(&built().dsh);
        command.args(["mock-provider", "--script"]).arg(dir.path().join("provider.toml"));
        command.arg("--log").arg(dir.path().join("requests.jsonl"));
        let mut provider = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(provider.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let stage = Self { url: url.trim().to_owned(), provider, dir };
        assert!(stage.url.starts_with("http://"), "the mock provider did not start: {url:?}");
        fs::write(stage.dir.path().join("overlay.toml"), overlay.replace("@PROVIDER@", &stage.url)).unwrap();
        stage
    }

    /// The home folder; it comes into being with the first command.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// The working folder.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// The provider's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// `dsh` with this home and overlay, run in the working folder. Variables that steer `dsh` are not inherited.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&built().dsh);
        command.arg("--home").arg(self.home()).arg("--overlay").arg(self.dir.path().join("overlay.toml")).args(args);
        command.current_dir(self.work()).env_remove("DSH_HOME").env_remove("DSH_PLUGIN_PATH");
        // A proxy of the environment must not be asked for a provider on this machine.
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
        command
    }

    /// What the provider received so far, in the form of its request log.
    ///
    /// # Panics
    ///
    /// When the request log cannot be read.
    #[must_use]
    pub fn requests(&self) -> Vec<Value> {
        let log = fs::read_to_string(self.dir.path().join("requests.jsonl")).unwrap();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The session files, sorted by name.
    ///
    /// # Panics
    ///
    /// When the folder exists and cannot be read.
    #[must_use]
    pub fn sessions(&self) -> Vec<PathBuf> {
        let folder = self.home().join("sessions");
        if !folder.exists() {
            return Vec::new();
        }
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> =
            files.filter(|path| has_extension(path, "jsonl") || has_extension(path, "zst")).collect();
        files.sort();
        files
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|it| it == extension)
}

impl Drop for Stage {
    fn drop(&mut self) {
        // It may be gone already; nothing else can fail here.
        let _ = self.provider.kill();
        let _ = self.provider.wait();
    }
}
