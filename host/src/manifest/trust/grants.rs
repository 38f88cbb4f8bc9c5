//! What a manifest does beyond what `dsh` does without one.
//!
//! The places that are known are those of the built-in manifest: an origin, and the credential that belongs to it. A
//! preset is known by its name alone, since its adapter sends NAME_API_KEY to one place; a route that names a place of
//! its own beside it is judged by that place. What an adapter makes of keys that the host does not know shows in the
//! origin that it gives its route, which is the one that the transport holds it to; see [`unexpected_place`].

use super::Grant;
use crate::manifest::files::BUILT_IN;
use crate::manifest::place::{Place, Source};
use crate::manifest::places::{origin, preset_credential};
use crate::manifest::read::Parts;
use crate::manifest::tree::{self, Entry, Table, Value};
use crate::manifest::{Served, words};

/// Keys of a route that name no place, for a route that names a preset.
const HARMLESS: [&str; 6] = ["provider", "api", "credential", "cache_retention", "models", "compat"];

/// The places of the built-in manifest.
pub(in crate::manifest) struct Known {
    /// Credential and origin.
    places: Vec<(Option<String>, String)>,
}

impl Known {
    /// Reads the built-in manifest.
    pub(in crate::manifest) fn built_in() -> Self {
        let mut source = Source::new("", None, std::path::PathBuf::new(), BUILT_IN);
        let (root, _) = tree::parse(&mut source, 0);
        let place = |(_, route): (&Entry, &Table)| {
            let origin = origin(text(route, "base_url")?)?;
            Some((credential(route).map(|(name, _)| name.to_owned()), origin))
        };
        let places = root.adapters().flat_map(|(adapter, _)| routes(adapter)).filter_map(place).collect();
        Self { places }
    }

    /// Whether this credential belongs to this origin; without one, whether the origin is known.
    fn takes(&self, credential: Option<&str>, origin: &str) -> bool {
        self.places.iter().any(|(its, known)| known == origin && (credential.is_none() || its.as_deref() == credential))
    }

    /// Whether a credential belongs to any place.
    fn has(&self, credential: &str) -> bool {
        self.places.iter().any(|(its, _)| its.as_deref() == Some(credential))
    }
}

/// What the manifest itself does and an overlay does not, in its order.
pub(in crate::manifest) fn grants(root: &Table, parts: &Parts, known: &Known) -> Vec<Grant> {
    let mut grants = Vec::new();
    for (place, library) in &parts.library_paths {
        let does = format!("loads `{}`, which runs its code", library.escape_debug());
        grants.push(Grant::new(*place, "loaded by path", does));
    }
    for (place, file) in &parts.outside_files {
        let does = format!("takes the text of `{}`, outside of its folder", file.escape_debug());
        grants.push(Grant::new(*place, "read from elsewhere", does));
    }
    let sessions = root.get("sessions").and_then(|node| node.value.as_table());
    if let Some((dir, place)) = sessions.and_then(|table| string(table, "dir")) {
        let does = format!("keeps sessions in `{}`, and continues those that it finds there", dir.escape_debug());
        grants.push(Grant::new(place, "not the home folder's", does));
    }
    let tools = Tools::of(root);
    for (adapter, _) in root.adapters() {
        grants.extend(routes(adapter).filter_map(|(entry, route)| of_route(entry, route, known, tools.as_ref())));
    }
    grants.extend(agents(root).filter_map(instructed));
    grants.retain(|grant| is_own(grant.place));
    grants.sort_by_key(|grant| grant.place);
    grants
}

/// A route whose words say that it goes to a place that is not known, or that it goes to none.
fn of_route(entry: &Entry, route: &Table, known: &Known, tools: Option<&Tools>) -> Option<Grant> {
    let name = &entry.key;
    let credential = credential(route);
    let reference = credential.map(|(name, _)| name);
    if let Some(url) = route.get("base_url") {
        let origin = url.value.as_str().and_then(origin);
        if origin.as_deref().is_some_and(|origin| known.takes(reference, origin)) {
            return None;
        }
        return Some(sends(url.place, name, origin.as_deref(), credential, tools));
    }
    let preset = text(route, "provider");
    match (credential, preset) {
        // Its own key; another one, which the place of the preset is not known to own.
        (Some((reference, _)), Some(preset)) if reference == preset_credential(preset) => None,
        // The adapter says the place; `unexpected_place` looks at it.
        (Some((reference, _)), None) if known.has(reference) => None,
        (Some((_, place)), _) => Some(sends(place, name, None, credential, tools)),
        (None, Some(_)) => None,
        (None, None) => tools.map(|tools| answers(entry.key_place, name, tools)),
    }
}

