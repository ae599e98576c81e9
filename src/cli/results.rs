//! The headline numbers of a result, one row of a table.

use crate::result::ResultDoc;

/// Column names, two lines. Throughput counts input and output tokens, as the field's dashboards do; AL is the mean
/// acceptance length that the engine's counters give.
pub const HEADER: [[&str; 5]; 2] =
    [["", "p90", "p90", "p90", "mean"], ["tok/s/GPU", "TTFT s", "ITL ms", "tok/s/user", "AL"]];

/// The cells under [`HEADER`]; a dash for what is not known.
pub fn headline(result: Option<&ResultDoc>) -> [String; 5] {
    let number = |value: Option<f64>, digits: usize| value.map_or_else(|| "–".to_owned(), |v| format!("{v:.digits$}"));
    let requests = result.and_then(|result| result.requests.as_ref());
    let speculative = result.and_then(|result| result.server.as_ref()).and_then(|server| server.speculative.as_ref());
    [
        number(requests.and_then(|r| r.throughput.total_tok_per_s_per_gpu), 1),
        number(requests.and_then(|r| r.latency.ttft_s.p90), 3),
        number(requests.and_then(|r| r.latency.itl_s.p90).map(|itl| itl * 1000.0), 2),
        number(requests.and_then(|r| r.latency.interactivity.p90), 1),
        number(speculative.and_then(|s| s.acceptance_length), 3),
    ]
}

/// The header of a table of results: a few columns, the headline, a few more.
pub fn header<'h>(before: &[&'h str], after: &[&'h str]) -> [Vec<&'h str>; 2] {
    let blank = |names: &[&str]| vec![""; names.len()];
    let join = |parts: [&[&'h str]; 3]| parts.concat();
    [join([&blank(before), &HEADER[0], &blank(after)]), join([before, &HEADER[1], after])]
}
