//! The sole owner of stdout and stderr: data to stdout, everything else to stderr.
//!
//! A closed pipe ends the program quietly, as `ixbuild plan | head` expects; data that cannot be written for another
//! reason, such as a full disk, is an error. A stderr that is gone is no reason to stop measuring.

use std::io::{ErrorKind, IsTerminal, Write};

use super::exit;

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
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let plain = dumb || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let err = std::io::stderr().is_terminal();
        Self {
            colour_out: !plain && std::io::stdout().is_terminal(),
            colour_err: !plain && err,
            interactive: err && !dumb,
        }
    }

    /// A line of data.
    pub fn data(&self, text: &str) {
        self.bytes(format!("{text}\n").as_bytes());
    }

    /// Data as it is, such as a log.
    pub fn bytes(&self, bytes: &[u8]) {
        let mut stream = std::io::stdout().lock();
        if let Err(error) = stream.write_all(bytes).and_then(|()| stream.flush()) {
            self.unwritable(&error);
        }
    }

    /// Data in pieces, as they are made: for documents too large to hold.
    pub fn stream(&self, pieces: impl Iterator<Item = String>) {
        let mut out = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
        let written =
            pieces.into_iter().try_for_each(|piece| out.write_all(piece.as_bytes())).and_then(|()| out.flush());
        if let Err(error) = written {
            self.unwritable(&error);
        }
    }

    /// Ends the program because stdout takes nothing more.
    fn unwritable(&self, error: &std::io::Error) {
        if error.kind() == ErrorKind::BrokenPipe {
            // Nobody reads any more, and has read what they wanted.
            std::process::exit(exit::OK.into());
        }
        self.note(&format!("error: cannot write to stdout: {error}"));
        std::process::exit(exit::ENVIRONMENT.into());
    }

    /// A line for the person at the terminal.
    pub fn note(&self, text: &str) {
        // Without a stderr there is nobody to tell.
        let _ = std::io::stderr().lock().write_all(format!("{text}\n").as_bytes());
    }

    /// Whether there is somebody to ask.
    pub fn can_ask(&self) -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }

    /// Asks, on stderr; anything but `y` or `yes` is no.
    pub fn ask(&self, question: &str) -> bool {
        let mut answer = String::new();
        let asked = write!(std::io::stderr().lock(), "{question} [y/N] ");
        asked.is_ok()
            && std::io::stdin().read_line(&mut answer).is_ok()
            && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
    }
}
