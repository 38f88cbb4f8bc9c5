//! What tests of real compositions share: the built `dsh` and adapters, a home folder with a manifest to run them in, a
//! scripted provider to talk to, and the turns that result.
//!
//! ```no_run
//! use dsh_tests::Composition;
//! let composition = Composition::new("version = 1\n");
//! let outcome = composition.dsh(&["plugins", "list", "--json"]);
//! assert_eq!(outcome.code, Some(0), "{outcome}");
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails the test that called it")]

mod conversation;
mod process;
mod provider;

pub mod killing;
pub mod prose;
pub mod stage;
pub mod tearing;
pub mod wires;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

pub use conversation::{Run, of_kind};
pub use dsh_host::scenario::{AcpClient, SessionLog};
pub use process::{Outcome, PATIENCE, Running, run, wait_until};
pub use provider::{Provider, assistants, text_of};

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
        let mut command = self.bare_command(&["--manifest"]);
        command.arg(self.manifest()).args(args);
        command
    }

    /// The same without a manifest, so that `dsh` has to find one.
    #[must_use]
    pub fn bare_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&built().dsh);
        command.arg("--home").arg(self.home()).args(args).current_dir(self.home());
        for name in ["DSH_HOME", "DSH_PLUGIN_PATH", "DSH_LOG"] {
            command.env_remove(name);
        }
        // Providers of tests are on this machine; a proxy of the environment must not be asked for them.
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
        command
    }

    /// Writes a file into the home folder.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Runs [`Composition::command`] to its end, without input.
    #[must_use]
    pub fn dsh(&self, args: &[&str]) -> Outcome {
        run(self.command(args))
    }
}

/// Does the same for every case, a few at a time, since most of what `dsh` does in tests is waiting.
///
/// # Panics
///
/// When it panics for a case; those that run go on to their end.
pub fn for_each<T: Sync>(cases: &[T], run: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(case);
                }
            });
        }
    });
}
