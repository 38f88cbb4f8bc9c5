//! The command line. One file per command; this one holds the arguments and what all commands share.

mod acp;
mod context;
mod decode;
mod demo;
mod error;
mod manifest;
mod mock_provider;
mod models;
mod output;
mod plugins;
mod progress;
mod request;
mod run;
mod sessions;
mod test;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

pub use context::Context;
pub use error::CommandError;

/// For who reads no other page.
const AFTER_HELP: &str = "\
Without any key:  dsh demo
                  dsh run -m keyless/hello \"hi\"
Exit codes:       0 done, 1 the turn or check failed, 2 bad usage or bad manifest
Diagnostics go to stderr; DSH_LOG=debug shows more of them.";

/// An agent host composed from one manifest.
#[derive(Debug, Parser)]
#[command(name = "dsh", version, about, propagate_version = true, max_term_width = 100, after_help = AFTER_HELP)]
struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
struct GlobalArgs {
    /// Manifest [default: ./loader.toml, then loader.toml in the home folder, then the built-in one]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Composition")]
    manifest: Option<PathBuf>,
    /// Manifest to merge over it; may be given several times
    #[arg(long, global = true, value_name = "FILE", help_heading = "Composition")]
    overlay: Vec<PathBuf>,
    /// Home folder: sessions, plugins, cache [default: ~/.dsh]
    #[arg(long, global = true, value_name = "DIR", env = "DSH_HOME", help_heading = "Composition")]
    home: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one prompt to completion
    Run(run::RunArgs),
    /// Serve the Agent Client Protocol on stdin and stdout
    Acp(acp::AcpArgs),
    /// List, show, check, repair, fork, delete and export recorded sessions
    #[command(subcommand)]
    Sessions(sessions::SessionsCommand),
    /// List the adapters of the composition
    #[command(subcommand)]
    Plugins(plugins::PluginsCommand),
    /// List the models that the routes advertise
    Models(models::ModelsArgs),
    /// Print the provider request that would be sent; nothing is sent and no secret is needed
    Request(request::RequestArgs),
    /// Run captured response bytes through an adapter's decoder
    Decode(decode::DecodeArgs),
    /// Serve a scripted provider on loopback, for work without a key
    MockProvider(mock_provider::MockProviderArgs),
    /// Play scenario folders against the real composition and compare
    Test(test::TestArgs),
    /// Show the whole story without a key: a cut-off turn, a killed process, a native resume
    Demo(demo::DemoArgs),
    /// Check, describe or trust a manifest
    #[command(subcommand)]
    Manifest(manifest::ManifestCommand),
}

/// Parses the arguments, runs the command, reports its error.
///
/// Exit codes: 0 done, 1 the turn or check failed, 2 bad usage or bad manifest.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    init_tracing();
    let context = match Context::new(&cli.global) {
        Ok(context) => context,
        Err(error) => return error.report(),
    };
    let result = match cli.command {
        Command::Run(args) => run::run(&context, args),
        Command::Acp(args) => acp::run(&context, args),
        Command::Sessions(command) => sessions::run(&context, command),
        Command::Plugins(command) => plugins::run(&context, command),
        Command::Models(args) => models::run(&context, args),
        Command::Request(args) => request::run(&context, args),
        Command::Decode(args) => decode::run(&context, args),
        Command::MockProvider(args) => mock_provider::run(&context, args),
        Command::Test(args) => test::run(&context, args),
        Command::Demo(args) => demo::run(&context, args),
        Command::Manifest(command) => manifest::run(&context, command),
    };
    match result {
        Ok(code) => code,
        Err(error) => error.report(),
    }
}

/// Diagnostics go to stderr; `DSH_LOG` takes filter directives such as `dsh_host=debug`.
fn init_tracing() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("DSH_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .compact()
        .init();
}

/// Threads that the asynchronous part of a command runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Threads {
    /// For one thing at a time: a stream passes from the connection to its reader without waking a thread.
    One,
    /// For several sessions: one that is busy leaves the other thread.
    Two,
}

/// Runs the asynchronous part of a command.
fn block_on<T: Send + 'static>(
    threads: Threads,
    work: impl Future<Output = Result<T, CommandError>> + Send + 'static,
) -> Result<T, CommandError> {
    let mut builder = match threads {
        Threads::One => {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            // Each HTTP chunk of a stream is two steps of the queue. The system is asked for news whenever the queue is
            // empty, and in between not as often as usual.
            builder.event_interval(1024);
            builder
        }
        Threads::Two => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(2);
            builder
        }
    };
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|e| CommandError::failed_text(format!("the system refuses threads: {e}")))?;
    // A task wakes another one with a pointer in a queue; waking what `block_on` itself runs takes system calls.
    let result = runtime.block_on(async { tokio::spawn(work).await });
    // A blocking read of stdin cannot be cancelled; nothing durable waits for it.
    runtime.shutdown_background();
    match result.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(result) => result,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        Err(Err(error)) => Err(CommandError::failed_text(error.to_string())),
    }
}

/// Waits for SIGINT or SIGTERM.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}
