//! A strict parser of the Prometheus text exposition format (version 0.0.4).
//!
//! Yields the samples whose metric is wanted; of the others only the name is looked at, which makes skipping histogram
//! buckets cheap. A text that does not end with a line feed was cut off, and is refused. Knows no engine.

use std::borrow::Cow;

/// One sample of an exposition.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'t> {
    /// The metric's name.
    pub name: &'t str,
    /// Its labels, sorted by name.
    pub labels: Vec<(&'t str, Cow<'t, str>)>,
    /// Its value; NaN and infinities are legal.
    pub value: f64,
}

/// A line (from 1) that is not of the format, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("exposition line {line}: {reason}")]
pub struct Malformed {
    /// The line, from 1.
    pub line: usize,
    /// Why.
    pub reason: &'static str,
}

/// The wanted samples of an exposition, in order.
///
/// # Errors
/// The first line that is not of the format.
pub fn parse(text: &str, wanted: impl Fn(&str) -> bool) -> Result<Vec<Sample<'_>>, Malformed> {
    let mut samples = Vec::new();
    let mut last = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        last = index + 1;
        let malformed = |reason| Malformed { line: last, reason };
        let Some(line) = line.strip_suffix('\n') else { return Err(malformed("cut off: no line feed at the end")) };
        let line = line.trim_matches([' ', '\t', '\r']);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, rest) = split_name(line, true).ok_or_else(|| malformed("no metric name"))?;
        if !rest.starts_with([' ', '\t', '{']) {
            return Err(malformed("no value after the name"));
        }
        if wanted(name) {
            samples.push(sample(name, rest).map_err(malformed)?);
        }
    }
    if last == 0 {
        return Err(Malformed { line: 1, reason: "empty" });
    }
    Ok(samples)
}

/// Splits a leading metric (with colons) or label name off.
fn split_name(text: &str, colons: bool) -> Option<(&str, &str)> {
    let legal = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || (colons && c == b':');
    let end = text.bytes().position(|c| !legal(c)).unwrap_or(text.len());
    let starts_well = text.bytes().next().is_some_and(|c| !c.is_ascii_digit());
    (end > 0 && starts_well).then(|| text.split_at(end))
}

fn sample<'t>(name: &'t str, rest: &'t str) -> Result<Sample<'t>, &'static str> {
    let mut rest = rest.trim_start_matches([' ', '\t']);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        (labels, rest) = read_labels(inside)?;
        labels.sort();
        if labels.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err("a label stands twice");
        }
    }
    let mut words = rest.split([' ', '\t']).filter(|word| !word.is_empty());
    let value = words.next().ok_or("no value")?;
    if let Some(timestamp) = words.next() {
        timestamp.parse::<i64>().map_err(|_| "the time stamp is not an integer")?;
    }
    if words.next().is_some() {
        return Err("text after the value and the time stamp");
    }
    Ok(Sample { name, labels, value: number(value).ok_or("the value is not a number")? })
}

type Labels<'t> = Vec<(&'t str, Cow<'t, str>)>;

/// Labels up to and including the closing brace; what follows it.
fn read_labels(mut text: &str) -> Result<(Labels<'_>, &str), &'static str> {
    let mut labels = Vec::new();
    loop {
        text = text.trim_start_matches([' ', '\t']);
        if let Some(rest) = text.strip_prefix('}') {
            return Ok((labels, rest));
        }
        let (name, rest) = split_name(text, false).ok_or("no label name")?;
        let rest = rest.trim_start_matches([' ', '\t']).strip_prefix('=').ok_or("no `=` after a label name")?;
        let rest = rest.trim_start_matches([' ', '\t']).strip_prefix('"').ok_or("a label value is not quoted")?;
        let (value, rest) = read_quoted(rest)?;
        labels.push((name, value));
        text = rest.trim_start_matches([' ', '\t']);
        match text.strip_prefix(',') {
            Some(rest) => text = rest,
            None if text.starts_with('}') => {}
            None => return Err("no `,` or `}` after a label"),
        }
    }
}

/// A label value up to and including its closing quote; what follows it.
fn read_quoted(text: &str) -> Result<(Cow<'_, str>, &str), &'static str> {
    let end = text.find(['"', '\\']).ok_or("a label value has no end")?;
    if text.as_bytes()[end] == b'"' {
        return Ok((Cow::Borrowed(&text[..end]), &text[end + 1..]));
    }
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((Cow::Owned(value), &text[at + 1..])),
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                _ => return Err("an unknown escape in a label value"),
            },
            character => value.push(character),
        }
    }
    Err("a label value has no end")
}

/// A Go float: Rust's grammar with Go's names for what is not a number.
fn number(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "+Inf" | "Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        text if text.bytes().any(|c| c.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<Sample<'_>>, Malformed> {
        parse(text, |_| true)
    }

    #[test]
    fn the_format_is_read_as_written() {
        let text = "# HELP a:b_total Help.\n# TYPE a:b_total counter\na:b_total{engine=\"0\",model_name=\"m\"} 1.5e+06\n\
            plain 3\nstamped{} 4 1700000000000\nq{b=\"x\\\"y\\\\z\\n\", a=\"ü{},\" ,} +Inf\nn NaN\n\n";
        let samples = all(text).unwrap();
        assert_eq!(samples[0].name, "a:b_total");
        assert_eq!(samples[0].labels, [("engine", "0".into()), ("model_name", "m".into())]);
        assert_eq!(samples[0].value, 1.5e6);
        assert_eq!((samples[1].name, samples[1].value, samples[2].value), ("plain", 3.0, 4.0));
        assert_eq!(samples[3].labels, [("a", "ü{},".into()), ("b", "x\"y\\z\n".into())]);
        assert_eq!(samples[3].value, f64::INFINITY);
        assert!(samples[4].value.is_nan());
    }

    #[test]
    fn what_is_not_wanted_is_skipped() {
        let samples = parse("a_bucket{le=\"1\"} 2\na 1\n", |name| name == "a").unwrap();
        assert_eq!(samples.len(), 1);
    }

    #[test]
    fn a_line_outside_the_format_is_refused_by_number() {
        for (line, reason) in [
            ("a", "no value after the name"),
            ("1a 3", "no metric name"),
            ("a x", "the value is not a number"),
            ("a inf", "the value is not a number"),
            ("a 1 2 3", "text after the value and the time stamp"),
            ("a 1 soon", "the time stamp is not an integer"),
            ("a{b} 1", "no `=` after a label name"),
            ("a{b=c} 1", "a label value is not quoted"),
            ("a{b=\"c} 1", "a label value has no end"),
            ("a{b=\"\\t\"} 1", "an unknown escape in a label value"),
            ("a{b=\"c\" d=\"e\"} 1", "no `,` or `}` after a label"),
            ("a{b=\"c\",b=\"d\"} 1", "a label stands twice"),
            ("a{b=\"c\"}", "no value"),
        ] {
            assert_eq!(all(&format!("ok 1\n{line}\n")), Err(Malformed { line: 2, reason }), "{line}");
        }
        assert_eq!(all("ok 1\na 12").unwrap_err().reason, "cut off: no line feed at the end");
        assert_eq!(all("").unwrap_err().reason, "empty");
    }
}
