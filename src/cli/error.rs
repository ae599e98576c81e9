//! The one rendering of errors: message, `file:line:column` with the YAML snippet, and a hint that names the fix.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde_json::{Value, json};

use super::exit;
use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::matrix::expand::ExpandError;
use crate::matrix::select::SelectError;
use crate::plan::PlanError;

/// What a verb returns when it cannot do its work.
#[derive(Debug)]
pub struct Error {
    /// The exit code.
    pub code: u8,
    /// What went wrong, one sentence; empty when the diagnostics say everything.
    pub message: String,
    /// The fix.
    pub hint: Option<String>,
    /// Faults in input files.
    pub diagnostics: Diagnostics,
}

impl Error {
    /// An error with an exit code.
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, diagnostics: Diagnostics::default() }
    }

    /// The command line asks for something that is not there or not allowed.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(exit::USAGE, message)
    }

    /// Blocked or refused.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(exit::REFUSED, message)
    }

    /// A file, socket or program of the environment.
    pub fn environment(message: impl Into<String>) -> Self {
        Self::new(exit::ENVIRONMENT, message)
    }

    /// The fix.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The text for stderr, with colour or without.
    pub fn render(&self, colour: bool) -> String {
        let mut parts: Vec<String> =
            self.diagnostics.0.iter().map(|diagnostic| render_diagnostic(diagnostic, colour)).collect();
        if !self.message.is_empty() {
            parts.push(plain(&self.message, self.hint.as_deref(), colour));
        }
        parts.join("\n\n")
    }

    /// The error as the one JSON object of a verb that was asked for one.
    pub fn json(&self) -> Value {
        let diagnostic = |fault: &Diagnostic| {
            let place = fault.place.as_ref().map(|place| (place, place.source.line_column(place.span.start)));
            json!({
                "message": fault.message,
                "file": place.map(|(place, _)| place.source.name.as_str()),
                "line": place.map(|(_, (line, _))| line),
                "column": place.map(|(_, (_, column))| column),
                "hint": fault.help,
            })
        };
        let message = match (self.message.as_str(), self.diagnostics.0.first()) {
            ("", Some(only)) => only.message.as_str(),
            (message, _) => message,
        };
        json!({"error": {
            "code": self.code,
            "message": message,
            "hint": self.hint,
            "diagnostics": self.diagnostics.0.iter().map(diagnostic).collect::<Vec<_>>(),
        }})
    }
}

impl From<Diagnostics> for Error {
    fn from(diagnostics: Diagnostics) -> Self {
        let count = diagnostics.0.len();
        let message = if count > 1 { format!("{count} errors in the input files") } else { String::new() };
        Self { code: exit::BAD_INPUT, message, hint: None, diagnostics }
    }
}

impl From<Diagnostic> for Error {
    fn from(diagnostic: Diagnostic) -> Self {
        Diagnostics::from(diagnostic).into()
    }
}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Store(error) => error.into(),
            PlanError::Input(faults) => faults.into(),
            PlanError::Ambiguous { .. } => {
                Self::new(exit::BAD_INPUT, error.to_string()).hint("make the rows differ, or remove one of them")
            }
        }
    }
}

impl From<SelectError> for Error {
    fn from(error: SelectError) -> Self {
        Self::usage(error.to_string()).hint(error.hint())
    }
}

impl From<ExpandError> for Error {
    fn from(error: ExpandError) -> Self {
        match error {
            ExpandError::Filter(error) => Self::usage(error.to_string()).hint(error.hint()),
            ExpandError::Rows(faults) => faults.into(),
        }
    }
}

/// An error without a snippet.
fn plain(message: &str, hint: Option<&str>, colour: bool) -> String {
    let bold = |code: &str, text: &str| if colour { format!("\x1b[1;{code}m{text}\x1b[0m") } else { text.to_owned() };
    let hint = hint.map(|hint| format!("\n  {} {hint}", bold("96", "help:"))).unwrap_or_default();
    format!("{} {message}{hint}", bold("91", "error:"))
}

fn render_diagnostic(diagnostic: &Diagnostic, colour: bool) -> String {
    if diagnostic.place.is_none() {
        return plain(&diagnostic.message, diagnostic.help.as_deref(), colour);
    }
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let mut group = Group::with_title(Level::ERROR.primary_title(diagnostic.message.as_str()));
    if let Some(place) = &diagnostic.place {
        let mut snippet = Snippet::source(place.source.text.as_str()).path(place.source.name.as_str());
        let mark = AnnotationKind::Primary.span(first_line(&place.source.text, place.span.clone()));
        snippet =
            snippet.annotation(if diagnostic.label.is_empty() { mark } else { mark.label(diagnostic.label.as_str()) });
        let mut others = Vec::new();
        for (other, label) in &diagnostic.related {
            let mark =
                AnnotationKind::Context.span(first_line(&other.source.text, other.span.clone())).label(label.as_str());
            if other.source == place.source {
                snippet = snippet.annotation(mark);
            } else {
                others.push(
                    Snippet::source(other.source.text.as_str()).path(other.source.name.as_str()).annotation(mark),
                );
            }
        }
        group = group.element(snippet);
        for other in others {
            group = group.element(other);
        }
    }
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    renderer.render(&[group])
}

/// The part of a span on its first line: a snippet of a whole mapping would hide the message.
fn first_line(text: &str, span: std::ops::Range<usize>) -> std::ops::Range<usize> {
    let start = span.start.min(text.len());
    let line_end = text[start..].find('\n').map_or(text.len(), |newline| start + newline);
    let end = span.end.min(line_end).max(start);
    start..end
}
