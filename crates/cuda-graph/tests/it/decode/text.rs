//! Whole texts: every way gives the same, and what the reference gives.

use std::collections::HashSet;
use std::sync::Arc;

use cuda_graph::cudarc::driver::CudaStream;
use cuda_graph::{Buffer, Eager, Error, Graph};

use super::decoder::Decoder;
use super::model::Model;
use super::step::step;
use super::weights::Weights;
use super::{TINY, reference, way};
use crate::fixture::stream;

const PROMPT: &[u8] = b"tiny";

/// As many tokens as fit behind the prompt.
const TOKENS: usize = TINY.context - PROMPT.len();

fn tiny(stream: &Arc<CudaStream>, seed: u64) -> (Weights<Vec<f32>>, Model) {
    let weights = Weights::random(&TINY, seed);
    let model = Model::new(stream, &TINY, &weights).unwrap();
    (weights, model)
}

#[test]
fn every_way_gives_the_same_tokens() {
    let stream = stream();
    for seed in 0..3 {
        let (_, model) = tiny(&stream, seed);
        let decoder = Decoder::new(&stream, &model, PROMPT, TOKENS).unwrap();
        let mut ways = way::all(&stream).unwrap();
        assert!(ways.len() > 1);
        let mut texts = ways.iter_mut().map(|way| {
            // Twice: the second text finds nothing of the first.
            let once = decoder.decode(&mut **way, TOKENS).unwrap().tokens;
            let again = decoder.decode(&mut **way, TOKENS).unwrap().tokens;
            assert_eq!(once, again, "{}", way.name());
            (way.name(), once)
        });
        let (_, expected) = texts.next().unwrap();
        for (name, text) in texts {
            assert_eq!(text, expected, "{name}");
        }
        let different: HashSet<u32> = expected.iter().copied().collect();
        assert!(different.len() > TOKENS / 3, "{expected:?}");
    }
}

#[test]
fn logits_and_bits_are_those_expected() {
    let stream = stream();
    let (weights, model) = tiny(&stream, 5);
    let text: Vec<u32> = (0..TINY.context as u32).map(|i| i * 37 % 256).collect();
    let expected = reference::logits(&TINY, &weights, &text);
    let tokens = Buffer::from_host(&stream, &text).unwrap();
    let next = Buffer::<u32>::zeroed(&stream, 1).unwrap();
    let mut eager = Eager::new(&stream).unwrap();
    for (pos, expected) in expected.iter().enumerate() {
        let token = tokens.slice(pos..pos + 1).unwrap();
        let number = pos as u32;
        step(&mut eager, &model, &token, &next, number).unwrap();
        let logits = model.logits.to_host(&stream).unwrap();
        for (at, (&got, &expected)) in logits.iter().zip(expected).enumerate() {
            let error = (f64::from(got) - expected).abs();
            assert!(error < 1e-4, "{pos}, {at}: {got}, not {expected}");
        }
        let chosen = next.to_host(&stream).unwrap();
        assert_eq!(chosen, [reference::choose(&logits)]);

        // The same step as a graph leaves the same bits.
        let record = |path: &mut cuda_graph::Path| step(path, &model, &token, &next, number);
        let (graph, ()) = Graph::record(stream.context(), record).unwrap();
        graph.instantiate().unwrap().launch(&stream).unwrap();
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let again = model.logits.to_host(&stream).unwrap();
        assert_eq!(bits(again), bits(logits), "{pos}");
    }
}

#[test]
fn a_position_beyond_the_context_is_refused() {
    let stream = stream();
    let (_, model) = tiny(&stream, 1);
    let word = Buffer::<u32>::zeroed(&stream, 1).unwrap();
    let mut eager = Eager::new(&stream).unwrap();
    let refused = step(&mut eager, &model, &word, &word, TINY.context as u32);
    assert!(
        matches!(refused, Err(Error::OutOfRange { .. })),
        "{refused:?}"
    );
}
