//! From the parser's events to a tree of nodes: aliases and merge keys expanded, duplicate keys and tabs refused.
//!
//! Knows the structure of YAML, not what scalars mean.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use granit_parser::{Event, ScalarStyle, Span, StructureStyle, Tag};

use super::diagnostic::{Diagnostic, Diagnostics, Source};
use super::document::{Node, Value, place};

/// How many nodes aliases may add to a document before it is taken for a bomb.
const MAX_ALIASED_NODES: usize = 500_000;

/// From how many entries on a mapping's keys are indexed; shorter ones are searched.
const INDEXED: usize = 16;

/// Collections under construction, innermost last.
pub(super) struct Builder<'s> {
    source: &'s Arc<Source>,
    open: Vec<Open>,
    anchors: HashMap<usize, (Node, usize)>,
    aliased: usize,
    done: Vec<Node>,
    faults: Diagnostics,
    /// The scalars' spans and whether they are plain; kept only when the text holds a tab somewhere.
    scalars: Option<Vec<(Range<usize>, bool)>>,
}

struct Open {
    start: usize,
    end: usize,
    flow: bool,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<(Node, Node)>, index: HashMap<String, usize>, key: Option<Node>, merge: Option<Node> },
}

impl<'s> Builder<'s> {
    pub(super) fn new(source: &'s Arc<Source>) -> Self {
        Self {
            source,
            open: Vec::new(),
            anchors: HashMap::new(),
            aliased: 0,
            done: Vec::new(),
            faults: Diagnostics::default(),
            scalars: source.text.contains('\t').then(Vec::new),
        }
    }

    pub(super) fn fault(&mut self, fault: Diagnostic) {
        self.faults.push(fault);
    }

    /// True when aliases have added more nodes than any sane document.
    pub(super) fn exploded(&self) -> bool {
        self.aliased > MAX_ALIASED_NODES
    }

    /// The documents, unless there was a fault.
    pub(super) fn finish(mut self) -> Result<Vec<Node>, Diagnostics> {
        // After a syntax fault the spans are incomplete, and one message is enough.
        if let (Some(scalars), true) = (self.scalars.take(), self.faults.0.is_empty()) {
            self.refuse_tabs(scalars);
        }
        self.faults.or(self.done)
    }

