//! The one rendering of errors: message, `file:line:column` with the YAML snippet, and a hint that names the fix.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

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
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut out = String::new();
        for diagnostic in &self.diagnostics.0 {
            out.push_str(&render_diagnostic(diagnostic, &renderer));
            out.push_str("\n\n");
        }
        if self.message.is_empty() {
            return out.trim_end().to_owned();
        }
        let mut group = Group::with_title(Level::ERROR.primary_title(self.message.as_str()));
        if let Some(hint) = &self.hint {
            group = group.element(Level::HELP.message(hint.as_str()));
        }
        out.push_str(&renderer.render(&[group]));
        out
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

fn render_diagnostic(diagnostic: &Diagnostic, renderer: &Renderer) -> String {
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
