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
    aligned(&[header.to_vec()], right, rows).join("\n")
}

/// The lines of a table: those of its header, then one a row.
pub fn aligned(header: &[Vec<&str>], right: &[bool], rows: &[Vec<String>]) -> Vec<String> {
    let heads = || header.iter().map(|line| line.to_vec());
    let all = || heads().chain(rows.iter().map(|row| row.iter().map(String::as_str).collect()));
    let width = |column: usize| all().filter_map(|row| row.get(column).map(|cell| cell.chars().count())).max();
    let widths: Vec<usize> = (0..right.len()).map(|column| width(column).unwrap_or(0)).collect();
    let line = |cells: Vec<&str>| {
        let mut line = String::new();
        for (column, cell) in cells.into_iter().enumerate() {
            if column > 0 {
                line.push_str("  ");
            }
            let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            let (before, after) = if right[column] { (pad.as_str(), "") } else { ("", pad.as_str()) };
            line.extend([before, cell, after]);
        }
        line.trim_end().to_owned()
    };
    all().map(line).collect()
}

/// `1 arm`, `2 arms`.
pub fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// A text of at most so many characters: what is too long loses its middle.
pub fn cut(text: &str, limit: usize) -> String {
    let n = text.chars().count();
    if n <= limit {
        return text.to_owned();
    }
    let (head, tail) = ((limit - 1) / 2, limit / 2);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(n - tail)).collect()
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
    fn a_header_may_have_two_lines() {
        let rows = vec![vec!["a".into(), "0.5".into()]];
        assert_eq!(
            aligned(&[vec!["", "p90"], vec!["arm", "TTFT s"]], &[false, true], &rows),
            ["        p90", "arm  TTFT s", "a       0.5"]
        );
    }

    #[test]
    fn long_text_is_cut_in_the_middle() {
        assert_eq!(cut("0123456789", 10), "0123456789");
        assert_eq!(cut("0123456789x", 9), "0123…789x");
        assert_eq!(cut("ααααααααααα", 5), "αα…αα");
    }

    #[test]
    fn columns_align_and_lines_have_no_trailing_blanks() {
        let rows = vec![vec!["a".into(), "10".into()], vec!["long".into(), "9".into()]];
        assert_eq!(table(&["arm", "n"], &[false, true], &rows), "arm    n\na     10\nlong   9");
    }
}
