//! The sole owner of stdout and stderr: data to stdout, everything else to stderr.
//!
//! A closed pipe on stdout ends the program quietly, as `ixbuild plan | head` expects. Notes that nobody reads any more are
//! dropped: a terminal that is gone is no reason to stop measuring.

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
        self.bytes(format!("{text}\n").as_bytes());
    }

    /// A line for the person at the terminal.
    pub fn note(&self, text: &str) {
        let _ = std::io::stderr().lock().write_all(format!("{text}\n").as_bytes());
    }

    /// Data as it is, such as a log.
    pub fn bytes(&self, bytes: &[u8]) {
        let mut stream = std::io::stdout().lock();
        if stream.write_all(bytes).and_then(|()| stream.flush()).is_err() {
            // Nobody reads any more; there is nobody to tell.
            std::process::exit(0);
        }
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
