//! What the manifest promises, by subject: broken files, composition, later refusals, the schema, texts, trust.

mod broken;
mod composition;
mod refusals;
mod schema;
mod texts;
mod trust;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use super::paths::Surroundings;
use super::{Lookup, Manifest, ManifestError};

/// A folder with a home and a current folder, and an environment of its own.
struct World {
    dir: tempfile::TempDir,
    env: BTreeMap<&'static str, &'static str>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["home", "cwd", "user"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        Self { dir, env: BTreeMap::from([("LIBS", "/opt/libs"), ("EMPTY", "")]) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn lookup(&self, manifest: Option<PathBuf>, overlays: Vec<PathBuf>) -> Lookup {
        Lookup { manifest, overlays, home: self.path("home") }
    }

    fn within<T>(&self, work: impl FnOnce(&Surroundings) -> T) -> T {
        let env = |name: &str| self.env.get(name).map(OsString::from);
        work(&Surroundings { env: &env, user_home: Some(self.path("user")), cwd: self.path("cwd") })
    }

    fn load(&self, lookup: &Lookup) -> Result<Manifest, ManifestError> {
        self.within(|around| lookup.load_in(around))
    }

    fn sessions_dir(&self, lookup: &Lookup) -> PathBuf {
        self.within(|around| super::document::sessions_dir(lookup, around))
    }

    /// Loads one manifest that `--manifest` names, and overlays.
    fn compose(&self, manifest: &str, overlays: &[&str]) -> Result<Manifest, ManifestError> {
        let manifest = self.write("cwd/m.toml", manifest);
        let overlays =
            overlays.iter().enumerate().map(|(n, text)| self.write(&format!("over/{n}.toml"), text)).collect();
        self.load(&self.lookup(Some(manifest), overlays))
    }

    /// An error as one line, with the names of temporary folders cut.
    fn line(&self, error: &ManifestError) -> String {
        error.to_string().replace(&format!("{}/", self.dir.path().display()), "")
    }
}

fn render(error: ManifestError) -> String {
    let mut text = String::new();
    let report = error.into_report();
    let theme = miette::GraphicalTheme::unicode_nocolor();
    miette::GraphicalReportHandler::new_themed(theme)
        .with_width(200)
        .render_report(&mut text, report.as_ref())
        .unwrap();
    text
}

const ADAPTER: &str = "version = 1\n[[adapter]]\nid = \"a\"\nlibrary = \"lib-a\"\n";
