//! Scenarios: folders that pin what a client sees, what the log holds, what the provider gets and what the tools left.
//!
//! A scenario is played against the real `dsh acp`, with real HTTP to a mock provider, with the model side of a session
//! log, or with recorded traffic. `docs/testing-compositions.md` describes the folder. What differs between two runs of
//! the same thing (ids, times, folders, ports, the sizes of streamed pieces) is replaced or joined before anything is
//! compared.

mod client;
mod difference;
mod folder;
mod log;
mod normal;
mod play;
mod stage;
mod steps;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

pub use client::{AcpClient, Permission};
pub use difference::difference;
pub use log::{SessionLog, decompressed};

use folder::{Folder, INPUT, REQUESTS_EXPECTED, STDOUT_EXPECTED, WORKSPACE_EXPECTED};
use normal::Names;
use stage::Stage;

/// Why a scenario could not be played to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The scenario itself is wrong: its files, its steps.
    #[error("{0}")]
    Bad(String),
    /// Something went otherwise than the steps say.
    #[error("{0}")]
    Failed(String),
}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

/// What all scenarios of a run have in common.
#[derive(Debug)]
pub struct Runner {
    /// The executable.
    pub dsh: PathBuf,
    /// The composition of scenarios without a `loader.toml`; without it `dsh` looks for one as always.
    pub manifest: Option<PathBuf>,
    /// Merged over each composition.
    pub overlays: Vec<PathBuf>,
    /// Expectations that do not hold are rewritten, for a person to review.
    pub update: bool,
    /// The folders that scenarios are played in stay.
    pub keep: bool,
    /// Serves the mock providers.
    pub runtime: tokio::runtime::Handle,
}

/// An expectation that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The expectation, relative to the scenario.
    pub file: String,
    /// The unified difference: `-` was expected, `+` happened.
    pub text: String,
}

/// What came of a scenario.
#[derive(Debug)]
pub struct Outcome {
    /// Its folder.
    pub folder: PathBuf,
    /// Why it could not be played to its end.
    pub error: Option<Error>,
    /// The expectations that do not hold.
    pub differences: Vec<Difference>,
    /// Those that were rewritten.
    pub updated: Vec<String>,
    /// The last lines on stderr of the agent, where something is wrong.
    pub diagnostics: String,
    /// The folder that it was played in, where that was kept.
    pub kept: Option<PathBuf>,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// True when it does what it says, or says now what it does.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.error.is_none() && self.differences.iter().all(|difference| self.updated.contains(&difference.file))
    }

    /// True when the scenario itself is wrong.
    #[must_use]
    pub const fn is_bad(&self) -> bool {
        matches!(self.error, Some(Error::Bad(_)))
    }
}

/// The scenarios that a path means: the folder itself where it has an `input.json`, else the folders in it, sorted by
/// name.
///
/// # Errors
///
/// The folder cannot be read, has no scenario, or holds something beside scenarios and a `README.md`.
pub fn folders(root: &Path) -> Result<Vec<PathBuf>, String> {
    let names = folder::names(root).map_err(|e| e.to_string())?;
    if names.iter().any(|name| name == INPUT) {
        return Ok(vec![root.to_owned()]);
    }
    let folders: Vec<_> = names.iter().filter(|name| *name != "README.md").map(|name| root.join(name)).collect();
    if let Some(stray) = folders.iter().find(|path| !path.is_dir()) {
        return Err(format!("{} is no scenario, and {} has no {INPUT}", stray.display(), root.display()));
    }
    if folders.is_empty() {
        return Err(format!("{} has neither an {INPUT} nor folders with one", root.display()));
    }
    Ok(folders)
}

impl Runner {
    /// Plays a scenario and compares.
    #[must_use]
    pub fn run(&self, path: &Path) -> Outcome {
        let begun = Instant::now();
        let mut outcome = Outcome {
            folder: path.to_owned(),
            error: None,
            differences: Vec::new(),
            updated: Vec::new(),
            diagnostics: String::new(),
            kept: None,
            took: Duration::ZERO,
        };
        outcome.error = self.play(path, &mut outcome).err();
        outcome.took = begun.elapsed();
        outcome
    }

    fn play(&self, path: &Path, outcome: &mut Outcome) -> Result<(), Error> {
        let path = std::path::absolute(path).map_err(|e| Error::Bad(e.to_string()))?;
        let scenario = Folder::open(&path, self.update)?;
        let stage = Stage::new(self, &scenario)?;
        outcome.kept = self.keep.then(|| stage.folder().to_owned());
        let result = self.compare(&scenario, &stage, outcome);
        if result.is_err() || !outcome.differences.is_empty() {
            outcome.diagnostics = stage.diagnostics();
        }
        result
    }

