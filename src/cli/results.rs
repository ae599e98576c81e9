//! The headline numbers of a result, one row of a table.

use crate::result::ResultDoc;

/// Column names. Throughput counts input and output tokens, as the field's dashboards do; times are seconds.
pub const HEADER: [&str; 5] = ["tok/s/GPU", "TTFT p90 s", "ITL p90 ms", "tok/s/user p90", "accepted"];

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
