//! `dsh manifest check`: strict, and with every problem at once.
//!
//! What the files themselves say comes first, since nothing is loaded for a manifest that is wrong. Then each adapter is
//! loaded on its own, and asked again without the route that it refused, so that no problem hides another.

use std::collections::BTreeSet;
use std::process::ExitCode;

use dsh_plugin_api::vocab::Failure;

use super::super::output::print;
use super::super::{CommandError, Context};
use super::summary;
use crate::llm::registry::Registry;
use crate::loader::{CreateError, Loader};
use crate::manifest::{AdapterEntry, Manifest, ManifestError};

/// Also an adapter that is not required must load, and each agent's model must have a route.
pub(super) fn run(context: &Context) -> Result<ExitCode, CommandError> {
    let manifest = context.manifest()?;
    let mut check = Check::of(&manifest, context);
    for entry in &manifest.adapters {
        check.adapter(entry);
    }
    let notes = check.agents();
    print(&summary(&manifest, &check.registry))?;
    for note in notes {
        eprintln!("{:?}", note.into_report());
    }
    match ManifestError::all(check.problems) {
        None => Ok(ExitCode::SUCCESS),
        Some(problems) => Err(CommandError::usage(problems.into_report())),
    }
}

/// What was loaded so far, and what is wrong.
struct Check<'a> {
    manifest: &'a Manifest,
    loader: Loader,
    registry: Registry,
    problems: Vec<ManifestError>,
    /// Routes that were refused: that an agent cannot use them is no problem of its own.
    refused: BTreeSet<String>,
    /// Whether some adapter is missing whose routes nobody knows.
    incomplete: bool,
}

impl<'a> Check<'a> {
    fn of(manifest: &'a Manifest, context: &Context) -> Self {
        Self {
            manifest,
            loader: Loader::new(context.home()),
            registry: Registry::default(),
            problems: Vec::new(),
            refused: BTreeSet::new(),
            incomplete: false,
        }
    }

    fn adapter(&mut self, entry: &AdapterEntry) {
        let mut alone = self.manifest.clone();
        alone.adapters = self.accepted(entry).into_iter().collect();
        let Registry { adapters, routes } = match Registry::load(&alone, &self.loader) {
            Ok(registry) => registry,
            Err(error) => {
                self.incomplete = true;
                return self.problems.push(error);
            }
        };
        for status in adapters {
            if let Some(error) = &status.error {
                self.incomplete = true;
                self.problems.push(self.manifest.adapter_unusable(&status.id, error));
            }
            self.registry.adapters.push(status);
        }
        for (name, route) in routes {
            match self.registry.routes.get(&name) {
                Some(first) => {
                    self.problems.push(self.manifest.route_conflict(&name, &first.adapter, &route.adapter));
                }
                None => drop(self.registry.routes.insert(name, route)),
            }
        }
    }

    /// The adapter without what it refuses in its configuration; `None` when nothing can be left out any more.
    fn accepted(&mut self, entry: &AdapterEntry) -> Option<AdapterEntry> {
        let mut entry = entry.clone();
        // What is wrong with the library is told by whoever loads it next.
        let Ok(library) = self.loader.load(&entry.spec) else { return Some(entry) };
        while let Err(CreateError::Config(refusal)) = library.create(&entry.config).map(drop) {
            self.problems.push(self.manifest.config_error(&entry.id, &refusal));
            let Some(route) = without_route(&mut entry.config, &refusal.path) else {
                self.incomplete = true;
                return None;
            };
            self.refused.insert(route);
        }
        Some(entry)
    }

    /// The models of the agents; what is worth a note and no problem is given back.
    fn agents(&mut self) -> Vec<ManifestError> {
        let mut notes = Vec::new();
        for (name, agent) in &self.manifest.agents {
            let Some(model) = &agent.model else { continue };
            match self.registry.resolve(model) {
                Ok((route, target)) => {
                    let mut listed = route.info.models.iter().map(|model| model.id.as_str()).peekable();
                    if listed.peek().is_some() && !listed.clone().any(|id| id == target.model) {
                        let listed: Vec<&str> = listed.collect();
                        notes.push(self.manifest.unlisted_model(name, &target.provider, &target.model, &listed));
                    }
                }
                Err(Failure { message, .. }) => {
                    let route = model.split('/').next().unwrap_or_default();
                    let has_route = self.registry.routes.contains_key(route);
                    if has_route || !(self.incomplete || self.refused.contains(route)) {
                        self.problems.push(self.manifest.model_error(name, &message));
                    }
                }
            }
        }
        notes
    }
}

/// Takes the route out of a configuration that a path leads into, and names it. Names may hold dots themselves, so the
/// longest one that fits is meant.
fn without_route(config: &mut serde_json::Value, path: &str) -> Option<String> {
    let routes = config.get_mut("providers")?.as_object_mut()?;
    let rest = path.strip_prefix("providers.")?;
    let leads = |name: &&String| {
        rest.strip_prefix(name.as_str()).is_some_and(|after| after.is_empty() || after.starts_with(['.', '[']))
    };
    let name = routes.keys().filter(leads).max_by_key(|name| name.len())?.clone();
    routes.shift_remove(&name)?;
    Some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_route_that_a_path_leads_into_is_taken_out() {
        for (path, expected) in [
            ("providers.a", Some("a")),
            ("providers.a.models[0].id", Some("a")),
            ("providers.a.b.models", Some("a.b")),
            ("providers.ab", None),
            ("providers", None),
            ("models.a", None),
            ("", None),
        ] {
            let mut config = json!({ "providers": { "a": 1, "a.b": 2, "c": 3 } });
            assert_eq!(without_route(&mut config, path).as_deref(), expected, "{path}");
            let left = config["providers"].as_object().unwrap();
            assert_eq!(left.len(), if expected.is_some() { 2 } else { 3 });
            assert!(expected.is_none_or(|name| left.get(name).is_none()));
        }
    }
}