    fn compare(&self, scenario: &Folder, stage: &Stage, outcome: &mut Outcome) -> Result<(), Error> {
        let played = play::play(scenario, stage)?;
        let names = &mut Names::new([played.ids, stage.places(scenario)].concat());
        let mut found = vec![(STDOUT_EXPECTED.to_owned(), names.stdout(played.stdout))];
        for (name, log) in played.logs {
            found.push((scenario.session_expected(&name), names.session(log)));
        }
        if scenario.requests_expected {
            found.push((REQUESTS_EXPECTED.to_owned(), names.requests(&stage.requests()?)));
        }
        for (file, found) in found {
            let expected = match scenario.read(&file) {
                Ok(text) => folder::parse(&file, &text)?,
                // A new scenario that is being updated; for any other the file was looked for.
                Err(_) if self.update => Vec::new(),
                Err(error) => return Err(error),
            };
            if expected != found {
                let text = if file.ends_with(".jsonl") { lines(&found) } else { pretty_array(&found) };
                let difference = difference(&pretty(&expected), &pretty(&found));
                self.differs(outcome, scenario, file, difference, Some(text.as_bytes()))?;
            }
        }
        if scenario.workspace_expected {
            let expected = folder::tree(&scenario.path.join(WORKSPACE_EXPECTED))?;
            let found = folder::tree(&stage.work())?;
            self.compare_files(outcome, scenario, expected, names.files(found))?;
        }
        let unused = stage.unused();
        if !unused.is_empty() {
            let numbers = unused.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(Error::Failed(format!(
                "[[response]] {numbers} of provider.toml: no request got it; what is not needed has to go"
            )));
        }
        Ok(())
    }

    fn compare_files(
        &self,
        outcome: &mut Outcome,
        scenario: &Folder,
        mut expected: BTreeMap<String, Vec<u8>>,
        found: BTreeMap<String, Vec<u8>>,
    ) -> Result<(), Error> {
        for (name, found) in found {
            let expected = expected.remove(&name);
            if expected.as_ref() != Some(&found) {
                let text = file_difference(&expected.unwrap_or_default(), &found);
                self.differs(outcome, scenario, format!("{WORKSPACE_EXPECTED}/{name}"), text, Some(&found))?;
            }
        }
        for (name, expected) in expected {
            let text = format!("the file is not there\n{}", file_difference(&expected, b""));
            self.differs(outcome, scenario, format!("{WORKSPACE_EXPECTED}/{name}"), text, None)?;
        }
        Ok(())
    }

    /// Notes a difference, and rewrites the expectation where that was asked for; one without content is removed.
    fn differs(
        &self,
        outcome: &mut Outcome,
        scenario: &Folder,
        file: String,
        text: String,
        content: Option<&[u8]>,
    ) -> Result<(), Error> {
        if self.update {
            let path = scenario.path.join(&file);
            let written = match content {
                Some(content) => {
                    path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, content))
                }
                None => fs::remove_file(&path),
            };
            written.map_err(|e| Error::Failed(format!("{file} cannot be rewritten: {e}")))?;
            outcome.updated.push(file.clone());
        }
        outcome.differences.push(Difference { file, text });
        Ok(())
    }
}

fn file_difference(expected: &[u8], found: &[u8]) -> String {
    match (std::str::from_utf8(expected), std::str::from_utf8(found)) {
        (Ok(expected), Ok(found)) => match difference(expected, found) {
            text if text.is_empty() => "only line ends differ\n".to_owned(),
            text => text,
        },
        _ => format!("{} bytes were expected, {} other ones are there\n", expected.len(), found.len()),
    }
}

/// A report for people.
impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for Difference { file, text } in &self.differences {
            write!(f, "--- {file}\n+++ what happened\n{text}")?;
        }
        for file in &self.updated {
            writeln!(f, "{file} was rewritten: review it")?;
        }
        if let Some(error) = &self.error {
            writeln!(f, "{error}")?;
        }
        if !self.diagnostics.is_empty() {
            writeln!(f, "stderr of the agent:")?;
            self.diagnostics.lines().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        if let Some(kept) = &self.kept {
            writeln!(f, "played in {}", kept.display())?;
        }
        Ok(())
    }
}

/// Indented, so that a difference shows the member and not the line of a kilobyte that it stands in.
fn pretty(values: &[Value]) -> String {
    values.iter().fold(String::new(), |mut text, value| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{value:#}");
        text
    })
}

fn pretty_array(values: &[Value]) -> String {
    format!("{:#}\n", Value::Array(values.to_vec()))
}

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}
