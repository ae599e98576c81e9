//! A spec as a shell script that a person can read, paste and change: `show --format sh`.
//!
//! Bindings become shell variables with defaults, files here-documents, probes loops. The script runs in a subshell, so
//! pasting it changes nothing of the shell it is pasted into.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::spec::{Binder, Binding, Deps, Image, JobSpec, Part, Probe, Service, Text, Unbound};

/// Marks a variable inside rendered text; characters of a private-use area that JSON does not escape.
const OPEN: char = '\u{E000}';
const CLOSE: char = '\u{E001}';

/// The first port given out in a script.
const FIRST_PORT: u16 = 8000;

/// Fills every binding with a marked shell variable, and remembers which were used.
struct Variables<'s> {
    service: &'s str,
}

impl Binder for Variables<'_> {
    fn bind(&self, binding: &Binding) -> Result<Cow<'_, str>, Unbound> {
        Ok(match binding {
            Binding::Endpoint { part: Part::Host, .. } => "localhost".into(),
            other => format!("{OPEN}{}{CLOSE}", variable(other, self.service)).into(),
        })
    }
}

fn variable(binding: &Binding, service: &str) -> String {
    let word = |text: &str| text.to_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    match binding {
        Binding::Endpoint { name, service, .. } => format!("{}_{}_PORT", word(service), word(name)),
        Binding::File { name } => format!("WORK/{service}/{name}"),
        Binding::Directory { name } => format!("WORK/{name}"),
        Binding::Cache { name } => word(name),
        Binding::Host { name } => word(name),
        Binding::Model {} => "MODEL".to_owned(),
    }
}

/// A marked variable as the shell expands it: `WORK/a/b` is a path below the work folder.
fn expansion(name: &str) -> String {
    match name.split_once('/') {
        Some((variable, rest)) => format!("${{{variable}}}/{rest}"),
        None => format!("${{{name}}}"),
    }
}

/// The script of a spec.
pub fn script(spec: &JobSpec, title: &str) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "# {title}");
    out.push_str("(\nset -eu\n");
    out.push_str("WORK=${WORK:-$(mktemp -d)}\n");
    let _ = writeln!(out, "MODEL=${{MODEL:-{}}}", spec.deployment.model.id);
    let mut port = FIRST_PORT;
    for service in &spec.deployment.services {
        for endpoint in &service.endpoints {
            let binding = Binding::Endpoint { name: endpoint.clone(), part: Part::Port, service: service.name.clone() };
            let name = variable(&binding, "");
            let _ = writeln!(out, "{name}=${{{name}:-{port}}}");
            port += 1;
        }
    }
    for name in host_variables(spec) {
        let _ = writeln!(out, "{name}=${{{name}:?set it to what this host has}}");
    }
    out.push_str("STARTED=\ntrap 'kill $STARTED 2>/dev/null || :; wait' EXIT\ntrap 'exit 130' INT TERM\n");
    for service in start_order(spec) {
        process(service, true, &mut out);
    }
    process(&spec.measurement.client, false, &mut out);
    out.push_str(")\n");
    out
}

/// Caches and host facts: what the host alone can say.
fn host_variables(spec: &JobSpec) -> BTreeSet<String> {
    let texts = |service: &Service| -> Vec<Text> {
        service.argv.iter().chain(service.env.values()).chain(service.files.values()).cloned().collect()
    };
    let mut names = BTreeSet::new();
    for service in spec.processes() {
        for text in texts(service) {
            let outside = |binding: &&Binding| matches!(binding, Binding::Cache { .. } | Binding::Host { .. });
            names.extend(text.bindings().into_iter().filter(outside).map(|binding| variable(binding, "")));
        }
    }
    names
}

/// The services, each after those that it waits for.
pub fn start_order(spec: &JobSpec) -> Vec<&Service> {
    let mut ordered: Vec<&Service> = Vec::new();
    while ordered.len() < spec.deployment.services.len() {
        let started: BTreeSet<&str> = ordered.iter().map(|service| service.name.as_str()).collect();
        let next = spec.deployment.services.iter().find(|service| {
            !started.contains(service.name.as_str())
                && service.after.iter().all(|after| started.contains(after.service.as_str()))
        });
        match next {
            Some(service) => ordered.push(service),
            None => break,
        }
    }
    ordered
}

