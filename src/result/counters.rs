//! Scrapes of the engines' `/metrics` to what happened during the profiling phase.
//!
//! The layer holds one JSON object a line: `{"t_ns": Unix ns, "took_ns": …, "service": …, "instance": …, "text": the
//! exposition}`. The engine read its counters at some instant of the scrape, which lasted `took_ns` (0 where a layer does not
//! tell) around `t_ns`. Of each engine process the last scrape that was over when the first profiling request started and the
//! first that began when the last one had ended enclose the phase; a counter's increase is their difference, per series, summed over series (`engine` labels) and
//! processes. Scrapes of anything but an engine (a router) are left aside, or sums would double. A counter that falls or
//! vanishes in between means a restarted server: that is a [`Fault`], not a negative number. Knows no formulas.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::engine::Names;
use super::error::{Layer, RawError, lines};
use super::prometheus;

/// The part of the run whose increase is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Between these instants, Unix ns.
    Phase(u64, u64),
    /// From the first scrape to the last.
    WholeRun,
}

/// Why the scrapes do not tell the increase.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Not every process was scraped.
    #[error("{scraped} of {expected} processes of engine `{service}` were scraped")]
    Processes {
        /// The engine's service.
        service: String,
        /// Processes with scrapes.
        scraped: u64,
        /// Processes of the spec.
        expected: u64,
    },
    /// The phase begins before the first scrape.
    #[error("{service}[{instance}] was not scraped at or before the first profiling request")]
    NoneBefore {
        /// The engine's service.
        service: String,
        /// Which of its processes.
        instance: u64,
    },
    /// The phase ends after the last scrape.
    #[error("{service}[{instance}] was not scraped at or after the end of the last profiling request")]
    NoneAfter {
        /// The engine's service.
        service: String,
        /// Which of its processes.
        instance: u64,
    },
    /// A counter went back: the process restarted.
    #[error("{counter} of {service}[{instance}] went from {from} to {to} at line {line}: the server restarted")]
    Reset {
        /// The engine's service.
        service: String,
        /// Which of its processes.
        instance: u64,
        /// The metric.
        counter: String,
        /// Value before.
        from: String,
        /// Value after; `nothing` when the series vanished.
        to: String,
        /// Line of the layer, from 1.
        line: usize,
    },
}

/// The increase of counters and the readings of gauges over a span.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Readings {
    /// Beginning of the earliest of the enclosing first scrapes, Unix ns.
    pub from_ns: u64,
    /// End of the latest of the enclosing last scrapes, Unix ns.
    pub to_ns: u64,
    /// Scrapes that were read, all processes together.
    pub scrapes: u64,
    /// Engine processes.
    pub processes: u64,
    increases: BTreeMap<Series, f64>,
    gauges: BTreeMap<&'static str, Vec<Vec<f64>>>,
}

/// A metric and its labels, sorted.
type Series = (&'static str, Vec<(String, String)>);

impl Readings {
    /// The increase of a counter over all its series; `None` when no engine publishes it.
    pub fn increase(&self, name: &str) -> Option<f64> {
        let mut series = self.increases.iter().filter(|((counter, _), _)| *counter == name).peekable();
        series.peek()?;
        Some(series.map(|(_, increase)| increase).sum())
    }

    /// The increase of a counter for each value of a label.
    pub fn increase_by(&self, name: &str, label: &str) -> BTreeMap<&str, f64> {
        let mut sums = BTreeMap::new();
        for ((_, labels), increase) in self.increases.iter().filter(|((counter, _), _)| *counter == name) {
            if let Some((_, value)) = labels.iter().find(|(name, _)| name == label) {
                *sums.entry(value.as_str()).or_default() += increase;
            }
        }
        sums
    }

    /// What a gauge read within the span: for each scrape of each process, its series' values.
    pub fn gauge(&self, name: &str) -> &[Vec<f64>] {
        self.gauges.get(name).map_or(&[], Vec::as_slice)
    }
}

#[derive(Deserialize)]
struct Header<'a> {
    t_ns: u64,
    #[serde(default)]
    took_ns: u64,
    #[serde(borrow)]
    service: Cow<'a, str>,
    instance: u64,
    #[serde(rename = "text")]
    _text: IgnoredAny,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

/// A scrape before its text is read.
#[derive(Clone, Copy)]
struct Scrape<'a> {
    t_ns: u64,
    began_ns: u64,
    ended_ns: u64,
    line: usize,
    json: &'a [u8],
}

