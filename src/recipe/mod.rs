//! From an arm to its services, client and files: recipes, overlays, expressions. Pure.
//!
//! A recipe and the fragments that it extends are merged once for each choice of overlays that occurs, compiled, and
//! then evaluated arm by arm. Exactly one recipe may match an arm.

mod args;
mod bound;
mod check;
pub mod compile;
mod exact;
pub mod expr;
pub mod overlay;
pub mod resolve;
pub mod scalar;
pub mod schema;
pub mod tools;
pub mod variables;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use minijinja::Value;

use crate::config::diagnostic::{Diagnostic, Diagnostics, Place, Source};
use crate::config::document::{self, Node};
use crate::config::fields::{Faults, Fields};
use crate::config::inputs::Inputs;
use crate::config::similar::closest;
use crate::lock::Lock;
use crate::matrix::arm::Arm;
use expr::{Expr, Template};
use overlay::RecipeFile;
use resolve::{Resolved, Resolver};
use schema::Body;
pub use tools::Tools;

/// The node group of recipes for one node.
pub const NODE: &str = "node";

/// Where recipes stand in a project.
pub const FOLDER: &str = "configs/recipes";

/// All recipes of a project.
pub struct Recipes {
    recipes: Vec<Recipe>,
    tools: Tools,
}

/// Which overlays apply, and whether the client is the eval client.
type Choice = (Vec<bool>, bool);

/// One recipe with its fragments.
struct Recipe {
    path: String,
    place: Place,
    matches: BTreeMap<String, String>,
    lets: Vec<(String, Template, Place)>,
    require: Vec<(Expr, String)>,
    base: Node,
    overlays: Vec<(Expr, Node)>,
    names: BTreeSet<String>,
    compiled: RwLock<HashMap<Choice, Arc<Body>>>,
}

/// What a recipe makes of an arm, and what the policy needs to finish it.
#[derive(Debug)]
pub struct Composition {
    /// Services, client, workload.
    pub resolved: Resolved,
    /// The compiled body, for gates and output.
    pub body: Arc<Body>,
    /// How drafts are made.
    pub drafting: Option<crate::speculative::Drafting>,
    /// Where the golden curve is named (else the recipe): for messages.
    pub curve_place: Place,
}

const MATCH: [&str; 6] = ["model-prefix", "precision", "gpu", "framework", "scenario", "multinode"];

impl Recipes {
    /// Reads every recipe of a project, with its fragments and `configs/clients.yaml`.
    ///
    /// # Errors
    /// Every fault in any of them: syntax, unknown fields, unknown variables, missing fragments, cycles of `extends`.
    pub fn load(inputs: &Inputs) -> Result<Self, Diagnostics> {
        let mut faults = Diagnostics::default();
        let tools = faults.absorb(Tools::load(inputs)).unwrap_or_default();
        let mut recipes = Vec::new();
        for (path, source) in inputs.in_folder(FOLDER, ".yaml") {
            recipes.extend(faults.absorb(Recipe::load(inputs, path, source)));
        }
        // A fragment that several recipes extend would report its faults once for each.
        let mut seen = Vec::new();
        faults.0.retain(|fault| {
            !seen.contains(fault) && {
                seen.push(fault.clone());
                true
            }
        });
        faults.or(Self { recipes, tools })
    }

    /// What an arm's recipe makes of it; nothing when no recipe matches.
    ///
    /// # Errors
    /// Two recipes that match; requirements that are not met; expressions that do not evaluate; services that need one
    /// another or that do not exist.
    pub fn compose(&self, arm: &Arm, lock: &Lock) -> Result<Option<Composition>, Diagnostics> {
        let mut matching = self.recipes.iter().filter(|recipe| recipe.matches(arm));
        let Some(recipe) = matching.next() else { return Ok(None) };
        if let Some(other) = matching.next() {
            return Err(Diagnostic::at(&recipe.place, format!("two recipes match {}", arm.row.label))
                .related(&other.place, "this one as well")
                .help(format!("make the `match` of {} or {} narrower", recipe.path, other.path))
                .into());
        }
        recipe.compose(arm, lock, &self.tools).map(Some)
    }

    /// Whether a recipe makes services of an arm; of an eval arm, also whether it says how to evaluate.
    pub fn covers(&self, arm: &Arm) -> bool {
        self.recipes.iter().any(|recipe| recipe.matches(arm)) && (!arm.eval || self.evaluates(arm))
    }

