//! The value of several records of one job: the median of every figure.
//!
//! Each figure is taken over the records that have it, so a figure's neighbours may come from other records: throughputs do
//! not divide exactly, and nothing should be computed from medians. Of an even number, figures with a fraction take the mean
//! of the middle two and counts the lower one, which is a count that was observed. Texts, and lists whose lengths differ,
//! are those of the newest record. What is about one run alone (its start, its end, its window) is null.

use serde_json::{Map, Value};

use super::document::ResultDoc;
use super::stats;

/// What several records come to.
#[derive(Debug, Clone, PartialEq)]
pub struct Median {
    /// How many records.
    pub n: usize,
    /// The median of each figure; of one record, that record.
    pub result: ResultDoc,
}

/// The median of records of one job, oldest first; `None` without any.
pub fn median(records: &[ResultDoc]) -> Option<Median> {
    let newest = records.last()?;
    let n = records.len();
    if n == 1 {
        return Some(Median { n, result: newest.clone() });
    }
    let values: Vec<Value> = records.iter().filter_map(|record| serde_json::to_value(record).ok()).collect();
    let mut result: ResultDoc = serde_json::from_value(middle(&values.iter().collect::<Vec<_>>())).ok()?;
    if let Some(requests) = &mut result.requests {
        (requests.start_ns, requests.end_ns) = (None, None);
    }
    if let Some(server) = &mut result.server {
        server.window = None;
    }
    Some(Median { n, result })
}

/// The middle of values of one place in the documents, oldest first.
fn middle(values: &[&Value]) -> Value {
    let known: Vec<&Value> = values.iter().copied().filter(|value| !value.is_null()).collect();
    let Some(newest) = known.last() else { return Value::Null };
    match newest {
        Value::Number(_) => number(&known),
        Value::Object(_) => {
            let objects: Vec<&Map<String, Value>> = known.iter().filter_map(|value| value.as_object()).collect();
            let keys = objects.iter().flat_map(|object| object.keys());
            let at = |key: &String| middle(&objects.iter().filter_map(|object| object.get(key)).collect::<Vec<_>>());
            Value::Object(keys.map(|key| (key.clone(), at(key))).collect())
        }
        Value::Array(last) => {
            let lists: Vec<&Vec<Value>> = known.iter().filter_map(|value| value.as_array()).collect();
            if lists.iter().any(|list| list.len() != last.len()) {
                return (*newest).clone();
            }
            (0..last.len()).map(|at| middle(&lists.iter().map(|list| &list[at]).collect::<Vec<_>>())).collect()
        }
        Value::Null | Value::Bool(_) | Value::String(_) => (*newest).clone(),
    }
}

fn number(values: &[&Value]) -> Value {
    let mut counts: Vec<u64> = values.iter().filter_map(|value| value.as_u64()).collect();
    if counts.len() == values.len() {
        counts.sort_unstable();
        return counts.get((counts.len() - 1) / 2).copied().map_or(Value::Null, Value::from);
    }
    let figures: Vec<f64> = values.iter().filter_map(|value| value.as_f64()).collect();
    stats::median(&figures).map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::document::Window;
    use crate::result::tests::a_result;

    fn with(throughput: Option<f64>, requests: u64) -> ResultDoc {
        let mut result = a_result();
        let metrics = result.requests.as_mut().unwrap();
        metrics.throughput.total_tok_per_s_per_gpu = throughput;
        metrics.accounting.requests_completed = requests;
        metrics.accounting.error_categories = [(format!("error {requests}"), requests)].into();
        result
    }

    fn figures(records: &[ResultDoc]) -> (usize, Option<f64>, u64) {
        let Median { n, result } = median(records).unwrap();
        let requests = result.requests.unwrap();
        (n, requests.throughput.total_tok_per_s_per_gpu, requests.accounting.requests_completed)
    }

    #[test]
    fn one_record_is_its_own_median_and_none_has_none() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[a_result()]).unwrap(), Median { n: 1, result: a_result() });
    }

    #[test]
    fn every_figure_is_the_middle_one() {
        let three = [with(Some(30.0), 7), with(Some(10.0), 9), with(Some(20.5), 8)];
        assert_eq!(figures(&three), (3, Some(20.5), 8));
        assert_eq!(figures(&three[..2]), (2, Some(20.0), 7), "the mean of two figures, the lower of two counts");
    }

    #[test]
    fn a_figure_that_a_record_lacks_is_that_of_the_others() {
        assert_eq!(figures(&[with(None, 1), with(Some(10.0), 1), with(Some(20.0), 1)]).1, Some(15.0));
        assert_eq!(figures(&[with(None, 1), with(None, 1)]).1, None);
        let both = median(&[with(None, 1), with(None, 2)]).unwrap().result.requests.unwrap();
        assert_eq!(both.accounting.error_categories, [("error 1".into(), 1), ("error 2".into(), 2)].into());
    }

    #[test]
    fn what_is_about_one_run_is_null() {
        let result = median(&[a_result(), a_result()]).unwrap().result;
        let (requests, server) = (result.requests.unwrap(), result.server.unwrap());
        assert_eq!((requests.start_ns, requests.end_ns, server.window), (None, None, None::<Window>));
        assert_eq!(requests.latency, a_result().requests.unwrap().latency);
        assert_eq!(server.speculative, a_result().server.unwrap().speculative);
    }
}