    pub(super) fn event(&mut self, event: Event<'_>, span: Span) {
        let range = span.byte_range().unwrap_or(0..0);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), &range);
                let plain = style == ScalarStyle::Plain;
                if let Some(scalars) = &mut self.scalars {
                    scalars.push((range.clone(), plain));
                }
                // An absent value stands where the next token is; show it after its key instead.
                let range = match (plain && text.is_empty(), self.key_end()) {
                    (true, Some(end)) => end..end,
                    _ => range,
                };
                let value = Value::Scalar { text: text.into_owned(), plain };
                self.add(Node { place: place(self.source, range), value }, anchor);
            }
            Event::SequenceStart(style, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), &range);
                let start = self.dash(range.start, style);
                self.start(start..range.end, style, anchor, Content::List(Vec::new()));
            }
            Event::MappingStart(style, anchor, tag) => {
                self.refuse_tag(tag.as_deref(), &range);
                let content = Content::Map { entries: Vec::new(), index: HashMap::new(), key: None, merge: None };
                self.start(range, style, anchor, content);
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(range.end),
            Event::Alias(id) => self.alias(id, range),
            _ => {}
        }
    }

    /// The end of the key whose value comes next.
    fn key_end(&self) -> Option<usize> {
        match &self.open.last()?.content {
            Content::Map { key: Some(key), .. } => Some(key.place.span.end),
            _ => None,
        }
    }

    /// Where a list starts. A block list that is not indented under its key is announced after its first dash.
    fn dash(&self, start: usize, style: StructureStyle) -> usize {
        let (before, after) = self.source.text.split_at(start.min(self.source.text.len()));
        let at_dash =
            after.strip_prefix('-').is_some_and(|rest| rest.starts_with([' ', '\r', '\n']) || rest.is_empty());
        match before.trim_end().strip_suffix('-') {
            Some(rest) if style == StructureStyle::Block && !at_dash => rest.len(),
            _ => start,
        }
    }

    fn start(&mut self, range: Range<usize>, style: StructureStyle, anchor: usize, content: Content) {
        let flow = style == StructureStyle::Flow;
        self.open.push(Open { start: range.start, end: range.start, flow, anchor, content });
    }

    fn end(&mut self, event_end: usize) {
        let Some(open) = self.open.pop() else { return };
        // A block ends with its last child; the event stands where the next token is.
        let end = if open.flow { event_end } else { open.end }.max(open.start);
        let value = match open.content {
            Content::List(items) => Value::List(items),
            Content::Map { entries, merge: None, .. } => Value::Map(entries),
            Content::Map { entries, merge: Some(base), .. } => Value::Map(self.merged(&base, entries)),
        };
        self.add(Node { place: place(self.source, open.start..end), value }, open.anchor);
    }

    fn alias(&mut self, id: usize, range: Range<usize>) {
        let at = place(self.source, range);
        let Some((node, size)) = self.anchors.get(&id) else {
            let fault = Diagnostic::at(&at, "an alias inside the node that it names");
            self.faults.push(fault.help("a YAML value cannot contain itself"));
            return;
        };
        self.aliased += size;
        if self.exploded() {
            let fault = Diagnostic::at(&at, format!("aliases expand to more than {MAX_ALIASED_NODES} nodes"));
            self.faults.push(fault.help("write the values out, or share them in smaller parts"));
            return;
        }
        let node = node.clone();
        self.add(node, 0);
        if let Some(open) = self.open.last_mut() {
            open.end = at.span.end;
        }
    }

    fn add(&mut self, node: Node, anchor: usize) {
        if anchor != 0 {
            let size = size(&node);
            self.anchors.insert(anchor, (node.clone(), size));
        }
        let Some(open) = self.open.last_mut() else {
            self.done.push(node);
            return;
        };
        open.end = node.place.span.end;
        let (entries, index, pending, merge) = match &mut open.content {
            Content::List(items) => return items.push(node),
            Content::Map { entries, index, key, merge } => (entries, index, key, merge),
        };
        let Some(key) = pending.take() else {
            *pending = Some(node);
            return;
        };
        let Some(text) = key.scalar_text() else {
            let fault = Diagnostic::at(&key.place, format!("{} as a key", key.kind()));
            self.faults.push(fault.help("keys are plain words"));
            return;
        };
        if text == "<<" && key.is_plain() && merge.is_none() {
            *merge = Some(node);
            return;
        }
        match position(entries, index, text) {
            Some(first) => self.faults.push(
                Diagnostic::at(&key.place, format!("the key `{text}` stands twice in this mapping"))
                    .label("again here")
                    .related(&entries[first].0.place, "first here")
                    .help("keep one of them; other tools would silently take the last"),
            ),
            None => {
                if entries.len() >= INDEXED {
                    index.insert(text.to_owned(), entries.len());
                }
                entries.push((key, node));
            }
        }
    }

    /// The entries of a mapping with `<<`: first those of the base, in its order, then its own, which win.
    fn merged(&mut self, base: &Node, own: Vec<(Node, Node)>) -> Vec<(Node, Node)> {
        let bases: Vec<&Node> = match &base.value {
            Value::List(items) => items.iter().rev().collect(),
            _ => vec![base],
        };
        let mut entries: Vec<(Node, Node)> = Vec::new();
        let mut put = |entry: (Node, Node)| match entries
            .iter_mut()
            .find(|(key, _)| key.scalar_text() == entry.0.scalar_text())
        {
            Some(slot) => *slot = entry,
            None => entries.push(entry),
        };
        for base in bases {
            match base.as_map() {
                Some(map) => map.iter().cloned().for_each(&mut put),
                None => self.faults.push(
                    Diagnostic::at(&base.place, format!("`<<` merges mappings, not {}", base.kind()))
                        .help("write `<<: *anchor` or `<<: [*one, *other]`"),
                ),
            }
        }
        own.into_iter().for_each(put);
        entries
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, range: &Range<usize>) {
        if let Some(tag) = tag {
            self.faults.push(
                Diagnostic::at(&place(self.source, range.clone()), format!("the tag `{tag}` is not read here"))
                    .help("remove it; quote a value to make it a string"),
            );
        }
    }

    /// Tabs may stand in quotes, in block scalars and in comments: elsewhere YAML 1.1 has no tabs.
    fn refuse_tabs(&mut self, mut scalars: Vec<(Range<usize>, bool)>) {
        scalars.sort_by_key(|(range, _)| range.start);
        for (tab, _) in self.source.text.match_indices('\t') {
            let before = scalars.partition_point(|(range, _)| range.start <= tab);
            let (end, plain) = match before.checked_sub(1).map(|last| &scalars[last]) {
                Some((range, plain)) => (range.end, *plain),
                None => (0, true),
            };
            let line = self.source.text[..tab].rfind('\n').map_or(0, |newline| newline + 1);
            let comment = end <= tab && self.source.text[end.max(line)..tab].contains('#');
            if !comment && (plain || end <= tab) {
                let fault = Diagnostic::at(&place(self.source, tab..tab + 1), "a tab outside quotes");
                self.faults.push(fault.label("a tab").help("use spaces; YAML forbids tabs here"));
            }
        }
    }
}

/// Where a key stands among the entries so far. The index holds those from [`INDEXED`] on.
fn position(entries: &[(Node, Node)], index: &HashMap<String, usize>, text: &str) -> Option<usize> {
    let searched = &entries[..entries.len().min(INDEXED)];
    let found = searched.iter().position(|(key, _)| key.scalar_text() == Some(text));
    found.or_else(|| index.get(text).copied())
}

fn size(node: &Node) -> usize {
    match &node.value {
        Value::Scalar { .. } => 1,
        Value::List(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Map(entries) => 1 + entries.iter().map(|(_, value)| 1 + size(value)).sum::<usize>(),
    }
}