/// Reads the span out of the layer. `engines` are the engine services and how many processes each has.
///
/// # Errors
/// A line that is no scrape, or a text that is no exposition. Scrapes that are well-formed but do not enclose the span are a
/// [`Fault`].
pub fn read(
    bytes: &[u8],
    engines: &BTreeMap<&str, u64>,
    names: &Names,
    span: Span,
) -> Result<Result<Readings, Fault>, RawError> {
    let mut processes: BTreeMap<(String, u64), Vec<Scrape<'_>>> = BTreeMap::new();
    for (line, json) in lines(bytes) {
        let header: Header<'_> =
            serde_json::from_slice(json).map_err(|error| RawError::json(Layer::Counters, line, &error))?;
        if engines.contains_key(header.service.as_ref()) {
            let (t_ns, half) = (header.t_ns, header.took_ns.div_ceil(2));
            let (began_ns, ended_ns) = (t_ns.saturating_sub(half), t_ns.saturating_add(half));
            let scrape = Scrape { t_ns, began_ns, ended_ns, line, json };
            processes.entry((header.service.into_owned(), header.instance)).or_default().push(scrape);
        }
    }
    for (service, expected) in engines {
        let scraped = processes.keys().filter(|(name, _)| name == service).count() as u64;
        if scraped != *expected {
            return Ok(Err(Fault::Processes { service: (*service).to_owned(), scraped, expected: *expected }));
        }
    }
    let mut readings = Readings { from_ns: u64::MAX, processes: processes.len() as u64, ..Readings::default() };
    for ((service, instance), mut scrapes) in processes {
        scrapes.sort_by_key(|scrape| scrape.t_ns);
        let enclosing = match enclose(&service, instance, &scrapes, span) {
            Ok(enclosing) => enclosing,
            Err(fault) => return Ok(Err(fault)),
        };
        if let Err(fault) = readings.add(&service, instance, enclosing, names, span)? {
            return Ok(Err(fault));
        }
    }
    Ok(Ok(readings))
}

/// The scrapes from the one that opens the span to the one that closes it.
fn enclose<'s, 'a>(
    service: &str,
    instance: u64,
    scrapes: &'s [Scrape<'a>],
    span: Span,
) -> Result<&'s [Scrape<'a>], Fault> {
    let Span::Phase(start, end) = span else { return Ok(scrapes) };
    let first = scrapes.iter().rposition(|scrape| scrape.ended_ns <= start);
    let last = scrapes.iter().position(|scrape| scrape.began_ns >= end.max(start));
    let service = service.to_owned();
    match (first, last) {
        (None, _) => Err(Fault::NoneBefore { service, instance }),
        (_, None) => Err(Fault::NoneAfter { service, instance }),
        (Some(first), Some(last)) => Ok(&scrapes[first..=last.max(first)]),
    }
}

