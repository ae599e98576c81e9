//! The job as a graph: which instance waits for which, what may start now, and the order of teardown. Pure.

use std::collections::BTreeMap;

use super::check::Fault;
use super::event::Who;
use crate::spec::{Instances, Service};

/// The instances of a job's services and what each waits for. Acyclic by construction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// In the order of the spec's services, the instances of one service in a row.
    pub nodes: Vec<Node>,
}

/// An instance of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub who: Who,
    /// Index of its service in the spec.
    pub service: usize,
    /// What must be ready first.
    needs: Vec<Need>,
    /// Length of the longest chain of dependencies below it.
    depth: usize,
}

/// A dependency on the instances of one service.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Need {
    /// Indices of nodes.
    nodes: std::ops::Range<usize>,
    instances: Instances,
}

impl Graph {
    /// The graph of some services.
    ///
    /// # Errors
    /// A dependency on a service that is not there, or a cycle, named in full.
    pub fn of(services: &[Service]) -> Result<Self, Fault> {
        let mut first = Vec::with_capacity(services.len());
        let mut count = 0_usize;
        for service in services {
            first.push(count);
            count += usize::try_from(service.replicas).unwrap_or(usize::MAX);
        }
        let by_name: BTreeMap<&str, usize> =
            services.iter().enumerate().map(|(index, service)| (service.name.as_str(), index)).collect();
        let mut waits: Vec<Vec<usize>> = Vec::with_capacity(services.len());
        for service in services {
            let find = |after: &crate::spec::After| {
                by_name
                    .get(after.service.as_str())
                    .copied()
                    .ok_or_else(|| Fault::UnknownAfter { service: service.name.clone(), after: after.service.clone() })
            };
            waits.push(service.after.iter().map(find).collect::<Result<_, _>>()?);
        }
        let depths = depths(&waits)
            .map_err(|cycle| Fault::Cycle(cycle.into_iter().map(|index| services[index].name.clone()).collect()))?;
        let mut nodes = Vec::with_capacity(count);
        for (index, service) in services.iter().enumerate() {
            let needs: Vec<Need> = std::iter::zip(&service.after, &waits[index])
                .map(|(after, &on)| {
                    let replicas = usize::try_from(services[on].replicas).unwrap_or(usize::MAX);
                    Need { nodes: first[on]..first[on] + replicas, instances: after.instances }
                })
                .collect();
            nodes.extend((0..service.replicas).map(|instance| Node {
                who: Who { service: service.name.clone(), instance },
                service: index,
                needs: needs.clone(),
                depth: depths[index],
            }));
        }
        Ok(Self { nodes })
    }

    /// The nodes that have not begun and whose dependencies are ready.
    pub fn startable(&self, begun: &[bool], ready: &[bool]) -> Vec<usize> {
        let met = |need: &Need| match need.instances {
            Instances::All => ready[need.nodes.clone()].iter().all(|ready| *ready),
            Instances::Any => ready[need.nodes.clone()].iter().any(|ready| *ready),
        };
        (0..self.nodes.len()).filter(|&index| !begun[index] && self.nodes[index].needs.iter().all(met)).collect()
    }

    /// How early a node stops: nodes of greater rank are gone before those of smaller rank are told to stop.
    pub fn rank(&self, node: usize) -> usize {
        self.nodes[node].depth
    }
}

