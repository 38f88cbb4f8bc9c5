//! `dsh plugins`

use std::process::ExitCode;

use clap::Subcommand;
use dsh_plugin_api::vocab::EnvelopeId;
use serde::Serialize;

use super::output::{print, print_json, table};
use super::{CommandError, Context};
use crate::llm::registry::AdapterStatus;

/// `dsh plugins …`
#[derive(Debug, Subcommand)]
pub enum PluginsCommand {
    /// List the adapters, loaded or not
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
}

/// One element of `dsh plugins list --json`. What is not known of an adapter that failed is `null`.
#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    library: &'a str,
    version: Option<&'a str>,
    api: Option<&'a str>,
    envelope: Option<&'a EnvelopeId>,
    routes: &'a [String],
    isolation: &'static str,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl<'a> From<&'a AdapterStatus> for Row<'a> {
    fn from(adapter: &'a AdapterStatus) -> Self {
        Self {
            id: &adapter.id,
            library: &adapter.library,
            version: adapter.version.as_deref(),
            api: adapter.api.as_deref(),
            envelope: adapter.envelope.as_ref(),
            routes: &adapter.routes,
            isolation: "in-process",
            status: if adapter.error.is_some() { "failed" } else { "loaded" },
            error: adapter.error.as_deref(),
        }
    }
}

pub(super) fn run(context: &Context, command: PluginsCommand) -> Result<ExitCode, CommandError> {
    let PluginsCommand::List { json } = command;
    let registry = context.registry(&context.manifest()?)?;
    let rows: Vec<Row<'_>> = registry.adapters.iter().map(Row::from).collect();
    if json {
        print_json(&rows)?;
    } else {
        print(&describe(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A table, and below it why adapters are not loaded: reasons are too long for a cell.
fn describe(rows: &[Row<'_>]) -> String {
    if rows.is_empty() {
        return "The manifest names no adapter.\n".to_owned();
    }
    let unknown = || "-".to_owned();
    let cells = |row: &Row<'_>| {
        [
            row.id.to_owned(),
            row.status.to_owned(),
            row.library.to_owned(),
            row.version.map_or_else(unknown, str::to_owned),
            row.api.map_or_else(unknown, str::to_owned),
            row.envelope.map_or_else(unknown, |id| format!("{} {}", id.kind, id.version)),
            row.isolation.to_owned(),
            if row.routes.is_empty() { unknown() } else { row.routes.join(", ") },
        ]
    };
    let header = ["ID", "STATUS", "LIBRARY", "VERSION", "API", "ENVELOPE", "ISOLATION", "ROUTES"];
    let mut text = table(header, rows.iter().map(cells));
    for row in rows {
        if let Some(error) = row.error {
            text.push_str(&format!("\n{} is not loaded: {error}\n", row.id));
        }
    }
    text
}
