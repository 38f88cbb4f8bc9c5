//! What a scenario folder holds, and that it holds nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Error;
use super::steps::Step;

/// The steps.
pub(super) const INPUT: &str = "input.json";
/// The mock provider's script.
pub(super) const PROVIDER: &str = "provider.toml";
/// A session log whose model side is served.
pub(super) const SESSION: &str = "session.jsonl";
/// Recorded traffic.
pub(super) const TRAFFIC: &str = "traffic.json";
/// A composition of the scenario's own.
pub(super) const LOADER: &str = "loader.toml";
/// Merged over the composition.
pub(super) const OVERLAY: &str = "overlay.toml";
/// Copied into the working folder.
pub(super) const WORKSPACE: &str = "workspace";
/// Copied into the home's sessions.
pub(super) const SESSIONS: &str = "sessions";
/// The agent's messages.
pub(super) const STDOUT_EXPECTED: &str = "stdout.expected.jsonl";
/// The requests to the mock provider.
pub(super) const REQUESTS_EXPECTED: &str = "requests.expected.json";
/// The files of the working folder afterwards.
pub(super) const WORKSPACE_EXPECTED: &str = "workspace.expected";
/// The session of a step that names none.
pub(super) const MAIN: &str = "main";

/// Who answers for the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Model {
    Provider,
    Session,
    Traffic,
}

/// A scenario folder whose files fit together.
#[derive(Debug)]
pub(super) struct Folder {
    pub path: PathBuf,
    pub steps: Vec<Step>,
    pub model: Model,
    pub loader: bool,
    pub overlay: bool,
    pub workspace: bool,
    /// Names of the logs in `sessions/`, without their endings, and the files.
    pub logs: BTreeMap<String, PathBuf>,
    /// Names of the sessions that steps make or load, in order of first appearance.
    pub sessions: Vec<String>,
    pub requests_expected: bool,
    pub workspace_expected: bool,
}

impl Folder {
    /// Reads the steps and looks which files there are. Where `update` is set, expectations may be missing.
    pub fn open(path: &Path, update: bool) -> Result<Self, Error> {
        let there = names(path)?;
        let has = |name: &str| there.iter().any(|it| it == name);
        if !has(INPUT) {
            return Err(Error::Bad(format!("{INPUT} is missing")));
        }
        let steps: Vec<Step> = serde_json::from_str(&read(path, INPUT)?)
            .map_err(|e| Error::Bad(format!("{INPUT}: {e}; docs/testing-compositions.md lists the steps")))?;
        let mut problems = Vec::new();
        let model = match [PROVIDER, SESSION, TRAFFIC].map(has) {
            [true, false, false] => Model::Provider,
            [false, true, false] => Model::Session,
            [false, false, true] => Model::Traffic,
            [false, false, false] => {
                return Err(Error::Bad(format!("the model's side is missing: {PROVIDER}, {SESSION} or {TRAFFIC}")));
            }
            _ => {
                let which: Vec<_> = [PROVIDER, SESSION, TRAFFIC].into_iter().filter(|name| has(name)).collect();
                return Err(Error::Bad(format!("the model's side is given twice: {}; keep one", which.join(", "))));
            }
        };
        let mut sessions: Vec<String> = Vec::new();
        for name in steps.iter().filter_map(Step::opens) {
            if !sessions.contains(&name) {
                sessions.push(name);
            }
        }
        if sessions.is_empty() {
            problems.push("no step makes or loads a session".to_owned());
        }
        let logs = if has(SESSIONS) { logs(&path.join(SESSIONS))? } else { BTreeMap::new() };
        let unused = logs.iter().filter(|(name, _)| !sessions.contains(name));
        problems.extend(unused.map(|(name, _)| format!("{SESSIONS}/{name} is not used: no step loads session {name}")));
        let mut folder = Self {
            path: path.to_owned(),
            steps,
            model,
            loader: has(LOADER),
            overlay: has(OVERLAY),
            workspace: has(WORKSPACE),
            logs,
            sessions,
            requests_expected: has(REQUESTS_EXPECTED),
            workspace_expected: has(WORKSPACE_EXPECTED),
        };
        if model == Model::Provider && !folder.loader && !folder.overlay {
            problems.push(format!("{OVERLAY} or {LOADER} is missing: one has to name the provider's URL"));
        }
        if model != Model::Provider && folder.requests_expected {
            problems.push(format!("{REQUESTS_EXPECTED} is not used: only {PROVIDER} gets requests"));
            folder.requests_expected = false;
        }
        let mut known: Vec<String> = [
            INPUT,
            PROVIDER,
            SESSION,
            TRAFFIC,
            LOADER,
            OVERLAY,
            WORKSPACE,
            SESSIONS,
            STDOUT_EXPECTED,
            REQUESTS_EXPECTED,
            WORKSPACE_EXPECTED,
        ]
        .map(str::to_owned)
        .to_vec();
        let expected: Vec<String> = folder.sessions.iter().map(|name| folder.session_expected(name)).collect();
        let needed = expected.iter().map(String::as_str).chain([STDOUT_EXPECTED]);
        let missing = needed.filter(|name| !update && !has(name));
        problems.extend(missing.map(|name| format!("{name} is missing; --update makes it")));
        known.extend(expected);
        let unused = there.iter().filter(|name| !known.contains(name));
        problems.extend(unused.map(|name| format!("{name} is not used")));
        if problems.is_empty() { Ok(folder) } else { Err(Error::Bad(problems.join("; "))) }
    }

