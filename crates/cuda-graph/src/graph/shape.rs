//! The nodes and edges of a graph, with all that is embedded in it, as the driver has them.
//!
//! An executable knows the shape that its definition had when it was made. So that making one costs
//! nothing, the shape is taken when it is asked for, or before the definition changes. It is kept
//! with the definition, for all executables that were made between two changes.

use std::sync::Arc;

use cudarc::driver::sys::CUgraphEdgeData;
use smallvec::SmallVec;

use super::state::{Body, State};
use crate::error::NodeKind;
use crate::{Result, driver};

/// A graph.
pub(crate) struct Shape {
    /// Its number in its hierarchy.
    pub body: u32,
    /// Its nodes, in the driver's order.
    pub places: Vec<Place>,
    /// The nodes that no other waits for, by their places, as the driver begins with them.
    pub ends: Vec<u32>,
}

/// A node.
pub(crate) struct Place {
    /// Its number in its graph.
    pub index: u32,
    /// The places of the nodes that it waits for, in the driver's order.
    pub before: SmallVec<[(u32, CUgraphEdgeData); 2]>,
    /// The graphs inside of it.
    pub inside: Vec<Shape>,
}

/// The shape that a graph had, or has, which executables know it by.
pub(crate) struct Watched {
    version: Version,
    body: u32,
    /// How many executables.
    count: u32,
    /// `None`: it was not taken yet. `None` inside: it could not be told.
    shape: Option<Option<Arc<Shape>>>,
}

/// How often nodes or edges had come or gone in a hierarchy while executables knew it as it was.
#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) struct Version(u64);

impl Shape {
    /// The shape of graph `body`, if that is this graph or inside of it.
    pub(crate) fn find(&self, body: u32) -> Option<&Shape> {
        if self.body == body {
            return Some(self);
        }
        let mut inside = self.places.iter().flat_map(|place| &place.inside);
        inside.find_map(|inside| inside.find(body))
    }
}

impl State {
    /// One more executable knows graph `body` by the shape that it has now.
    #[inline]
    pub(crate) fn watch(&mut self, body: u32) -> Version {
        let version = self.version;
        match self.watched_at(version, body) {
            Some(watched) => watched.count += 1,
            None => self.watched.push(Watched {
                version,
                body,
                count: 1,
                shape: None,
            }),
        }
        version
    }

    /// One of the executables that knew graph `body` by that shape is gone.
    pub(crate) fn unwatch(&mut self, version: Version, body: u32) {
        let Some(watched) = self.watched_at(version, body) else {
            return;
        };
        watched.count -= 1;
        if watched.count == 0 {
            self.watched.retain(|watched| watched.count > 0);
        }
    }

    #[inline]
    fn watched_at(&mut self, version: Version, body: u32) -> Option<&mut Watched> {
        let mut watched = self.watched.iter_mut();
        watched.find(|watched| watched.version == version && watched.body == body)
    }

    /// The shape that graph `body` had then, if it can be told.
    pub(crate) fn shape_at(&mut self, version: Version, body: u32) -> Option<Arc<Shape>> {
        if self.watched_at(version, body)?.shape.is_none() {
            let now = self.shape(body).ok().map(Arc::new);
            self.watched_at(version, body)?.shape = Some(now);
        }
        self.watched_at(version, body)?.shape.clone().flatten()
    }

    /// Nodes or edges are about to come or go.
    #[inline]
    pub(crate) fn about_to_change(&mut self) {
        if !self.watched.is_empty() {
            self.remember();
        }
    }

    #[cold]
    fn remember(&mut self) {
        let now = self.version;
        let is_now = |watched: &&Watched| watched.version == now;
        let bodies = self.watched.iter().filter(is_now).map(|it| it.body);
        let bodies: SmallVec<[u32; 1]> = bodies.collect();
        for body in &bodies {
            self.shape_at(now, *body);
        }
        self.version.0 += u64::from(!bodies.is_empty());
    }

    /// The shape of graph `body` now.
    pub(crate) fn shape(&mut self, body: u32) -> Result<Shape> {
        let graph = self.body_mut(body)?;
        let nodes = driver::graph::nodes(graph.raw)?;
        let edges = driver::graph::edges(graph.raw)?;
        let mut indices = Vec::with_capacity(nodes.len());
        for &raw in &nodes {
            indices.push(graph.number(raw)?);
        }
        let mut place_of = vec![u32::MAX; graph.len() as usize];
        for (place, &index) in (0..).zip(&indices) {
            place_of[index as usize] = place;
        }
        let mut places: Vec<Place> = Vec::with_capacity(nodes.len());
        places.extend(indices.iter().map(|&index| Place {
            index,
            before: SmallVec::new(),
            inside: Vec::new(),
        }));
        let mut is_end = vec![true; nodes.len()];
        for edge in edges {
            let (from, to) = (graph.number(edge.from)?, graph.number(edge.to)?);
            let (from, to) = (place_of[from as usize], place_of[to as usize]);
            is_end[from as usize] = false;
            places[to as usize].before.push((from, edge.data));
        }
        for (place, &raw) in places.iter_mut().zip(&nodes) {
            // The driver lists edges by the nodes that they come from.
            if place.before.len() > 1 {
                place.before.clear();
                for (from, data) in driver::graph::predecessors(raw)? {
                    let from = graph.number(from)?;
                    place.before.push((place_of[from as usize], data));
                }
            }
        }
        let ranks = graph.ends.ranks(&indices);
        let mut ends: Vec<u32> = (0..nodes.len() as u32)
            .filter(|&place| is_end[place as usize])
            .collect();
        ends.sort_unstable_by_key(|&place| std::cmp::Reverse(ranks[place as usize]));
        for place in &mut places {
            if self.body(body)?.kind(place.index) == NodeKind::Child {
                self.child(body, place.index)?;
            }
            for inside in self.body(body)?.inside(place.index) {
                place.inside.push(self.shape(inside)?);
            }
        }
        Ok(Shape { body, places, ends })
    }
}

impl Body {
    /// The numbers of the nodes in the driver's order, as far as they are known.
    pub(super) fn order(&self) -> Vec<u32> {
        let numbers: std::collections::HashMap<_, u32> = self.handles.iter().zip(0..).collect();
        let nodes = driver::graph::nodes(self.raw).unwrap_or_default();
        nodes
            .iter()
            .filter_map(|raw| numbers.get(raw).copied())
            .collect()
    }

    /// Whether some node allocates or frees memory.
    pub(crate) fn has_memory_nodes(&self) -> bool {
        let is_there = |node: &u32| self.handle(*node).is_some();
        let is_one = |node| matches!(self.kind(node), NodeKind::Alloc | NodeKind::Free);
        self.has_uncommon && (0..self.len()).filter(is_there).any(is_one)
    }
}
