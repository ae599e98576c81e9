//! Places in input files, and diagnostics that point at them.
//!
//! A [`Source`] is one file's text under the name to print for it; a [`Place`] is a byte range of a source and survives
//! every later stage, so that an error found while composing an arm still shows the YAML line that caused it.
//! A [`Diagnostic`] is data: the rendering belongs to `cli::error`. Nothing here reads files.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The text of one input file and the name under which messages show it.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The path as the user would type it (relative to the project where it lies inside).
    pub name: String,
    /// The whole text.
    pub text: String,
}

impl Source {
    /// A source under the name to print.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { name: name.into(), text: text.into() })
    }

    /// Line and column (both from 1, the column in characters) of a byte offset.
    pub fn line_column(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &self.text[..offset];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[start..].chars().count() + 1)
    }
}

/// A byte range of a source.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub source: Arc<Source>,
    /// Byte offsets in its text.
    pub span: Range<usize>,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `file:line:column`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.source.line_column(self.span.start);
        write!(f, "{}:{line}:{column}", self.source.name)
    }
}

/// One fault in an input, at its place, with the fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong, in one sentence without a final full stop.
    pub message: String,
    /// Where; absent only for faults without a text, such as a file that cannot be read.
    pub place: Option<Place>,
    /// A few words under the marked text.
    pub label: String,
    /// A second place that matters, with its label (the other definition, the field that conflicts).
    pub related: Vec<(Place, String)>,
    /// What to do about it.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A fault at a place.
    pub fn at(place: &Place, message: impl Into<String>) -> Self {
        Self { place: Some(place.clone()), ..Self::new(message) }
    }

    /// A fault without a place in a text.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), place: None, label: String::new(), related: Vec::new(), help: None }
    }

    /// The words under the marked text.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// The fix.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Another place that matters.
    #[must_use]
    pub fn related(mut self, place: &Place, label: impl Into<String>) -> Self {
        self.related.push((place.clone(), label.into()));
        self
    }
}

/// `file:line:column: message`.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// All faults found in an input: what a loader returns instead of the first one.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Takes over what another loader found; its value, if it had one.
    pub fn absorb<T>(&mut self, result: Result<T, Diagnostics>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(more) => {
                self.0.extend(more.0);
                None
            }
        }
    }

    /// Takes over those of places without a fault yet: one fault of a recipe shows for every arm that it makes, with the
    /// values of each.
    pub fn absorb_new(&mut self, found: Diagnostics) {
        for fault in found.0 {
            let same = |known: &Diagnostic| {
                let alike = known.message == fault.message || known.related == fault.related && fault.place.is_some();
                known.place == fault.place && alike
            };
            if !self.0.iter().any(same) {
                self.0.push(fault);
            }
        }
    }

    /// `value` when nothing was found.
    pub fn or<T>(self, value: T) -> Result<T, Diagnostics> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}
