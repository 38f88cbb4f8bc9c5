//! `dsh manifest`

mod check;

use std::process::ExitCode;

use clap::Subcommand;

use super::output::{print, print_json};
use super::{CommandError, Context};
use crate::llm::credential;
use crate::llm::registry::{Registry, Route};
use crate::manifest::{Manifest, Origin, Trust, json_schema};

/// `dsh manifest …`
#[derive(Debug, Subcommand)]
pub enum ManifestCommand {
    /// Validate the manifest and load what it names; tells every problem at once
    Check,
    /// Print the JSON Schema of the manifest, for editors
    Schema,
    /// Trust the manifest in the current folder until it changes, and print what that allows it: libraries, places,
    /// credentials, tools
    Trust,
}

pub(super) fn run(context: &Context, command: ManifestCommand) -> Result<ExitCode, CommandError> {
    match command {
        ManifestCommand::Check => check::run(context),
        ManifestCommand::Schema => schema(),
        ManifestCommand::Trust => trust(context),
    }
}

fn summary(manifest: &Manifest, registry: &Registry) -> String {
    let mut lines = Vec::new();
    let found = match &manifest.origin {
        Origin::Given(_) => "",
        Origin::CurrentFolder(_) => " (in the current folder)",
        Origin::Home(_) => " (in the home folder)",
        Origin::BuiltIn => " (no loader.toml was found)",
    };
    for (at, file) in manifest.files().enumerate() {
        lines.push(if at == 0 { format!("manifest  {file}{found}") } else { format!("overlay   {file}") });
    }
    lines.push(format!("sessions  {}", manifest.sessions.dir.display()));
    for adapter in &registry.adapters {
        let version = adapter.version.as_deref().map(|version| format!(" {version}")).unwrap_or_default();
        lines.push(format!("adapter   {}: {}{version}", adapter.id, adapter.library));
        if let Some(error) = &adapter.error {
            lines.push(format!("  cannot be used: {error}"));
        }
        let width = adapter.routes.iter().map(|route| route.chars().count()).max().unwrap_or_default();
        for name in &adapter.routes {
            let needs = registry.routes.get(name).map(|route| needs(route)).unwrap_or_default();
            lines.push(format!("  {name:width$}  {needs}"));
        }
    }
    for (name, agent) in &manifest.agents {
        let model = agent.model.as_deref().unwrap_or("no model: name one with -m PROVIDER/MODEL");
        lines.push(format!("agent     {name}: {model}"));
    }
    lines.join("\n") + "\n"
}

fn needs(route: &Route) -> String {
    match &route.credential {
        None => "no credential".to_owned(),
        Some(name) if credential::is_set(name) => format!("{name} is set"),
        Some(name) => format!("{name} is not set"),
    }
}

fn schema() -> Result<ExitCode, CommandError> {
    print_json(&json_schema())?;
    Ok(ExitCode::SUCCESS)
}

fn trust(context: &Context) -> Result<ExitCode, CommandError> {
    match context.lookup.trust().map_err(|e| CommandError::usage(e.into_report()))? {
        Trust::NotNeeded => print("no manifest of the current folder is in use, so none needs trust\n")?,
        Trust::Marked { manifest, allows } => {
            let mut text = format!("{} is trusted until it changes", manifest.display());
            if allows.is_empty() {
                text.push_str("\n  it does nothing that needs trust");
            }
            for what in allows {
                text.push_str(&format!("\n  it {what}"));
            }
            print(&(text + "\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