    /// The name of the expectation for a session's log.
    pub fn session_expected(&self, name: &str) -> String {
        if self.sessions.len() < 2 {
            return "session.expected.jsonl".to_owned();
        }
        format!("session.{name}.expected.jsonl")
    }

    /// The text of a file.
    pub fn read(&self, name: &str) -> Result<String, Error> {
        read(&self.path, name)
    }
}

/// Names of what a folder holds, sorted. Hidden files are none of ours.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let failed = |e: std::io::Error| Error::Bad(format!("{} cannot be read: {e}", folder.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    Ok(names)
}

fn logs(folder: &Path) -> Result<BTreeMap<String, PathBuf>, Error> {
    let mut logs = BTreeMap::new();
    for file in names(folder)? {
        let name = [".jsonl", ".jsonl.zst", ".jsonl.zstd"].iter().find_map(|ending| file.strip_suffix(ending));
        let Some(name) = name else {
            return Err(Error::Bad(format!("{SESSIONS}/{file} is no session log: call it NAME.jsonl")));
        };
        logs.insert(name.to_owned(), folder.join(&file));
    }
    Ok(logs)
}

fn read(folder: &Path, name: &str) -> Result<String, Error> {
    fs::read_to_string(folder.join(name)).map_err(|e| Error::Bad(format!("{name} cannot be read: {e}")))
}

/// A JSON array, or one value a line.
pub(super) fn parse(name: &str, text: &str) -> Result<Vec<Value>, Error> {
    let wrong = |e: serde_json::Error| Error::Bad(format!("{name}: {e}"));
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map_err(wrong);
    }
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|e| Error::Bad(format!("{name}, line {}: {e}", number + 1)))
    };
    lines.map(parse).collect()
}

/// The files below a folder: paths with `/`, and contents.
pub(super) fn tree(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let mut files = BTreeMap::new();
    walk(folder, "", &mut |path, name| {
        let bytes = fs::read(path).map_err(|e| Error::Bad(format!("{} cannot be read: {e}", path.display())))?;
        files.insert(name.to_owned(), bytes);
        Ok(())
    })?;
    Ok(files)
}

/// Copies the files below a folder; modes are kept.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    walk(from, "", &mut |path, name| {
        let target = to.join(name);
        let made = target.parent().map_or(Ok(()), fs::create_dir_all);
        let copied = made.and_then(|()| fs::copy(path, &target));
        copied.map(drop).map_err(|e| Error::Bad(format!("{} cannot be copied: {e}", path.display())))
    })
}

fn walk(folder: &Path, prefix: &str, each: &mut dyn FnMut(&Path, &str) -> Result<(), Error>) -> Result<(), Error> {
    let failed = |e: std::io::Error| Error::Bad(format!("{} cannot be read: {e}", folder.display()));
    let entries: Vec<_> = fs::read_dir(folder).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
    for entry in entries {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            walk(&entry.path(), &format!("{name}/"), each)?;
        } else if kind.is_file() {
            each(&entry.path(), &name)?;
        } else {
            return Err(Error::Bad(format!("{} is neither a file nor a folder", entry.path().display())));
        }
    }
    Ok(())
}
