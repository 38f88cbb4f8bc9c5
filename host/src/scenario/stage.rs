//! Where a scenario is played: a home and a working folder of its own, a composition, and who answers for the model.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dsh_plugin_api::json::raw;
use serde_json::Value;
use tempfile::TempDir;

use super::folder::{self, Folder, LOADER, MAIN, Model, OVERLAY, PROVIDER, SESSION, TRAFFIC, WORKSPACE};
use super::{Error, Runner};
use crate::mock::{MockProvider, Script};

/// Stands for the provider's URL in manifests of a scenario.
const URL: &str = "@PROVIDER@";

/// A stage. Dropping it removes its folder, unless that is kept.
#[derive(Debug)]
pub(super) struct Stage {
    dir: TempDir,
    dsh: PathBuf,
    /// Options of every `dsh`: the composition.
    composition: Vec<OsString>,
    provider: Option<Provider>,
}

#[derive(Debug)]
struct Provider {
    mock: MockProvider,
    /// Whether each answer of the script is for any number of requests.
    repeat: Vec<bool>,
}

impl Stage {
    pub fn new(runner: &Runner, scenario: &Folder) -> Result<Self, Error> {
        let failed = |e: std::io::Error| Error::Failed(format!("the stage cannot be built: {e}"));
        let dir =
            tempfile::Builder::new().prefix("dsh-test-").disable_cleanup(runner.keep).tempdir().map_err(failed)?;
        let mut stage = Self { dir, dsh: runner.dsh.clone(), composition: Vec::new(), provider: None };
        for folder in [stage.work(), stage.sessions()] {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        if scenario.workspace {
            folder::copy(&scenario.path.join(WORKSPACE), &stage.work())?;
        }
        for (name, file) in &scenario.logs {
            let ending = file.to_string_lossy().rsplit_once(".jsonl").map_or_else(String::new, |it| it.1.to_owned());
            fs::copy(file, stage.sessions().join(format!("{name}.jsonl{ending}"))).map_err(failed)?;
        }
        if scenario.model == Model::Provider {
            stage.provider = Some(Provider::start(runner, scenario)?);
        }
        stage.compose(runner, scenario)?;
        Ok(stage)
    }

    /// The composition of the scenario or of the command; over it who answers for the model; over that the overlays of
    /// the command and of the scenario.
    fn compose(&mut self, runner: &Runner, scenario: &Folder) -> Result<(), Error> {
        if scenario.loader {
            let loader = self.manifest(scenario, LOADER)?;
            self.option("--manifest", loader);
        } else if let Some(manifest) = &runner.manifest {
            self.option("--manifest", manifest);
        }
        let quoted = |name: &str| raw(&scenario.path.join(name).display().to_string());
        let served = match scenario.model {
            Model::Provider => None,
            Model::Session => Some(format!(
                "version = 1\n[[adapter]]\nid = \"replay\"\nlibrary = \"dsh-llm-replay\"\n\
                 [adapter.config.providers.recorded]\nsession = {{ file = {} }}\n\
                 [agent]\nmodel = \"recorded/session\"\n",
                quoted(SESSION)
            )),
            // Waits for `[transport] replay`; until a manifest knows that key, it is refused with its place.
            Model::Traffic => Some(format!("version = 1\n[transport]\nreplay = {}\n", quoted(TRAFFIC))),
        };
        if let Some(text) = served {
            let overlay = self.write("model.toml", &text)?;
            self.option("--overlay", overlay);
        }
        for overlay in &runner.overlays {
            self.option("--overlay", overlay);
        }
        if scenario.overlay {
            let overlay = self.manifest(scenario, OVERLAY)?;
            self.option("--overlay", overlay);
        }
        Ok(())
    }

    /// A manifest of the scenario. Only one that needs the provider's URL is copied: relative paths start where it is.
    fn manifest(&self, scenario: &Folder, name: &str) -> Result<PathBuf, Error> {
        let text = scenario.read(name)?;
        match &self.provider {
            Some(provider) if text.contains(URL) => self.write(name, &text.replace(URL, provider.mock.url())),
            None if text.contains(URL) => {
                Err(Error::Bad(format!("{name} names {URL}, and without {PROVIDER} there is none")))
            }
            _ => Ok(scenario.path.join(name)),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.dir.path().join(name);
        match fs::write(&path, text) {
            Ok(()) => Ok(path),
            Err(e) => Err(Error::Failed(format!("the stage cannot be built: {e}"))),
        }
    }

    fn option(&mut self, name: &str, value: impl Into<PathBuf>) {
        self.composition.extend([name.into(), value.into().into_os_string()]);
    }

    /// The folder of all this.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    fn sessions(&self) -> PathBuf {
        self.home().join("sessions")
    }

    fn stderr(&self) -> PathBuf {
        self.dir.path().join("stderr.txt")
    }

    /// `dsh acp` in the working folder; what steers `dsh` is not inherited but for the places of adapters.
    pub fn acp(&self) -> Result<Command, Error> {
        let mut command = Command::new(&self.dsh);
        command.arg("--home").arg(self.home()).args(&self.composition);
        let stderr = File::options().create(true).append(true).open(self.stderr());
        command.stderr(stderr.map_err(|e| Error::Failed(format!("the stage cannot be built: {e}")))?);
        command.arg("acp").current_dir(self.work()).env_remove("DSH_HOME").env_remove("DSH_LOG");
        // A proxy of the environment must not be asked for a provider on this machine.
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
        Ok(command)
    }

    /// The last lines that the agent's processes wrote to stderr.
    pub fn diagnostics(&self) -> String {
        let text = fs::read(self.stderr()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].iter().map(|line| format!("{line}\n")).collect()
    }

    /// The session files by id, sorted.
    pub fn logs(&self) -> Result<Vec<(String, PathBuf)>, Error> {
        let id = |file: &String| file.split_once(".jsonl").map(|(id, _)| id.to_owned());
        let files = folder::names(&self.sessions())?;
        Ok(files.iter().filter_map(|file| Some((id(file)?, self.sessions().join(file)))).collect())
    }

    /// The text for each folder and URL of this run, with the name that stands for it.
    pub fn places(&self, scenario: &Folder) -> Vec<(String, String)> {
        let mut places = Vec::new();
        if let Some(Provider { mock, .. }) = &self.provider {
            places.push((mock.url().to_owned(), "<provider>".to_owned()));
            places.push((mock.url().trim_start_matches("http://").to_owned(), "<provider>".to_owned()));
        }
        let folders = [(self.home(), "<home>"), (self.work(), "<workspace>"), (self.folder().to_owned(), "<stage>")];
        places.extend(folders.map(|(path, name)| (path.display().to_string(), name.to_owned())));
        places.push((scenario.path.display().to_string(), "<scenario>".to_owned()));
        places
    }

    /// The requests that the provider got, in the form of its request log.
    pub fn requests(&self) -> Result<Vec<Value>, Error> {
        let records = self.provider.as_ref().map(|provider| provider.mock.requests()).unwrap_or_default();
        let parse = |record| serde_json::from_str(raw(record).get());
        let parsed: Result<_, _> = records.iter().map(parse).collect();
        parsed.map_err(|e| Error::Failed(format!("a request cannot be compared: {e}")))
    }

    /// The 1-based answers of the script that no request got.
    pub fn unused(&self) -> Vec<usize> {
        let Some(Provider { mock, repeat }) = &self.provider else { return Vec::new() };
        let used: Vec<usize> = mock.requests().iter().filter_map(|request| request.response).collect();
        let answers = repeat.iter().enumerate();
        answers.filter(|(at, repeat)| !**repeat && !used.contains(at)).map(|(at, _)| at + 1).collect()
    }
}

impl Provider {
    fn start(runner: &Runner, scenario: &Folder) -> Result<Self, Error> {
        let script = Script::load(&scenario.path.join(PROVIDER)).map_err(|e| Error::Bad(e.to_string()))?;
        if script.log.is_some() {
            return Err(Error::Bad(format!("{PROVIDER} has a `log`; requests.expected.json holds the requests")));
        }
        let repeat = script.responses.iter().map(|answer| answer.repeat).collect();
        let started = runner.runtime.block_on(MockProvider::start(script, None, 0));
        Ok(Self { mock: started.map_err(|e| Error::Failed(e.to_string()))?, repeat })
    }
}

/// The name that stands for the id of a session.
pub(super) fn session_name(name: &str) -> String {
    if name == MAIN { "<session>".to_owned() } else { format!("<session {name}>") }
}

/// How long what a step waits for may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