impl Readings {
    fn add(
        &mut self,
        service: &str,
        instance: u64,
        scrapes: &[Scrape<'_>],
        names: &Names,
        span: Span,
    ) -> Result<Result<(), Fault>, RawError> {
        let (Some(first), Some(last)) = (scrapes.first(), scrapes.last()) else { return Ok(Ok(())) };
        self.from_ns = self.from_ns.min(first.began_ns);
        self.to_ns = self.to_ns.max(last.ended_ns);
        self.scrapes += scrapes.len() as u64;
        let mut opening: Option<BTreeMap<Series, f64>> = None;
        let mut before: BTreeMap<Series, f64> = BTreeMap::new();
        for scrape in scrapes {
            let counters = self.read_scrape(scrape, names, span)?;
            for (series, from) in &before {
                let to = counters.get(series);
                if to.is_none_or(|to| to < from) {
                    return Ok(Err(Fault::Reset {
                        service: service.to_owned(),
                        instance,
                        counter: series.0.to_owned(),
                        from: from.to_string(),
                        to: to.map_or_else(|| "nothing".to_owned(), f64::to_string),
                        line: scrape.line,
                    }));
                }
            }
            opening.get_or_insert_with(|| counters.clone());
            before = counters;
        }
        for (series, to) in before {
            // A series that is born within the span began at zero: clients make labelled series on first use.
            let from = opening.as_ref().and_then(|opening| opening.get(&series)).unwrap_or(&0.0);
            *self.increases.entry(series).or_default() += to - from;
        }
        Ok(Ok(()))
    }

    /// The counters of a scrape; its gauges are kept where it lies within the span.
    fn read_scrape(
        &mut self,
        scrape: &Scrape<'_>,
        names: &Names,
        span: Span,
    ) -> Result<BTreeMap<Series, f64>, RawError> {
        let malformed = |reason: String| RawError::at(Layer::Counters, scrape.line, reason);
        let body: Body<'_> = serde_json::from_slice(scrape.json)
            .map_err(|error| RawError::json(Layer::Counters, scrape.line, &error))?;
        let (counter_names, gauge_names) = (names.counters(), names.gauges());
        let find = |name: &str, names: &[&'static str]| names.iter().copied().find(|known| *known == name);
        let wanted = |name: &str| find(name, &counter_names).or_else(|| find(name, &gauge_names)).is_some();
        let samples = prometheus::parse(&body.text, wanted).map_err(|error| malformed(error.to_string()))?;
        let within = match span {
            Span::WholeRun => true,
            Span::Phase(start, end) => (start..=end).contains(&scrape.t_ns),
        };
        let mut counters = BTreeMap::new();
        let mut gauges: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
        for sample in samples {
            if let Some(name) = find(sample.name, &gauge_names) {
                if within && sample.value.is_finite() {
                    gauges.entry(name).or_default().push(sample.value);
                }
            } else if let Some(name) = find(sample.name, &counter_names) {
                if !(sample.value.is_finite() && sample.value >= 0.0) {
                    return Err(malformed(format!("counter {name} is {}", sample.value)));
                }
                let labels = sample.labels.into_iter().map(|(name, value)| (name.to_owned(), value.into_owned()));
                if counters.insert((name, labels.collect()), sample.value).is_some() {
                    return Err(malformed(format!("a series of {name} stands twice")));
                }
            }
        }
        for (name, values) in gauges {
            self.gauges.entry(name).or_default().push(values);
        }
        Ok(counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Engine;

    const GENERATED: &str = "vllm:generation_tokens_total";

    fn scrape(t_ns: u64, service: &str, instance: u64, text: &str) -> String {
        serde_json::json!({"t_ns": t_ns, "service": service, "instance": instance, "text": text}).to_string() + "\n"
    }

    fn generated(t_ns: u64, instance: u64, engines: &[u64]) -> String {
        let lines = engines.iter().enumerate();
        let text: String =
            lines.map(|(engine, value)| format!("{GENERATED}{{engine=\"{engine}\"}} {value}\n")).collect();
        scrape(t_ns, "server", instance, &text)
    }

    fn read_span(layer: &str, processes: u64, span: Span) -> Result<Result<Readings, Fault>, RawError> {
        read(layer.as_bytes(), &BTreeMap::from([("server", processes)]), Names::of(Engine::Vllm).unwrap(), span)
    }

    fn increase(layer: &str, processes: u64) -> Result<Option<f64>, Fault> {
        read_span(layer, processes, Span::Phase(100, 200)).unwrap().map(|readings| readings.increase(GENERATED))
    }

    /// Enclosed by t = 90 and t = 210: (25 − 5) + (47 − 7); the warm-up before 90 and what follows 210 do not count.
    #[test]
    fn the_increase_is_that_of_the_phase_alone_over_all_engine_labels() {
        let layer = [(10, [0, 0]), (90, [5, 7]), (150, [9, 9]), (210, [25, 47]), (300, [99, 99])]
            .map(|(t, values)| generated(t, 0, &values))
            .concat();
        assert_eq!(increase(&layer, 1), Ok(Some(60.0)));
        let readings = read_span(&layer, 1, Span::Phase(100, 200)).unwrap().unwrap();
        assert_eq!((readings.from_ns, readings.to_ns, readings.scrapes), (90, 210, 3));
        let whole = read_span(&layer, 1, Span::WholeRun).unwrap().unwrap();
        assert_eq!(whole.increase(GENERATED), Some(198.0));
    }

    #[test]
    fn scrapes_at_the_very_instants_enclose_the_phase() {
        let layer = [generated(100, 0, &[1]), generated(200, 0, &[4])].concat();
        assert_eq!(increase(&layer, 1), Ok(Some(3.0)));
    }

    /// On a loaded host a scrape lasts long, and the counters in it are of any instant of it.
    #[test]
    fn a_scrape_that_reaches_into_the_phase_does_not_enclose_it() {
        let slow = |t: u64, took: u64, value: u64| {
            let text = format!("{GENERATED} {value}\n");
            let scrape =
                serde_json::json!({"t_ns": t, "took_ns": took, "service": "server", "instance": 0, "text": text});
            scrape.to_string() + "\n"
        };
        let layer = [slow(50, 10, 1), slow(95, 20, 6), slow(205, 20, 19), slow(230, 20, 21)].concat();
        assert_eq!(increase(&layer, 1), Ok(Some(20.0)), "not 6 → 19: those were read between 85 and 105, 195 and 215");
        let readings = read_span(&layer, 1, Span::Phase(100, 200)).unwrap().unwrap();
        assert_eq!((readings.from_ns, readings.to_ns), (45, 240));
        let touching = [slow(90, 20, 6), slow(210, 20, 19)].concat();
        assert_eq!(increase(&touching, 1), Ok(Some(13.0)));
    }

    #[test]
    fn processes_are_summed_and_routers_are_left_aside() {
        let router = scrape(150, "router", 0, &format!("{GENERATED} 1000\n"));
        let layer = [
            generated(90, 0, &[0]),
            generated(90, 1, &[10]),
            router,
            generated(200, 0, &[5]),
            generated(201, 1, &[16]),
        ];
        assert_eq!(increase(&layer.concat(), 2), Ok(Some(11.0)));
    }

    #[test]
    fn order_of_lines_does_not_matter() {
        let lines = [generated(210, 0, &[25]), generated(90, 0, &[5]), generated(150, 0, &[9])];
        assert_eq!(increase(&lines.concat(), 1), Ok(Some(20.0)));
    }

    #[test]
    fn a_series_born_in_the_phase_began_at_zero_and_labels_are_kept_apart() {
        let name = "vllm:prompt_tokens_by_source_total";
        let layer = [
            scrape(90, "server", 0, &format!("{name}{{source=\"computed\"}} 2\n")),
            scrape(210, "server", 0, &format!("{name}{{source=\"computed\"}} 3\n{name}{{source=\"cache\"}} 4\n")),
        ];
        let readings = read_span(&layer.concat(), 1, Span::Phase(100, 200)).unwrap().unwrap();
        assert_eq!(readings.increase_by(name, "source"), BTreeMap::from([("computed", 1.0), ("cache", 4.0)]));
        assert_eq!(readings.increase(GENERATED), None);
    }

    #[test]
    fn a_restart_is_a_fault_even_when_the_end_is_higher() {
        let layer = [generated(90, 0, &[50]), generated(150, 0, &[3]), generated(210, 0, &[70])].concat();
        let fault = increase(&layer, 1).unwrap_err().to_string();
        assert_eq!(fault, format!("{GENERATED} of server[0] went from 50 to 3 at line 2: the server restarted"));
        let layer = [generated(90, 0, &[50, 1]), generated(210, 0, &[70])].concat();
        assert!(increase(&layer, 1).unwrap_err().to_string().contains("went from 1 to nothing"));
        let layer = [generated(10, 0, &[50]), generated(90, 0, &[3]), generated(210, 0, &[7])].concat();
        assert_eq!(increase(&layer, 1), Ok(Some(4.0)), "a restart before the phase is none of its business");
    }

    #[test]
    fn what_does_not_enclose_the_phase_is_a_fault() {
        let before = generated(90, 0, &[0]);
        let after = generated(210, 0, &[1]);
        let of = |service: &str| service.to_owned();
        assert_eq!(increase(&after, 1), Err(Fault::NoneBefore { service: of("server"), instance: 0 }));
        assert_eq!(increase(&before, 1), Err(Fault::NoneAfter { service: of("server"), instance: 0 }));
        assert_eq!(
            increase(&(before + &after), 2),
            Err(Fault::Processes { service: of("server"), scraped: 1, expected: 2 })
        );
    }

    #[test]
    fn gauges_are_read_within_the_phase() {
        let usage =
            |t, value: f64| scrape(t, "server", 0, &format!("vllm:kv_cache_usage_perc{{engine=\"0\"}} {value}\n"));
        let layer = [usage(90, 0.9), usage(120, 0.25), usage(180, 0.5), usage(210, 0.9)].concat();
        let readings = read_span(&layer, 1, Span::Phase(100, 200)).unwrap().unwrap();
        assert_eq!(readings.gauge("vllm:kv_cache_usage_perc"), [vec![0.25], vec![0.5]]);
    }

    #[test]
    fn malformed_lines_are_named() {
        let good = generated(90, 0, &[0]);
        for (bad, reason) in [
            ("{\"t_ns\":1}\n".to_owned(), "missing field `service`"),
            (scrape(210, "server", 0, "x 1\ny\n"), "exposition line 2: no value after the name"),
            (scrape(210, "server", 0, &format!("{GENERATED} 1")), "cut off"),
            (scrape(210, "server", 0, &format!("{GENERATED} NaN\n")), "is NaN"),
            (scrape(210, "server", 0, &format!("{GENERATED} 1\n{GENERATED} 1\n")), "stands twice"),
            ("{\"t_ns\":1,\"service\":\"server\",\"instance\":0,\"text\":\"".to_owned(), "EOF"),
        ] {
            let error = read_span(&(good.clone() + &bad), 1, Span::Phase(100, 200)).unwrap_err().to_string();
            assert!(error.starts_with("counter samples, line 2: ") && error.contains(reason), "{error}");
        }
    }
}
