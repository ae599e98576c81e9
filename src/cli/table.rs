//! Columns of text. Colour marks the state beside its word, never alone.

use super::printer::Printer;

/// A colour of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Done well.
    Good,
    /// Needs a run, or attention.
    Warm,
    /// Failed or blocked.
    Bad,
}

/// A word in a colour, where stdout takes colour.
pub fn paint(printer: Printer, tone: Tone, text: &str) -> String {
    paint_if(printer.colour_out, tone, text)
}

/// A word in a colour, or plain.
pub fn paint_if(colour: bool, tone: Tone, text: &str) -> String {
    let code = match tone {
        Tone::Good => 32,
        Tone::Warm => 33,
        Tone::Bad => 31,
    };
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Rows under a header, columns as wide as their widest cell; numeric columns (marked in `right`) flush right.
pub fn table(header: &[&str], right: &[bool], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (column, cell) in cells.enumerate() {
            if column > 0 {
                line.push_str("  ");
            }
            let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            if right[column] {
                line.push_str(&pad);
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.push_str(&pad);
            }
        }
        line.trim_end().to_owned()
    };
    let mut lines = vec![line(&mut header.iter().copied())];
    lines.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
    lines.join("\n")
}

/// `1 arm`, `2 arms`.
pub fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// `42 s`, `12 min`, `3.5 h`.
pub fn duration(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_lines_have_no_trailing_blanks() {
        let rows = vec![vec!["a".into(), "10".into()], vec!["long".into(), "9".into()]];
        assert_eq!(table(&["arm", "n"], &[false, true], &rows), "arm    n\na     10\nlong   9");
    }
}