/// A route of an adapter that was made, when it does not go where the words of the manifest let expect.
pub(in crate::manifest) fn unexpected_place(root: &Table, served: &Served<'_>, known: &Known) -> Option<Grant> {
    let Served { adapter, route: name, origin, credential: reference } = *served;
    let (adapter, _) = root.adapter(adapter)?;
    let config = adapter.get("config").filter(|config| is_own(config.place))?;
    let found = routes(adapter).find(|(entry, _)| entry.key == name);
    let place = found.map_or(config.place, |(entry, _)| entry.key_place);
    let route = found.map(|(_, route)| route);
    let url = route.and_then(|route| route.get("base_url"));
    if !is_own(place) || url.is_some_and(|url| !is_own(url.place)) {
        return None;
    }
    if let Some(route) = route.filter(|route| url.is_none() && text(route, "provider").is_some()) {
        let other = |entry: &&Entry| is_own(entry.key_place) && !HARMLESS.contains(&entry.key.as_str());
        let Entry { key, key_place, .. } = route.entries.iter().find(other)?;
        let does = format!("sets `{}` of the route `{}`", key.escape_debug(), name.escape_debug());
        return Some(Grant::new(
            *key_place,
            "may name another place",
            does + ", which may send what belongs to its preset elsewhere",
        ));
    }
    let tools = Tools::of(root);
    match origin {
        Some(origin) if known.takes(reference, origin) => None,
        Some(_) => Some(sends(place, name, origin, reference.map(|name| (name, place)), tools.as_ref())),
        None => tools.map(|tools| answers(place, name, &tools)),
    }
}

fn sends(
    place: Place,
    route: &str,
    origin: Option<&str>,
    credential: Option<(&str, Place)>,
    tools: Option<&Tools>,
) -> Grant {
    let to = origin.map_or_else(|| "a place that its adapter chooses".to_owned(), |origin| format!("`{origin}`"));
    let mut does = format!("sends the conversations of the route `{}` to {to}", route.escape_debug());
    if let Some((reference, _)) = credential {
        does.push_str(&format!(" with the credential `{reference}`"));
    }
    if let Some(tools) = tools {
        does.push_str(&format!(" and lets the answers use {}", tools.names));
    }
    let label = if origin.is_some() { "a place of its own" } else { "a credential that belongs to no known place" };
    let mut grant = Grant::new(place, label, does);
    let reference = credential.filter(|(_, at)| *at != place);
    grant.with = reference.map(|(reference, at)| (at, format!("with `{reference}`")));
    grant
}

/// What answers without a place comes from the manifest.
fn answers(place: Place, route: &str, tools: &Tools) -> Grant {
    let does = format!("answers the route `{}` itself and lets the answers use {}", route.escape_debug(), tools.names);
    let mut grant = Grant::new(place, "asks no provider", does);
    grant.with = Some((tools.place, format!("{} for what it answers", tools.names)));
    grant
}

/// An agent that acts by what the manifest tells it.
fn instructed(agent: &Table) -> Option<Grant> {
    let (_, place) = string(agent, "system")?;
    let tools = Tools::in_agent(agent)?;
    let does = format!("tells an agent with {} what to do, in place of the built-in instructions", tools.names);
    let mut grant = Grant::new(place, "instructions of its own", does);
    grant.with = Some((tools.place, format!("with {}", tools.names)));
    Some(grant)
}

/// The tools of an agent.
struct Tools {
    /// In backquotes.
    names: String,
    place: Place,
}

impl Tools {
    /// Those of the first agent that has any: every route may be chosen for every agent.
    fn of(root: &Table) -> Option<Self> {
        agents(root).find_map(Self::in_agent)
    }

    fn in_agent(agent: &Table) -> Option<Self> {
        let node = agent.get("tools")?;
        let Value::Array(tools) = &node.value else { return None };
        let names: Vec<&str> = tools.iter().filter_map(|tool| tool.value.as_str()).collect();
        (!names.is_empty()).then(|| Self { names: words::list(names), place: node.place })
    }
}

/// `[agent]` and `[agents.NAME]`.
fn agents(root: &Table) -> impl Iterator<Item = &Table> {
    let further = root.get("agents").and_then(|node| node.value.as_table());
    let further = further.into_iter().flat_map(|table| table.entries.iter().map(|entry| &entry.node));
    root.get("agent").into_iter().chain(further).filter_map(|node| node.value.as_table())
}

/// `[adapter.config.providers.ROUTE]`.
fn routes(adapter: &Table) -> impl Iterator<Item = (&Entry, &Table)> {
    let providers = adapter.get("config").and_then(|node| node.value.as_table()).and_then(|it| it.get("providers"));
    let entries = providers.and_then(|node| node.value.as_table()).into_iter().flat_map(|table| &table.entries);
    entries.filter_map(|entry| entry.node.value.as_table().map(|route| (entry, route)))
}

fn string<'t>(table: &'t Table, key: &str) -> Option<(&'t str, Place)> {
    table.get(key).and_then(|node| node.value.as_str().map(|text| (text, node.place)))
}

fn text<'t>(table: &'t Table, key: &str) -> Option<&'t str> {
    string(table, key).map(|(text, _)| text)
}

/// The credential of a route by its plain name.
fn credential(route: &Table) -> Option<(&str, Place)> {
    string(route, "credential").and_then(|(text, place)| words::reference(text).map(|name| (name, place)))
}

/// Whether a value stands in the manifest and not in an overlay.
const fn is_own(place: Place) -> bool {
    place.file == 0
}