    /// Whether an arm's recipe says how it is evaluated.
    pub fn evaluates(&self, arm: &Arm) -> bool {
        let parts = |recipe: &Recipe| {
            [&recipe.base]
                .into_iter()
                .chain(recipe.overlays.iter().map(|(_, body)| body))
                .any(|b| b.get("eval").is_some())
        };
        self.recipes.iter().any(|recipe| recipe.matches(arm) && parts(recipe))
    }

    /// Load generators and harnesses.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// The conditions that recipes match on, for messages about an arm without a recipe.
    pub fn wanted(arm: &Arm) -> String {
        let values = variables::values(arm);
        let pairs = MATCH[..5].iter().map(|name| {
            let value = values.get(name.replace('-', "_").as_str()).map(Value::to_string).unwrap_or_default();
            format!("{name}: {value}")
        });
        format!("match: {{{}}}", pairs.collect::<Vec<_>>().join(", "))
    }
}

impl Recipe {
    fn load(inputs: &Inputs, path: &str, source: &Arc<Source>) -> Result<Self, Diagnostics> {
        let mut files = Vec::new();
        gather(inputs, path, source, &mut Vec::new(), &mut files)?;
        let mut faults = Diagnostics::default();
        let own = files.last().map(|file| file.matches.as_ref().map_or(&file.place, |node| &node.place).clone());
        let place = own.unwrap_or_else(|| Place { source: source.clone(), span: 0..0 });
        let matches = match files.last().and_then(|file| file.matches.as_ref()) {
            Some(node) => faults.absorb(read_match(node)).unwrap_or_default(),
            None => {
                faults
                    .push(Diagnostic::at(&place, format!("{path} has no `match`")).help(
                        "say which arms it is for; shared parts without a `match` stand in configs/recipes/lib/",
                    ));
                BTreeMap::new()
            }
        };
        let mut names = variables::names();
        let mut recipe = Self {
            path: path.to_owned(),
            place,
            matches,
            lets: Vec::new(),
            require: Vec::new(),
            base: Node { place: files[0].place.clone(), value: document::Value::Map(Vec::new()) },
            overlays: Vec::new(),
            names: BTreeSet::new(),
            compiled: RwLock::default(),
        };
        for (name, place, value) in files.iter().flat_map(|file| &file.lets) {
            if names.contains(name) {
                faults.push(Diagnostic::at(place, format!("`{name}` is defined already")).help("choose another name"));
            }
            match scalar::template(value, &names) {
                Ok(template) => recipe.lets.push((name.clone(), template, value.place.clone())),
                Err(fault) => faults.push(fault),
            }
            names.insert(name.clone());
        }
        for file in &files {
            for (that, otherwise) in &file.require {
                match scalar::condition(that, &names) {
                    Ok(expr) => recipe.require.push((expr, otherwise.clone())),
                    Err(fault) => faults.push(fault),
                }
            }
            overlay::merge(&mut recipe.base, &file.body);
            for (when, body) in &file.overlays {
                match scalar::condition(when, &names) {
                    Ok(expr) => recipe.overlays.push((expr, body.clone())),
                    Err(fault) => faults.push(fault),
                }
            }
        }
        recipe.names = names;
        // With every overlay on, everything that is written is looked at once, whichever arms exist.
        let everything = vec![true; recipe.overlays.len()];
        for eval in [false, true] {
            if eval && recipe.base.get("eval").is_none() {
                continue;
            }
            faults.absorb(recipe.compile(&everything, eval));
        }
        faults.0.dedup();
        faults.or(recipe)
    }

    fn matches(&self, arm: &Arm) -> bool {
        let entry = &arm.row.entry;
        self.matches.iter().all(|(name, want)| match name.as_str() {
            "model-prefix" => entry.model_prefix == *want,
            "precision" => entry.precision == *want,
            "gpu" => arm.row.gpu() == want,
            "framework" => entry.framework == *want,
            "scenario" => arm.row.scenario.word() == want,
            _ => entry.multinode.to_string() == *want,
        })
    }

    fn compile(&self, active: &[bool], eval: bool) -> Result<Body, Diagnostics> {
        let mut merged = self.base.clone();
        for ((_, body), _) in self.overlays.iter().zip(active).filter(|(_, active)| **active) {
            overlay::merge(&mut merged, body);
        }
        compile::compile(&merged, &self.names, eval)
    }

