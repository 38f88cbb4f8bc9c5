//! `dsh sessions`: look into recorded sessions, mend, fork and delete them. Needs no valid manifest and loads no adapter, but for
//! `show --fidelity`.

mod delete;
mod export;
mod fidelity;
mod fork;
mod markdown;
mod repair;
mod transcript;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use serde::Serialize;

use super::output::{clip, plain, table};
use super::progress::Progress;
use super::{CommandError, Context};
use crate::store::{Listed, Problem, Store, StoreError};
use export::ExportFormat;
use fidelity::Fidelity;
use transcript::{Look, Transcript};

/// `dsh sessions …`
#[derive(Debug, Subcommand)]
pub enum SessionsCommand {
    /// List the sessions, newest first
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show one session: as a transcript, its messages, its events, or what a model gets of it
    Show {
        /// Session id or file
        session: String,
        /// Show the derived messages
        #[arg(long, conflicts_with = "events")]
        messages: bool,
        /// Show the expanded events
        #[arg(long)]
        events: bool,
        /// Sum up what goes out native, neutral or degraded, and what is repaired; needs the manifest
        #[arg(long, conflicts_with_all = ["messages", "events"])]
        fidelity: bool,
        /// With --fidelity: the model that it is for, as PROVIDER/MODEL [default: the session's last, else the agent's]
        #[arg(short, long, visible_alias = "target", value_name = "PROVIDER/MODEL", requires = "fidelity")]
        model: Option<String>,
        /// Print JSON: the messages as an array, the events one a line, the fidelity as an object
        #[arg(long)]
        json: bool,
    },
    /// Check a session file for damage; exit code 1 when there is any
    Verify {
        /// Session id or file
        session: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Put a sound log in the place of a damaged one and keep the damaged bytes beside it
    Repair {
        /// Session id or file
        session: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Begin a new session as another one began; prints the new id
    Fork {
        /// Session id or file
        session: String,
        /// Last event that is taken over, by its number in `show --events` [default: the last]
        #[arg(long, value_name = "SEQ")]
        at: Option<u64>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Delete sessions: all their files, after a question
    Delete {
        /// Session ids or files
        #[arg(required = true, value_name = "SESSION")]
        sessions: Vec<String>,
        /// Do not ask; needed where there is no terminal to ask at
        #[arg(short, long)]
        yes: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a session in another form to stdout
    Export {
        /// Session id or file
        session: String,
        /// Form of the output
        #[arg(long, value_enum, default_value_t = ExportFormat::Markdown)]
        format: ExportFormat,
    },
}

pub(super) fn run(context: &Context, command: SessionsCommand) -> Result<ExitCode, CommandError> {
    let progress = Progress::new();
    let store = context.store().watched(move |done, of| progress.advance(done, of));
    let mut out = io::BufWriter::new(io::stdout().lock());
    let done = match command {
        SessionsCommand::List { json } => list(&store, json, &mut out),
        SessionsCommand::Show { session, fidelity: true, model, json, .. } => {
            show_fidelity(context, &store, &session, model, json, &mut out)
        }
        SessionsCommand::Show { session, messages, events, json, .. } => {
            let view = match (messages, events) {
                (_, true) => View::Events,
                (true, false) => View::Messages,
                (false, false) => View::Transcript,
            };
            show(&store, &session, view, json, &mut out)
        }
        SessionsCommand::Verify { session, json } => verify(&store, &session, json, &mut out),
        SessionsCommand::Repair { session, json } => repair::run(&store, &session, json, &mut out),
        SessionsCommand::Fork { session, at, json } => fork::run(&store, &session, at, json, &mut out),
        SessionsCommand::Delete { sessions, yes, json } => delete::run(&store, &sessions, yes, json, &mut out),
        SessionsCommand::Export { session, format } => export::run(&store, &session, format, &mut out),
    };
    let done = done.and_then(|code| out.flush().map(|()| code).map_err(Failed::Output));
    match done {
        Ok(code) => Ok(code),
        // Whoever read the output has seen enough.
        Err(Failed::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(Failed::Output(error)) => Err(CommandError::failed_text(format!("cannot write to stdout: {error}"))),
        Err(Failed::Store(error @ (StoreError::NotFound { .. } | StoreError::InvalidId(_)))) => {
            Err(CommandError::usage_text(error.to_string(), "give an id from `dsh sessions list`, or a file"))
        }
        Err(Failed::Command(error)) => Err(error),
        Err(Failed::Store(error)) => Err(CommandError::failed_text(error.to_string())),
    }
}

/// How a command fails: at the session, at what it needs beside it, or at its own output.
enum Failed {
    Store(StoreError),
    Command(CommandError),
    Output(io::Error),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<CommandError> for Failed {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

type Done = Result<ExitCode, Failed>;

fn write_json<T: Serialize + ?Sized>(value: &T, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

fn list(store: &Store, json: bool, out: &mut impl Write) -> Done {
    let sessions = store.list()?;
    if json {
        let rows: Vec<ListRow> = sessions.iter().map(ListRow::of).collect();
        write_json(&rows, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    if sessions.is_empty() {
        writeln!(out, "no sessions in {}", store.dir().display())?;
        return Ok(ExitCode::SUCCESS);
    }
    let header = ["ID", "CREATED (UTC)", "MESSAGES", "TITLE"];
    let rows = sessions.iter().map(|session| {
        let (messages, title) = match &session.messages {
            Ok(messages) => (messages.to_string(), session.title.as_deref().map(plain).unwrap_or_default()),
            Err(error) => ("-".to_owned(), format!("cannot be read: {error}")),
        };
        [plain(&session.id), transcript::utc(session.created_at), messages, title]
    });
    out.write_all(table(header, rows).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ListRow<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    created_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl<'a> ListRow<'a> {
    fn of(session: &'a Listed) -> Self {
        Self {
            id: &session.id,
            title: session.title.as_deref(),
            created_at: session.created_at,
            messages: session.messages.as_ref().ok().copied(),
            error: session.messages.as_ref().err().map(ToString::to_string),
        }
    }
}

enum View {
    Messages,
    Events,
    Transcript,
}

fn show(store: &Store, session: &str, view: View, json: bool, out: &mut impl Write) -> Done {
    let log = match view {
        View::Events => store.read(session)?,
        View::Messages | View::Transcript => store.read_without_streams(session)?,
    };
    warn_of_damage(&log.path, &log.problems, session);
    match (view, json) {
        (View::Messages | View::Transcript, true) => write_json(&log.messages(), out)?,
        (View::Events, true) => {
            for event in log.events.iter() {
                write_json(&*event, out)?;
            }
        }
        (View::Events, false) => {
            for event in log.events.iter() {
                let time = transcript::utc(event.time);
                writeln!(out, "{:>6}  {time}  {:<18} {}", event.seq, event.kind, clip(event.data.get(), 120))?;
            }
        }
        (View::Messages | View::Transcript, false) => {
            let look = if io::stdout().is_terminal() { Look::Terminal } else { Look::Plain };
            Transcript::new(&log, look).write(out)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show_fidelity(
    context: &Context,
    store: &Store,
    session: &str,
    model: Option<String>,
    json: bool,
    out: &mut impl Write,
) -> Done {
    let log = store.read_without_streams(session)?;
    warn_of_damage(&log.path, &log.problems, session);
    let fidelity = Fidelity::of(context, &log, model)?;
    if json {
        write_json(&fidelity, out)?;
    } else {
        fidelity.print(out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Says on stderr that something is missing from what is shown.
fn warn_of_damage(path: &Path, problems: &[Problem], session: &str) {
    if let Some(first) = problems.first() {
        let more = match problems.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        eprintln!(
            "warning: {} is damaged: line {}: {}{more}; `dsh sessions verify {session}` explains",
            path.display(),
            first.line,
            first.message
        );
    }
}

fn verify(store: &Store, session: &str, json: bool, out: &mut impl Write) -> Done {
    #[derive(Serialize)]
    struct Report<'a> {
        ok: bool,
        problems: &'a [Problem],
    }
    let (path, problems) = match store.verify(session) {
        Ok(verified) => verified,
        Err(error) => match Problem::of_header(&error) {
            Some((path, problem)) => (path, vec![problem]),
            None => return Err(error.into()),
        },
    };
    let ok = problems.is_empty();
    if json {
        write_json(&Report { ok, problems: &problems }, out)?;
    } else if ok {
        writeln!(out, "{}: ok", path.display())?;
    } else {
        print_problems(&path, &problems, out)?;
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_problems(path: &Path, problems: &[Problem], out: &mut impl Write) -> io::Result<()> {
    problems
        .iter()
        .try_for_each(|Problem { line, kind, message }| writeln!(out, "{}:{line}: {kind}: {message}", path.display()))
}
