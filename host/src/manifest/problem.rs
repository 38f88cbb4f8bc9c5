//! Problems of a manifest and how they are told.

use std::fmt;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

use super::place::{Place, Source};

/// What kind of problem it is. The names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The file does not exist.
    NotFound,
    /// The file cannot be read, is a folder, or is far too large.
    Unreadable,
    /// The file is not UTF-8.
    NotUtf8,
    /// Not TOML.
    Syntax,
    /// A key stands twice in its table.
    DuplicateKey,
    /// `version` is missing or is one that this build does not read.
    Version,
    /// A value of another type is expected.
    WrongType,
    /// A key that must be there is not.
    MissingKey,
    /// A key that nothing reads.
    UnknownKey,
    /// A word that is none of the possible ones.
    UnknownVariant,
    /// A number outside its range, an empty text, an id with forbidden characters.
    BadValue,
    /// A known word for something that this version does not do.
    Unsupported,
    /// An id or a name is taken twice.
    DuplicateId,
    /// Two adapters serve one provider route.
    RouteConflict,
    /// A tool that this build does not have.
    UnknownTool,
    /// `$NAME` in a path, and no such variable in the environment.
    UnsetVariable,
    /// A credential that is no reference; its text is never shown.
    CredentialForm,
    /// Found in the current folder, never trusted, and does what `dsh` would not do without it.
    Untrusted,
    /// The adapter refused its configuration.
    ConfigRefused,
    /// A required adapter cannot be used.
    AdapterFailed,
    /// The agent's model is served by no route.
    UnknownModel,
    /// The agent's model is none that its route lists, and is passed on all the same: a warning.
    UnlistedModel,
}

impl Code {
    /// The stable name, for example `manifest::unknown-key`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "manifest::not-found",
            Self::Unreadable => "manifest::unreadable",
            Self::NotUtf8 => "manifest::not-utf8",
            Self::Syntax => "manifest::syntax",
            Self::DuplicateKey => "manifest::duplicate-key",
            Self::Version => "manifest::version",
            Self::WrongType => "manifest::wrong-type",
            Self::MissingKey => "manifest::missing-key",
            Self::UnknownKey => "manifest::unknown-key",
            Self::UnknownVariant => "manifest::unknown-variant",
            Self::BadValue => "manifest::bad-value",
            Self::Unsupported => "manifest::unsupported",
            Self::DuplicateId => "manifest::duplicate-id",
            Self::RouteConflict => "manifest::route-conflict",
            Self::UnknownTool => "manifest::unknown-tool",
            Self::UnsetVariable => "manifest::unset-variable",
            Self::CredentialForm => "manifest::credential-form",
            Self::Untrusted => "manifest::untrusted",
            Self::ConfigRefused => "manifest::config-refused",
            Self::AdapterFailed => "manifest::adapter-failed",
            Self::UnknownModel => "manifest::unknown-model",
            Self::UnlistedModel => "manifest::unlisted-model",
        }
    }
}

/// A problem while its sources are still being read: places, not text.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub code: Code,
    pub message: String,
    pub help: Option<String>,
    pub place: Place,
    /// What stands under the caret.
    pub label: String,
    /// Further places that belong to it.
    pub also: Vec<(Place, String)>,
}

impl Finding {
    pub(super) fn new(code: Code, place: Place, message: impl Into<String>, label: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: None, place, label: label.into(), also: Vec::new() }
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub(super) fn also(mut self, place: Place, label: impl Into<String>) -> Self {
        self.also.push((place, label.into()));
        self
    }
}

/// One problem: what, where, and what would be right.
#[derive(Debug, Clone)]
pub struct Problem {
    code: Code,
    message: String,
    help: Option<String>,
    file: String,
    line_column: Option<(usize, usize)>,
    excerpt: Option<Box<Excerpt>>,
}

/// What a report shows of the sources.
#[derive(Debug, Clone)]
struct Excerpt {
    source: NamedSource<Arc<str>>,
    labels: Vec<LabeledSpan>,
    /// Places in other files that belong to it.
    elsewhere: Vec<Problem>,
}

impl Problem {
    /// A problem with a whole file.
    pub(super) fn of_file(code: Code, file: impl Into<String>, message: impl Into<String>, help: &str) -> Self {
        Self {
            code,
            message: message.into(),
            help: (!help.is_empty()).then(|| help.to_owned()),
            file: file.into(),
            line_column: None,
            excerpt: None,
        }
    }

    /// Says where in a file whose text cannot be shown.
    pub(super) const fn at(mut self, line: usize, column: usize) -> Self {
        self.line_column = Some((line, column));
        self
    }

    pub(super) fn located(finding: Finding, sources: &[Source]) -> Self {
        let Finding { code, message, help, place, label, also } = finding;
        let Some(source) = sources.get(place.file) else {
            return Self::of_file(code, "manifest", message, help.as_deref().unwrap_or_default());
        };
        let (message, help) = (cut(message), help.map(cut));
        if source.line_length(place.start) > LONGEST_SHOWN_LINE {
            let (line, column) = source.line_column(place.start);
            let problem = Self::of_file(code, &source.name, message, help.as_deref().unwrap_or_default());
            return problem.at(line, column);
        }
        let mut labels = vec![LabeledSpan::new_primary_with_span(Some(label), place.start..place.end)];
        let mut elsewhere = Vec::new();
        for (other, label) in also {
            if other.file == place.file {
                labels.push(LabeledSpan::new_with_span(Some(label), other.start..other.end));
            } else {
                elsewhere.push(Self::located(Finding::new(code, other, label.clone(), label), sources));
            }
        }
        Self {
            code,
            message,
            help,
            file: source.name.clone(),
            line_column: Some(source.line_column(place.start)),
            excerpt: Some(Box::new(Excerpt {
                source: NamedSource::new(&source.name, Arc::clone(&source.shown)),
                labels,
                elsewhere,
            })),
        }
    }

