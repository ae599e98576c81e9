//! The sole owner of stdout and stderr: data to stdout, everything else to stderr.
//!
//! A closed pipe ends the program quietly, as `ixbuild plan | head` expects.

use std::io::{IsTerminal, Write};

/// Prints for one command.
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    /// Whether stdout takes colour.
    pub colour_out: bool,
    /// Whether stderr takes colour.
    pub colour_err: bool,
    /// Whether stderr is a terminal that can redraw lines.
    pub interactive: bool,
}

impl Printer {
    /// Colour on terminals, unless `NO_COLOR` is set or `TERM=dumb`.
    pub fn from_environment() -> Self {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let err = std::io::stderr().is_terminal();
        Self { colour_out: !plain && std::io::stdout().is_terminal(), colour_err: !plain && err, interactive: err }
    }

    /// A line of data.
    pub fn data(&self, text: &str) {
        write_line(&mut std::io::stdout().lock(), text);
    }

    /// A line for the person at the terminal.
    pub fn note(&self, text: &str) {
        write_line(&mut std::io::stderr().lock(), text);
    }
}

fn write_line(stream: &mut dyn Write, text: &str) {
    let mut line = text.as_bytes().to_vec();
    line.push(b'\n');
    if stream.write_all(&line).and_then(|()| stream.flush()).is_err() {
        // Nobody reads any more; there is nobody to tell.
        std::process::exit(0);
    }
}
