//! `dsh models`

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use dsh_plugin_api::vocab::{FailureCode, ModelInfo};
use serde::Serialize;
use serde_json::Value;

use super::output::{plain, print, print_json, table};
use super::run::describe as one_line;
use super::{CommandError, Context, Threads, block_on};
use crate::llm::client::Client;
use crate::llm::credential;
use crate::llm::registry::{Registry, Route};

/// Arguments of `dsh models`.
#[derive(Debug, Args)]
pub struct ModelsArgs {
    /// Only this provider route
    provider: Option<String>,
    /// Ask the provider's server which models it serves
    #[arg(long, requires = "provider")]
    discover: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One element of `dsh models --json`: a model, or a route that takes any model and lists none (`model` is `null`).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    provider: &'a str,
    model: Option<&'a str>,
    adapter: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    api: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<&'a str>,
    /// In tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    context_window: Option<u64>,
    /// In tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    reasoning: bool,
    input: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    credential: Option<Credential<'a>>,
    /// True when the route also takes models that it does not list.
    any_model: bool,
}

/// A reference and whether it can be used; never its value.
#[derive(Clone, Copy, Serialize)]
struct Credential<'a> {
    reference: &'a str,
    set: bool,
}

pub(super) fn run(context: &Context, args: ModelsArgs) -> Result<ExitCode, CommandError> {
    let manifest = context.manifest()?;
    let registry = context.registry(&manifest)?;
    let routes = match &args.provider {
        None => registry.routes.values().collect(),
        Some(provider) => {
            let route = registry.route(provider);
            vec![route.map_err(|failure| CommandError::usage_text(failure.message, "see `dsh plugins list`"))?]
        }
    };
    if let (true, [route]) = (args.discover, routes.as_slice()) {
        return discover(Client::new(manifest.transport), route, args.json);
    }
    let rows: Vec<Row<'_>> = routes.into_iter().flat_map(|route| rows(route, &route.info.models)).collect();
    if args.json {
        print_json(&rows)?;
    } else {
        print(&describe(&rows, &registry))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The same for the models that the server lists, and how to write one down.
fn discover(client: Client, route: &Arc<Route>, json: bool) -> Result<ExitCode, CommandError> {
    let name = &route.info.name;
    let asked = Arc::clone(route);
    let models = block_on(Threads::One, async move {
        client.models(&asked).await.map_err(|failure| {
            let name = &asked.info.name;
            let mut text = format!("the models of `{name}` cannot be listed: {}", one_line(&failure));
            if failure.code == FailureCode::Unsupported {
                text.push_str(&format!("; `dsh models {name}` lists those of the manifest"));
                if asked.info.any_model {
                    text.push_str(&format!(", and any other id can be given with -m {name}/MODEL"));
                }
            }
            CommandError::failed_text(text)
        })
    })?;
    let rows: Vec<Row<'_>> = models.iter().map(|model| row(route, reference(route), Some(model))).collect();
    if json {
        print_json(&rows)?;
    } else if rows.is_empty() {
        print(&format!("The server of `{name}` lists no model.\n"))?;
    } else {
        print(&format!("{}{}", listed(&rows), hint(route, &models)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How to use a model, and how to write it down where its adapter says so: one that the manifest does not list, and of
/// which the server says most.
fn hint(route: &Route, models: &[ModelInfo]) -> String {
    let unlisted = models.iter().filter(|model| route.info.models.iter().all(|listed| listed.id != model.id));
    let said = |model: &&ModelInfo| {
        (model.context_window.is_some(), model.max_tokens.is_some(), !model.input.is_empty(), model.reasoning)
    };
    // Of several the first.
    let Some(model) = unlisted.rev().max_by_key(said) else { return String::new() };
    let (name, adapter, id) = (&route.info.name, &route.adapter, plain(&model.id));
    let mut text = String::new();
    if route.info.any_model {
        text.push_str(&format!("\nEach can be used as it is: -m {name}/{id}\n"));
    }
    if let Some(entry) = model.entry().and_then(|entry| inline(&Value::Object(entry))) {
        text.push_str(&format!(
            "\nTo list one with its limits, add it to the route `{name}` of the adapter `{adapter}` in the manifest:\n\n\
             [adapter.config.providers.{}]\nmodels = [\n    {},\n]\n",
            key(name),
            entry,
        ));
    }
    text
}

/// A value of TOML on one line. TOML has no `null`: there is none for it, and members and elements that are are left out.
fn inline(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(values) => format!("[{}]", values.iter().filter_map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| Some(format!("{} = {}", key(name), inline(value)?));
            format!("{{ {} }}", members.iter().filter_map(member).collect::<Vec<_>>().join(", "))
        }
    })
}

/// A basic string of TOML, on one line and without control characters.
fn quoted(text: &str) -> String {
    let escaped = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        control if control.is_control() => format!("\\u{:04X}", u32::from(control)),
        other => other.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

/// A key of TOML, quoted where it must be.
fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !name.is_empty() && name.chars().all(is_bare) { name.to_owned() } else { quoted(name) }
}

fn reference(route: &Route) -> Option<Credential<'_>> {
    route.credential.as_deref().map(|reference| Credential { reference, set: credential::is_set(reference) })
}

fn rows<'a>(route: &'a Route, models: &'a [ModelInfo]) -> Vec<Row<'a>> {
    let row = |model| row(route, reference(route), model);
    if models.is_empty() { vec![row(None)] } else { models.iter().map(Some).map(row).collect() }
}

fn row<'a>(route: &'a Route, credential: Option<Credential<'a>>, model: Option<&'a ModelInfo>) -> Row<'a> {
    Row {
        provider: &route.info.name,
        model: model.map(|model| model.id.as_str()),
        adapter: &route.adapter,
        api: route.info.api.as_deref(),
        origin: route.origin.as_deref(),
        context_window: model.and_then(|model| model.context_window),
        max_tokens: model.and_then(|model| model.max_tokens),
        reasoning: model.is_some_and(|model| model.reasoning),
        input: model.map_or(&[], |model| &model.input),
        credential,
        any_model: route.info.any_model,
    }
}

fn describe(rows: &[Row<'_>], registry: &Registry) -> String {
    if rows.is_empty() {
        let failed = registry.adapters.iter().filter(|adapter| adapter.error.is_some()).count();
        return match failed {
            0 => "No adapter of the manifest serves a route.\n".to_owned(),
            n => format!("No route is served; {n} adapter(s) are not loaded, see `dsh plugins list`.\n"),
        };
    }
    listed(rows)
}

fn listed(rows: &[Row<'_>]) -> String {
    let number = |tokens: Option<u64>| tokens.map_or_else(|| "-".to_owned(), |tokens| tokens.to_string());
    let cells = |row: &Row<'_>| {
        [
            plain(&format!("{}/{}", row.provider, row.model.unwrap_or("*"))),
            number(row.context_window),
            number(row.max_tokens),
            if row.reasoning { "yes" } else { "no" }.to_owned(),
            if row.input.is_empty() { "-".to_owned() } else { row.input.join(", ") },
            row.credential.map_or_else(
                || "none needed".to_owned(),
                |credential| format!("{} ({})", credential.reference, if credential.set { "set" } else { "not set" }),
            ),
            row.adapter.to_owned(),
        ]
    };
    let header = ["MODEL", "CONTEXT", "MAX OUTPUT", "REASONING", "INPUT", "CREDENTIAL", "ADAPTER"];
    table(header, rows.iter().map(cells))
}