    /// What kind of problem it is.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// What is wrong, without its place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What would be right.
    #[must_use]
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// The file, as the user named it.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Line and column, from 1, in characters; `None` when it is about the file as a whole.
    #[must_use]
    pub const fn line_column(&self) -> Option<(usize, usize)> {
        self.line_column
    }

    /// `FILE:LINE:COL`
    fn write_place(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        match self.line_column {
            Some((line, column)) => write!(f, ":{line}:{column}"),
            None => Ok(()),
        }
    }

    /// `FILE:LINE:COL: what; help`
    fn write_line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_place(f)?;
        // A chain of reasons may hold line breaks; this form is one line.
        write!(f, ": {}", one_line(&self.message))?;
        if let Some(help) = &self.help {
            write!(f, "; {}", one_line(help))?;
        }
        for other in self.excerpt.iter().flat_map(|excerpt| &excerpt.elsewhere) {
            f.write_str("; ")?;
            other.write_line(f)?;
        }
        Ok(())
    }
}

/// Longest line of a manifest, in bytes, that a report shows with its caret; of a longer one it gives the place alone.
const LONGEST_SHOWN_LINE: usize = 1000;
/// Longest message, in characters: it may quote a key or a value.
const LONGEST_MESSAGE: usize = 1000;
/// How many problems are told. Each is looked up in the whole source, and nobody reads more at once.
const TOLD_PROBLEMS: usize = 30;

fn cut(text: String) -> String {
    match text.char_indices().nth(LONGEST_MESSAGE) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The message alone where the report shows the source, which has its place; else with the place in front.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.excerpt.is_none() {
            self.write_place(f)?;
            f.write_str(": ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

impl Diagnostic for Problem {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.code.as_str()))
    }

    fn severity(&self) -> Option<miette::Severity> {
        (self.code == Code::UnlistedModel).then_some(miette::Severity::Warning)
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.excerpt.as_ref().map(|excerpt| &excerpt.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.excerpt.as_ref().map(|excerpt| Box::new(excerpt.labels.iter().cloned()) as Box<dyn Iterator<Item = _>>)
    }

    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        let elsewhere = self.excerpt.as_ref().map(|excerpt| &excerpt.elsewhere).filter(|other| !other.is_empty())?;
        Some(Box::new(elsewhere.iter().map(|other| other as &dyn Diagnostic)))
    }
}

/// A manifest that cannot be used: every problem that can be told apart, each with its place.
///
/// As text it is one line, `FILE:LINE:COL: what; help`, several problems joined by ` | `. For people use
/// [`ManifestError::into_report`], which shows each problem with its source and caret.
#[derive(Debug, Clone)]
pub struct ManifestError {
    problems: Vec<Problem>,
    /// How many more there are.
    untold: usize,
}

impl ManifestError {
    /// Problems in order of file and place.
    pub(super) fn new(mut findings: Vec<Finding>, sources: &[Source]) -> Self {
        findings.sort_by_key(|finding| finding.place);
        let untold = findings.len().saturating_sub(TOLD_PROBLEMS);
        findings.truncate(TOLD_PROBLEMS);
        Self { problems: findings.into_iter().map(|finding| Problem::located(finding, sources)).collect(), untold }
    }

    pub(super) const fn of(problems: Vec<Problem>) -> Self {
        Self { problems, untold: 0 }
    }

    /// Several of them as one, in order of file and place; `None` for none.
    #[must_use]
    pub fn all(errors: Vec<Self>) -> Option<Self> {
        let untold = errors.iter().map(|error| error.untold).sum();
        let mut problems: Vec<Problem> = errors.into_iter().flat_map(Self::into_problems).collect();
        problems.sort_by(|a, b| (&a.file, a.line_column).cmp(&(&b.file, b.line_column)));
        (!problems.is_empty()).then_some(Self { problems, untold })
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// The problems, at least one; of very many the first.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The report that a person gets: each problem once, with its place.
    #[must_use]
    pub fn into_report(mut self) -> miette::Report {
        if self.problems.len() == 1
            && let Some(only) = self.problems.pop()
        {
            return only.into();
        }
        Several { told: self.problems, untold: self.untold }.into()
    }
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                f.write_str(" | ")?;
            }
            problem.write_line(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ManifestError {}

impl Diagnostic for ManifestError {
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.problems.iter().map(|problem| problem as &dyn Diagnostic)))
    }
}

/// Heading of a report with more than one problem.
#[derive(Debug)]
struct Several {
    told: Vec<Problem>,
    untold: usize,
}

impl fmt::Display for Several {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { told, untold } = self;
        match untold {
            0 => write!(f, "the manifest has {} problems", told.len()),
            _ => write!(f, "the manifest has {} problems; the first {} are:", told.len() + untold, told.len()),
        }
    }
}

impl std::error::Error for Several {}

impl Diagnostic for Several {
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(self.told.iter().map(|problem| problem as &dyn Diagnostic)))
    }
}
