//! Random programs, called again and again through a [`Replay`] whose executables are made by
//! passes: whatever changes from call to call, each call leaves what an [`Eager`] leaves that runs
//! the same program.
//!
//! All kernels are of modules that know their PTX, so that passes rewrite them too.

mod program;
mod step;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cuda_graph::{
    Buffer, ChildOp, Eager, Error, FillOp, Graph, InstantiateOptions, Optimize, Recorder, Replay,
    ReplayOptions,
};

use super::random::{Random, kernel, seeds};
use super::{all_sets, optimized};
use crate::fixture::{alone, context, function, stream};
use program::{Args, Program};
use step::{Step, WORDS, World};

/// What differs, if something does.
type Played = std::result::Result<(), String>;

/// Calls a program through a replay with these passes, and eagerly. Says what differs, and what
/// the passes did.
fn play(seed: u64, set: Optimize, worlds: &mut [World; 2]) -> (Played, Tally) {
    let mut random = Random::new(seed);
    let program = Program::new(&mut random);
    let items = &program.items;
    let mut args = Args::new(&mut random, &program);
    let mut known = vec![args.clone()];
    let options = ReplayOptions {
        executables: match random.one_in(4) {
            true => random.below(4),
            false => 16,
        },
        instantiate: InstantiateOptions {
            optimize: set,
            ..InstantiateOptions::default()
        },
        ..ReplayOptions::default()
    };
    let mut replay = Replay::with_options(&context(), options).expect("it needs nothing");
    for world in &mut *worlds {
        world.reset();
    }
    let worlds = &*worlds;
    let [replayed, eager] = worlds;
    let foreign = function("add");
    let streams = [stream(), stream()];
    let mut stream = &streams[0];
    let mut tally = Tally::default();
    for call in 0..8 {
        if random.one_in(8) {
            stream.synchronize().expect("it runs");
            stream = &streams[random.below(2)];
        }
        let params = random.below(1000);
        worlds.iter().for_each(|world| world.set_params(params));
        let step = |world| Step {
            world,
            args: &args,
            foreign: &foreign,
        };
        let record = |r: &mut dyn Recorder| step(replayed).record(r, items);
        if call == 0 && !program.outside {
            let (graph, ()) = Graph::capture(stream, |r| record(r)).expect("it is recorded");
            let exec = optimized(&graph, set);
            let passes = exec.report().into_iter().flat_map(|report| &report.passes);
            let passes = passes.flat_map(|pass| &pass.did);
            tally.did.extend(passes.map(|(what, _)| *what));
        }
        // Runs the program eagerly, or what comes behind a checkpoint of it.
        let run = |behind: Option<&str>| {
            let mut eagerly = Eager::new(stream).expect("it is made");
            let eagerly: &mut dyn Recorder = &mut eagerly;
            let run = |r: &mut dyn Recorder| step(eager).record(r, items);
            let ran = match behind {
                Some(name) => eagerly.resume_after(name, run),
                None => run(eagerly),
            };
            ran.expect("it runs eagerly too");
        };
        let mut behind: Option<Arc<str>> = None;
        let mut outcome = replay.call(stream, record).expect("it is called");
        run(None);
        while let Some(name) = outcome.stopped().expect("the device tells") {
            if random.one_in(3) {
                break;
            }
            tally.resumed += 1;
            outcome = replay.resume(stream, record).expect("it goes on");
            run(Some(&name));
            behind = Some(name);
        }
        for _ in 0..random.below(3) {
            let params = random.below(1000);
            let (value, target) = replayed.params(params);
            for bound in [
                replay.bind(&replayed.value, value),
                replay.bind(&replayed.target, target),
            ] {
                let is_unused = matches!(bound, Err(Error::UnusedParam { .. }));
                assert!(bound.is_ok() || is_unused, "{bound:?}");
            }
            replayed.set_params(params);
            match replay.run(stream) {
                Ok(_) => {
                    tally.runs += 1;
                    eager.set_params(params);
                    run(behind.as_deref());
                }
                Err(Error::NotCalled { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        let counters = replay.counters();
        assert_eq!(counters.eager, 0, "{:?}", replay.why_eager());
        if call == 7 || !random.one_in(3) {
            let (got, want) = (replayed.read(stream), eager.read(stream));
            if let Some(word) = (0..got.len()).find(|&word| got[word] != want[word]) {
                let differs = format!(
                    "call {call}, word {word}: {got:?}\nnot {want:?}\n{counters:?}\n{args:?}\n\
                     {items:#?}"
                );
                return (Err(differs), tally);
            }
        }
        args = args.next(&mut random, &known);
        known.push(args.clone());
    }
    let counters = replay.counters();
    tally.calls += counters.calls;
    tally.updated += counters.updated;
    tally.built += counters.builds + counters.twins;
    (Ok(()), tally)
}

/// What happened, so that nobody runs programs of nothing.
#[derive(Debug, Default)]
struct Tally {
    did: BTreeSet<&'static str>,
    calls: u64,
    runs: u64,
    resumed: u64,
    updated: u64,
    built: u64,
}

#[test]
fn replay_with_passes_changes_no_byte() {
    let _alone = alone();
    // They are loaded before anything is captured.
    kernel("mix");
    let mut worlds = [World::new(), World::new()];
    let mut sum = Tally::default();
    let sets = &all_sets()[1..];
    for seed in seeds(80) {
        let set = match seed % 3 {
            0 => Optimize::ALL,
            _ => sets[Random::new(seed ^ 0x33).below(sets.len())],
        };
        let mut played = |set| {
            let played = AssertUnwindSafe(|| play(seed, set, &mut worlds));
            catch_unwind(played).unwrap_or_else(|_| (Err("a panic".into()), Tally::default()))
        };
        let (outcome, tally) = played(set);
        if let Err(differs) = outcome {
            let is_plain_too = played(Optimize::NONE).0.is_err();
            panic!("seed {seed}, {set:?} (without passes, too: {is_plain_too}): {differs}");
        }
        sum.did.extend(tally.did);
        sum.calls += tally.calls;
        sum.runs += tally.runs;
        sum.resumed += tally.resumed;
        sum.updated += tally.updated;
        sum.built += tally.built;
        if (seed + 1).is_multiple_of(1000) {
            println!("up to seed {seed}: {sum:?}");
        }
    }
    println!("{sum:?}");
    let Tally { did, runs, .. } = &sum;
    assert!(did.len() >= 9 && *runs > 0 && sum.resumed > 0, "{sum:?}");
}

/// A fill by a kernel is a kernel node, and no launch of the program.
#[test]
fn an_embedded_fill_by_a_kernel_is_called() {
    let stream = stream();
    let cell = Buffer::<u32>::zeroed(&stream, WORDS).expect("there is memory");
    for set in [Optimize::NONE, Optimize::ALL] {
        let options = ReplayOptions {
            instantiate: InstantiateOptions {
                optimize: set,
                ..InstantiateOptions::default()
            },
            ..ReplayOptions::default()
        };
        let mut replay = Replay::with_options(&context(), options).expect("it needs nothing");
        for value in 0..3 {
            let graph = Graph::new(&context()).expect("there is memory");
            let fill = FillOp::by_kernel(&cell, value).expect("it fits");
            graph.add(fill, ()).expect("it is added");
            let called = replay.call(&stream, |r| r.record(ChildOp::new(&graph)).map(drop));
            called.expect("it is called");
            assert_eq!(cell.to_host(&stream).expect("it is copied"), [value; WORDS]);
        }
        assert_eq!(replay.counters().builds, 1);
    }
}