    fn compose(&self, arm: &Arm, lock: &Lock, tools: &Tools) -> Result<Composition, Diagnostics> {
        let mut values = variables::values(arm).into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<BTreeMap<_, _>>();
        for (name, template, place) in &self.lets {
            let value = let_value(template, &Value::from(values.clone()), place)?;
            values.insert(name.clone(), value);
        }
        let variables = Value::from(values);
        for (that, otherwise) in &self.require {
            if !that.condition(&variables)? {
                // Of the row, not of one of its arms: all of them say the same.
                return Err(Diagnostic::at(&arm.row.place, format!("{}: {otherwise}", arm.row.label))
                    .label("this row")
                    .related(that.place(), "required here")
                    .help("change the row, or what the recipe requires")
                    .into());
            }
        }
        let active = self.overlays.iter().map(|(when, _)| when.condition(&variables)).collect::<Result<Vec<_>, _>>()?;
        let key = (active, arm.eval);
        // A poisoned lock holds whole bodies all the same: they are inserted complete.
        let known = self.compiled.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let body = match known {
            Some(body) => body,
            None => {
                let body = Arc::new(self.compile(&key.0, arm.eval)?);
                self.compiled.write().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&body));
                body
            }
        };
        let resolver = Resolver { arm, variables: &variables, lock, tools };
        let resolved = resolver.body(&body)?;
        check::services(&body, &resolved)?;
        let mut curve_place = self.place.clone();
        let drafting = match &body.speculative {
            None => None,
            Some(speculative) => {
                curve_place = speculative.curve.1.clone();
                Some(crate::speculative::Drafting {
                    method: speculative.method.clone(),
                    tokens: resolver.count(&speculative.tokens, "speculative.tokens", &body.client.service)?,
                    curve: speculative.curve.0.clone(),
                    thinking: speculative.thinking,
                })
            }
        };
        Ok(Composition { resolved, body, drafting, curve_place })
    }
}

/// A recipe's fragments in the order in which they apply, the recipe last.
fn gather(
    inputs: &Inputs,
    path: &str,
    source: &Arc<Source>,
    open: &mut Vec<String>,
    files: &mut Vec<RecipeFile>,
) -> Result<(), Diagnostics> {
    let file = RecipeFile::read(path, &document::parse(source)?)?;
    open.push(path.to_owned());
    for (name, place) in &file.extends {
        let target = format!("{FOLDER}/{name}");
        if open.contains(&target) {
            let cycle = open.iter().chain([&target]).map(String::as_str).collect::<Vec<_>>().join(" → ");
            return Err(Diagnostic::at(place, format!("`extends` goes in a circle: {cycle}"))
                .help("remove one of these")
                .into());
        }
        if files.iter().any(|known| known.path == target) {
            continue;
        }
        let Some(fragment) = inputs.get(&target) else {
            let fault = Diagnostic::at(place, format!("there is no fragment {target}"));
            let all: Vec<&str> = inputs.all().filter_map(|(path, _)| path.strip_prefix("configs/recipes/")).collect();
            return Err(match closest(name, all.iter().copied()) {
                Some(near) => fault.help(format!("did you mean `{near}`?")),
                None => fault.help("paths are relative to configs/recipes"),
            }
            .into());
        };
        gather(inputs, &target, fragment, open, files)?;
    }
    open.pop();
    files.push(file);
    Ok(())
}

fn read_match(node: &Node) -> Result<BTreeMap<String, String>, Diagnostics> {
    let faults = Faults::default();
    let mut matches = BTreeMap::new();
    if let Some(fields) = Fields::open(node, "`match`", &MATCH, &faults) {
        for (key, value) in fields.entries() {
            match (key.scalar_text(), value.scalar_text()) {
                (Some(key), Some(word)) => {
                    let words: &[&str] = match key {
                        "scenario" => &["agentic-coding", "fixed-seq-len"],
                        "multinode" => &["true", "false"],
                        _ => &[],
                    };
                    if !words.is_empty() && !words.contains(&word) {
                        let choices: Vec<_> = words.iter().map(|word| (*word, ())).collect();
                        crate::config::fields::choice(value, &format!("`{key}`"), &choices, &faults);
                    }
                    matches.insert(key.to_owned(), word.to_owned());
                }
                _ => crate::config::fields::wrong_kind(value, "a condition", "a word", &faults),
            }
        }
    }
    faults.or(matches)
}

fn let_value(template: &Template, values: &Value, place: &Place) -> Result<Value, Diagnostic> {
    use expr::Leaf;
    match template {
        Template::Whole(expr) => expr.eval(values),
        template => Ok(match template.eval(values)? {
            Leaf::Null => Value::from(()),
            Leaf::Bool(value) => value.into(),
            Leaf::Integer(value) => value.into(),
            Leaf::Text(crate::spec::Text::Literal(text)) => text.into(),
            _ => {
                return Err(Diagnostic::at(place, "a `let` value is an integer, a word, a boolean or an expression")
                    .help("decimals and bindings stand where they are used"));
            }
        }),
    }
}
