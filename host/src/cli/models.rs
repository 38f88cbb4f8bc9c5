//! `dsh models`

use std::process::ExitCode;

use clap::Args;
use dsh_plugin_api::vocab::ModelInfo;
use serde::Serialize;

use super::output::{print, print_json, table};
use super::{CommandError, Context};
use crate::llm::credential;
use crate::llm::registry::{Registry, Route};

/// Arguments of `dsh models`.
#[derive(Debug, Args)]
pub struct ModelsArgs {
    /// Only this provider route
    provider: Option<String>,
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
    let registry = context.registry(&context.manifest()?)?;
    let routes = match &args.provider {
        None => registry.routes.values().collect(),
        Some(provider) => {
            let route = registry.route(provider);
            vec![route.map_err(|failure| CommandError::usage_text(failure.message, "see `dsh plugins list`"))?]
        }
    };
    let rows: Vec<Row<'_>> = routes.into_iter().flat_map(|route| rows(route)).collect();
    if args.json {
        print_json(&rows)?;
    } else {
        print(&describe(&rows, &registry))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn rows(route: &Route) -> Vec<Row<'_>> {
    let credential =
        route.credential.as_deref().map(|reference| Credential { reference, set: credential::is_set(reference) });
    let row = |model| row(route, credential, model);
    if route.info.models.is_empty() { vec![row(None)] } else { route.info.models.iter().map(Some).map(row).collect() }
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
    let number = |tokens: Option<u64>| tokens.map_or_else(|| "-".to_owned(), |tokens| tokens.to_string());
    let cells = |row: &Row<'_>| {
        [
            format!("{}/{}", row.provider, row.model.unwrap_or("*")),
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
