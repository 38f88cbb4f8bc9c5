//! What tests of real compositions share: the built `dsh` and adapters, and a home folder with a manifest to run them
//! in.
//!
//! ```no_run
//! use dsh_tests::Composition;
//! let composition = Composition::new("version = 1\n");
//! let outcome = composition.dsh(&["plugins", "list", "--json"]);
//! assert_eq!(outcome.code, Some(0), "{outcome}");
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails the test that called it")]

pub mod acp;
pub mod difference;
pub mod killing;
pub mod log;
pub mod scenario;
pub mod stage;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long one run of `dsh` may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The package of the adapter that misbehaves on request.
pub const FIXTURE: &str = "dsh-fixture-adapter";

/// What `cargo build --workspace` left behind.
#[derive(Debug)]
pub struct Built {
    /// The binary.
    pub dsh: PathBuf,
    /// The folder that holds it and the cdylibs.
    pub folder: PathBuf,
}

impl Built {
    /// The cdylib of a package.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[must_use]
    pub fn library(&self, package: &str) -> PathBuf {
        let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
        let path = self.folder.join(format!("{prefix}{}{suffix}", package.replace('-', "_")));
        assert!(path.is_file(), "{} was not built", path.display());
        path
    }
}

/// Builds the workspace once per test process, with the profile of the running test, and says where things are.
/// Building the tests alone builds neither the binary nor the cdylibs.
///
/// # Panics
///
/// When the build fails.
pub fn built() -> &'static Built {
    static BUILT: OnceLock<Built> = OnceLock::new();
    BUILT.get_or_init(|| {
        // `<target>/<profile>/deps/<test>`
        let test = std::env::current_exe().unwrap();
        let folder = test.parent().and_then(Path::parent).unwrap().to_owned();
        let profile = match folder.file_name().and_then(|name| name.to_str()).unwrap() {
            "debug" => "dev",
            name => name,
        };
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("Cargo.toml");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into()));
        cargo.args(["build", "--workspace", "--quiet", "--profile", profile, "--manifest-path"]).arg(manifest);
        cargo.arg("--target-dir").arg(folder.parent().unwrap());
        // Cargo describes the package under test to its tests. Build scripts that look at these variables would run
        // again, and what depends on them would be rebuilt, at every change between cargo and this.
        for (name, _) in std::env::vars_os() {
            let described = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
            if name.to_str().is_some_and(|name| described.iter().any(|prefix| name.starts_with(prefix))) {
                cargo.env_remove(name);
            }
        }
        let status = cargo.status().unwrap();
        assert!(status.success(), "cargo build --workspace failed");
        Built { dsh: folder.join(format!("dsh{}", std::env::consts::EXE_SUFFIX)), folder }
    })
}

/// A home folder of its own, with a manifest.
#[derive(Debug)]
pub struct Composition {
    home: TempDir,
}

impl Composition {
    /// Writes the manifest into a new home folder.
    ///
    /// # Panics
    ///
    /// When the folder cannot be written.
    #[must_use]
    pub fn new(manifest: &str) -> Self {
        let composition = Self { home: TempDir::new().unwrap() };
        std::fs::write(composition.manifest(), manifest).unwrap();
        composition
    }

    /// The home folder.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// The manifest file. It is not called `loader.toml`, so that only `--manifest` finds it.
    #[must_use]
    pub fn manifest(&self) -> PathBuf {
        self.home().join("composition.toml")
    }

    /// `dsh` with this home folder and manifest, run in the home folder. Variables that steer `dsh` are not inherited.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&built().dsh);
        command.arg("--home").arg(self.home()).arg("--manifest").arg(self.manifest()).args(args);
        command.current_dir(self.home()).env_remove("DSH_HOME").env_remove("DSH_PLUGIN_PATH");
        command
    }

    /// Runs [`Composition::command`] to its end, without input.
    #[must_use]
    pub fn dsh(&self, args: &[&str]) -> Outcome {
        run(self.command(args))
    }
}

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
pub fn run(mut command: Command) -> Outcome {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("dsh starts");
    let drain = |mut pipe: Box<dyn std::io::Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).expect("a pipe can be read");
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let stdout = drain(Box::new(child.stdout.take().unwrap()));
    let stderr = drain(Box::new(child.stderr.take().unwrap()));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?} still ran after {PATIENCE:?}: {}", stderr.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Outcome { code: status.code(), stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}
