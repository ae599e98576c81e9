//! An arm and everything that decides its measurement, composed into a job spec.
//!
//! recipe + speculative policy + lock + profile's substitutions → [`JobSpec`]. Pure; an arm that the policy or the profile
//! cannot let run comes out blocked, with what would unblock it.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::diagnostic::{Diagnostic, Diagnostics};
use crate::config::golden::Curves;
use crate::config::profile::Profile;
use crate::lock::{HubKey, Lock, Wanted};
use crate::matrix::arm::{Arm, KvOffload, SpecDecoding};
use crate::recipe::{Composition, NODE, Recipes};
use crate::sim::{REPLAY_VERSION, SIMULATOR_VERSION};
use crate::spec::{
    Acceptance, Deployment, Gates, Group, Hardware, JobSpec, Key, Measurement, Pinned, Schema, Server, Speculative,
};
use crate::speculative;

/// Share by which the realized acceptance length may miss its target.
const ACCEPTANCE_TOLERANCE: &str = "0.02";

/// Fewer drafts than this leave the acceptance length unjudged.
const MIN_DRAFTS: u64 = 1000;

/// Everything that is to be locked: what some arm or its eval twin needs, and every tool.
///
/// # Errors
/// Faults in recipes, each once.
pub fn wanted(recipes: &Recipes, arms: &[Arm]) -> Result<Wanted, Diagnostics> {
    let mut faults = Diagnostics::default();
    let mut wanted = Wanted::default();
    // With nothing locked, everything stands by its name in what is composed.
    let empty = Lock::default();
    for arm in arms {
        let twin = (!arm.eval && recipes.evaluates(arm)).then(|| Arm { eval: true, ..arm.clone() });
        for arm in [arm].into_iter().chain(&twin) {
            match recipes.compose(arm, &empty) {
                Ok(None) => {}
                Ok(Some(composition)) => {
                    let made = composition.resolved;
                    made.services.iter().chain([&made.client]).for_each(|service| wanted.service(service));
                    wanted.hub.insert(HubKey::model(&arm.row.entry.model));
                    wanted.hub.insert(HubKey::dataset(&made.workload.dataset.id));
                }
                Err(found) => {
                    for fault in found.0 {
                        if !faults.0.contains(&fault) {
                            faults.push(fault);
                        }
                    }
                }
            }
        }
    }
    for tool in recipes.tools().all() {
        wanted.packages.entry(tool.key()).or_default();
    }
    faults.or(wanted)
}

/// Everything that specs are composed from.
pub struct Composer<'c> {
    /// Recipes and tools.
    pub recipes: &'c Recipes,
    /// Golden acceptance lengths.
    pub curves: &'c Curves,
    /// Digests.
    pub lock: &'c Lock,
    /// Substitutions.
    pub profile: &'c Profile,
}

/// What became of an arm.
#[derive(Debug)]
pub enum Composed {
    /// A complete spec.
    Job(Box<Job>),
    /// No spec.
    Blocked(Blocked),
}

/// A spec and what runs it that is not hashed.
#[derive(Debug)]
pub struct Job {
    /// The spec.
    pub spec: JobSpec,
    /// Seconds that a service may take to be ready, where the recipe says it and the profile does not.
    pub ready_timeout_s: BTreeMap<String, u64>,
}

/// Why an arm cannot run, and what would change that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// Why.
    pub why: String,
    /// The command or edit that unblocks it.
    pub unblock: String,
}

