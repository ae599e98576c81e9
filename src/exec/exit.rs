//! How a process ended.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// By itself, with this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// Unknown: what watched over it was killed.
    Lost,
}

impl Exit {
    /// Whether it ended with status 0.
    pub fn success(self) -> bool {
        self == Exit::Code(0)
    }
}

/// `exited with status 1`, `killed by signal 9 (KILL)`: continues a sentence that names the process.
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with status {code}"),
            Exit::Signal(number) => match signal_name(*number) {
                Some(name) => write!(f, "killed by signal {number} ({name})"),
                None => write!(f, "killed by signal {number}"),
            },
            Exit::Lost => f.write_str("ended unseen: its supervisor was killed"),
        }
    }
}

/// The names of the signals that end services in practice, as signal(7) numbers them on x86 and Arm.
fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        1 => "HUP",
        2 => "INT",
        3 => "QUIT",
        4 => "ILL",
        6 => "ABRT",
        7 => "BUS",
        8 => "FPE",
        9 => "KILL",
        11 => "SEGV",
        13 => "PIPE",
        15 => "TERM",
        _ => return None,
    })
}