/// The longest chain below each service, or the cycle (its first member repeated at the end).
fn depths(waits: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut depths: Vec<Option<usize>> = vec![None; waits.len()];
    // Each round settles at least one service, until all are settled or the rest form a cycle.
    loop {
        let mut settled = false;
        for index in 0..waits.len() {
            if depths[index].is_none() {
                let below: Option<Vec<usize>> = waits[index].iter().map(|&on| depths[on]).collect();
                depths[index] = below.map(|below| below.iter().map(|depth| depth + 1).max().unwrap_or(0));
                settled |= depths[index].is_some();
            }
        }
        if !settled {
            break;
        }
    }
    let Some(start) = depths.iter().position(Option::is_none) else {
        return Ok(depths.into_iter().flatten().collect());
    };
    // From an unsettled service an unsettled one can always be reached: the walk comes back to where it was.
    let mut walk = vec![start];
    loop {
        let last = walk[walk.len() - 1];
        let Some(next) = waits[last].iter().copied().find(|&on| depths[on].is_none()) else { return Err(walk) };
        if let Some(seen) = walk.iter().position(|&on| on == next) {
            let mut cycle = walk.split_off(seen);
            cycle.push(next);
            return Err(cycle);
        }
        walk.push(next);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::exec::actor::service;
    use crate::spec::After;

    fn after(name: &str, of: &[(&str, Instances)], replicas: u64) -> Service {
        let mut service = service(name, &[]);
        service.replicas = replicas;
        service.after =
            of.iter().map(|(name, instances)| After { instances: *instances, service: (*name).to_owned() }).collect();
        service
    }

    #[test]
    fn any_waits_for_one_instance_and_all_for_every_one() {
        let graph = Graph::of(&[
            after("a", &[], 2),
            after("one", &[("a", Instances::Any)], 1),
            after("two", &[("a", Instances::All)], 1),
        ])
        .unwrap();
        assert_eq!(graph.startable(&[false; 4], &[false; 4]), [0, 1]);
        let begun = [true, true, false, false];
        assert!(graph.startable(&begun, &[false; 4]).is_empty());
        assert_eq!(graph.startable(&begun, &[false, true, false, false]), [2]);
        assert_eq!(graph.startable(&begun, &[true, true, false, false]), [2, 3]);
        assert_eq!([0, 1, 2, 3].map(|node| graph.rank(node)), [0, 0, 1, 1]);
        assert_eq!(graph.nodes[1].who.to_string(), "a[1]");
    }

    #[test]
    fn cycles_are_named_in_full() {
        let all = Instances::All;
        let services = [
            after("kv", &[("router", all)], 1),
            after("lone", &[("kv", all)], 1),
            after("router", &[("server", all)], 1),
            after("server", &[("kv", all)], 1),
        ];
        assert_eq!(
            Graph::of(&services).unwrap_err().to_string(),
            "services wait for each other: kv after router after server after kv"
        );
        let own = [after("a", &[("a", all)], 1)];
        assert_eq!(Graph::of(&own).unwrap_err().to_string(), "services wait for each other: a after a");
        let none = [after("a", &[("b", all)], 1)];
        assert_eq!(Graph::of(&none).unwrap_err().to_string(), "a starts after `b`, which is no service of the job");
    }

    proptest! {
        /// Starting whatever may start, in any order, starts everything once, and nothing before what it waits for.
        #[test]
        fn everything_starts_after_its_dependencies(edges in prop::collection::vec((0_usize..8, 0_usize..8), 0..24)) {
            let services: Vec<Service> = (0..8)
                .map(|index| {
                    // Towards smaller numbers alone: acyclic.
                    let of: Vec<String> =
                        edges.iter().filter(|(from, to)| *from == index && to < from).map(|(_, to)| format!("s{to}")).collect();
                    let of: Vec<(&str, Instances)> = of.iter().map(|name| (name.as_str(), Instances::All)).collect();
                    after(&format!("s{index}"), &of, 1)
                })
                .collect();
            let graph = Graph::of(&services).unwrap();
            let mut ready = [false; 8];
            while let Some(&next) = graph.startable(&ready, &ready).last() {
                for (from, to) in &edges {
                    prop_assert!(*from != next || to >= from || ready[*to]);
                    prop_assert!(*from != next || to >= from || graph.rank(*to) < graph.rank(next));
                }
                ready[next] = true;
            }
            prop_assert_eq!(ready, [true; 8]);
        }
    }
}