impl Composer<'_> {
    /// Composes one arm.
    ///
    /// # Errors
    /// Faults in the recipe, at their places.
    pub fn compose(&self, arm: &Arm) -> Result<Composed, Diagnostics> {
        self.compose_under(arm, false)
    }

    /// Composes one arm; where the acceptance policy wants a golden value that is missing, with real verification, marked
    /// as exploratory.
    ///
    /// # Errors
    /// Faults in the recipe, at their places.
    pub fn compose_exploratory(&self, arm: &Arm) -> Result<Composed, Diagnostics> {
        self.compose_under(arm, true)
    }

    fn compose_under(&self, arm: &Arm, explore: bool) -> Result<Composed, Diagnostics> {
        if let Some(fault) = arm.row.oversized() {
            return Err(fault.into());
        }
        let Some(composition) = self.recipes.compose(arm, self.lock)? else {
            return Ok(Composed::Blocked(Blocked {
                why: "no recipe matches".to_owned(),
                unblock: format!("add a recipe with `{}` to configs/recipes/", Recipes::wanted(arm)),
            }));
        };
        let (speculative, exploratory) = match self.speculative(arm, &composition)? {
            Ok(speculative) => (speculative, false),
            Err((_, real)) if explore => (Some(real), true),
            Err((blocked, _)) => return Ok(Composed::Blocked(blocked)),
        };
        let Composition { resolved, body, .. } = composition;
        let (row, entry) = (&arm.row, &arm.row.entry);
        let mut services = resolved.services;
        if let Some(speculative) = &speculative {
            for service in &mut services {
                if let Some(engine) = service.engine {
                    speculative::inject(speculative, engine, service).map_err(|error| {
                        Diagnostic::at(&row.place, format!("{}: acceptance length: {error}", arm.id))
                    })?;
                }
            }
        }
        let mut substitutions = self.profile.substitutions(SIMULATOR_VERSION, REPLAY_VERSION);
        if let Some(substitutions) = &mut substitutions {
            let programs = services.iter().chain([&resolved.client]).filter_map(|service| service.entrypoint.first());
            let programs: BTreeSet<Key> = programs.map(|program| Key::from(program.as_str())).collect();
            if let Some(Key(program)) = programs.iter().find(|program| !substitutions.programs.contains_key(program)) {
                return Ok(Composed::Blocked(Blocked {
                    why: format!("the profile {} has no part for `{program}`", self.profile.name),
                    unblock: "run it under a profile with the real program".to_owned(),
                }));
            }
            // A part that this job does not have says nothing about it.
            substitutions.programs.retain(|program, _| programs.contains(program));
        }
        let synthetic = speculative.as_ref().is_some_and(|s| matches!(s.acceptance, Acceptance::Synthetic { .. }));
        let dram_gb = match &row.kv_offload {
            Some(KvOffload::Dram { dram_gb, .. }) => *dram_gb,
            _ => 0,
        };
        let gpus_per_node = services.iter().map(|service| service.resources.gpus * service.replicas).sum();
        let spec = JobSpec {
            deployment: Deployment {
                groups: vec![Group { dram_gb, gpus_per_node, name: NODE.to_owned(), nodes: 1 }],
                hardware: Hardware { gpu: row.gpu().to_owned(), runner: row.runner.clone() },
                model: Pinned {
                    revision: self.lock.revision(&HubKey::model(&entry.model)).map(str::to_owned),
                    id: entry.model.clone(),
                },
                services,
                speculative,
                substitutions,
            },
            measurement: Measurement {
                client: resolved.client,
                concurrency: arm.conc.into(),
                gates: Gates {
                    acceptance_tolerance: synthetic.then(|| ACCEPTANCE_TOLERANCE.to_owned()),
                    max_error_ratio: body.client.max_error_ratio.clone(),
                    min_drafts: synthetic.then_some(MIN_DRAFTS),
                    min_score: body.client.min_score.clone(),
                },
                output: body.client.output,
                server: Server::Fresh,
                workload: resolved.workload,
            },
            exploratory,
            schema: Schema::V1,
            what_if: Vec::new(),
        };
        // A recipe says what the real programs may take to load a model; their stand-ins load none.
        let ready_timeout_s = if self.profile.rehearses() { BTreeMap::new() } else { resolved.ready_timeout_s };
        Ok(Composed::Job(Box::new(Job { spec, ready_timeout_s })))
    }

    /// The speculation of an arm: what the row asks for, as the recipe drafts it, under the policy; where that blocks it,
    /// also with real verification.
    fn speculative(
        &self,
        arm: &Arm,
        composition: &Composition,
    ) -> Result<Result<Option<Speculative>, (Blocked, Speculative)>, Diagnostics> {
        let place = &arm.row.place;
        match (arm.row.spec_decoding, &composition.drafting) {
            (SpecDecoding::None, None) => Ok(Ok(None)),
            (SpecDecoding::None, Some(_)) => Err(Diagnostic::at(
                &composition.curve_place,
                "the recipe drafts tokens for a row without spec-decoding",
            )
            .related(place, "this row")
            .help("put `speculative` into an overlay `when: ${{ spec_decoding == \"mtp\" }}`")
            .into()),
            (asked, None) => Err(Diagnostic::at(
                place,
                format!("{}: the row asks for {}, its recipe has no `speculative`", arm.row.label, asked.as_str()),
            )
            .help("add an overlay with `speculative: {method, tokens, curve, thinking}` to the recipe")
            .into()),
            (_, Some(drafting)) => match speculative::policy(arm, drafting, self.curves) {
                Ok(speculative) => Ok(Ok(Some(speculative))),
                Err(missing) => {
                    let blocked = Blocked {
                        why: missing.to_string(),
                        unblock: format!(
                            "measure the acceptance length and commit it to golden_al_distribution/{}.yaml; \
                             `ixbuild run --exploratory` runs it with real verification, for numbers that stay here",
                            drafting.curve
                        ),
                    };
                    let (method, tokens) = (drafting.method.clone(), drafting.tokens);
                    Ok(Err((blocked, Speculative { acceptance: Acceptance::Real {}, method, tokens })))
                }
            },
        }
    }
}