fn process(service: &Service, background: bool, out: &mut String) {
    let _ = writeln!(out, "\n# {}", service.name);
    if let Some(image) = &service.image {
        let _ = match image {
            Image::Locked { manifest, platform, .. } => writeln!(out, "#   in the image {manifest} ({platform})"),
            Image::Unlocked { reference } => writeln!(out, "#   in the image {reference} (unlocked)"),
        };
    }
    for package in &service.packages {
        let deps = if package.deps == Deps::None { "--no-deps " } else { "" };
        let _ = match package.name.strip_prefix("git+") {
            Some(url) => writeln!(out, "#   pip install {deps}git+{url}@{}", package.version),
            None => writeln!(out, "#   pip install {deps}{}=={}", package.name, package.version),
        };
    }
    let variables = Variables { service: &service.name };
    let render = |text: &Text| text.render(&variables).unwrap_or_default();
    for (name, text) in &service.files {
        let body = render(text);
        // Text with variables goes into an open here-document, which expands them.
        let (mark, body) = if text.bindings().is_empty() { ("'END'", body) } else { ("END", open_text(&body)) };
        let _ = writeln!(out, "mkdir -p \"$WORK/{}\"", service.name);
        let _ = writeln!(out, "cat > \"$WORK/{}/{}\" <<{mark}\n{body}\nEND", service.name, name.0);
    }
    let env: BTreeMap<&str, String> = service.env.iter().map(|(name, text)| (name.0.as_str(), render(text))).collect();
    if !env.is_empty() {
        out.push_str("env \\\n");
        for (name, value) in env {
            let _ = writeln!(out, "  {name}={} \\", quote(&value));
        }
    }
    let words: Vec<String> = service.entrypoint.iter().map(|word| quote(word)).collect();
    out.push_str(&words.join(" "));
    let argv: Vec<String> = service.argv.iter().map(render).collect();
    let mut at = 0;
    while at < argv.len() {
        let mut line = quote(&argv[at]);
        at += 1;
        if line.starts_with('-') && !line.contains('=') {
            while at < argv.len() && !argv[at].starts_with('-') {
                line.push(' ');
                line.push_str(&quote(&argv[at]));
                at += 1;
            }
        }
        let _ = write!(out, " \\\n  {line}");
    }
    out.push_str(if background { " &\nSTARTED=\"$STARTED $!\"\n" } else { "\n" });
    if background {
        let _ = match &service.probe {
            Probe::Http { endpoint, path } => {
                let binding =
                    Binding::Endpoint { name: endpoint.clone(), part: Part::Port, service: service.name.clone() };
                let port = variable(&binding, "");
                // `kill -0` fails, and ends the script, once the service is gone.
                let url = format!("http://localhost:${port}{path}");
                writeln!(out, "until curl -sf -o /dev/null \"{url}\"; do kill -0 $!; sleep 1; done")
            }
            Probe::AliveAfter { ms } => writeln!(out, "sleep {}; kill -0 $!", ms.div_ceil(1000)),
            Probe::Exit {} => writeln!(out, "wait $!"),
        };
    }
}

/// One shell word: bare when harmless, else in single quotes, with variables in double quotes.
fn quote(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !text.is_empty() && text.chars().all(harmless) {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(OPEN) {
        let (before, after) = rest.split_at(start);
        let end = after.find(CLOSE).unwrap_or(after.len());
        push_quoted(before, &mut out, harmless);
        let _ = write!(out, "\"{}\"", expansion(&after[OPEN.len_utf8()..end]));
        rest = after.get(end + CLOSE.len_utf8()..).unwrap_or_default();
    }
    push_quoted(rest, &mut out, harmless);
    if out.is_empty() { "''".to_owned() } else { out }
}

fn push_quoted(text: &str, out: &mut String, harmless: impl Fn(char) -> bool) {
    if text.chars().all(harmless) {
        out.push_str(text);
    } else {
        let _ = write!(out, "'{}'", text.replace('\'', r"'\''"));
    }
}

/// The body of an open here-document.
fn open_text(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    let escape = |text: &str| text.replace('\\', r"\\").replace('$', r"\$").replace('`', r"\`");
    while let Some(start) = rest.find(OPEN) {
        let (before, after) = rest.split_at(start);
        let end = after.find(CLOSE).unwrap_or(after.len());
        out.push_str(&escape(before));
        out.push_str(&expansion(&after[OPEN.len_utf8()..end]));
        rest = after.get(end + CLOSE.len_utf8()..).unwrap_or_default();
    }
    out.push_str(&escape(rest));
    out
}
