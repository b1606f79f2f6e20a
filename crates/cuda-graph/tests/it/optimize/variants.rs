//! Modules that know their PTX, and kernels with a guard or a wait in front.

use std::sync::Arc;

use cuda_graph::cudarc::driver::sys::CUresult;
use cuda_graph::cudarc::driver::{CudaStream, LaunchConfig};
use cuda_graph::testing::{self, with_failing_call};
use cuda_graph::{Buffer, Edge, EdgeData, Error, Graph, Kernel, KernelOp, Module};

use crate::fixture::{self, context, stream, words};

/// `add(to, by)`: thread i adds `by` and a number of the table to `to[i]`. The rest is refused.
const PTX: &str = "
.version 7.0
.target sm_70
.address_size 64

.const .u32 table[4] = {0, 10, 20, 30};
.global .u32 calls;

.func (.param .u32 r) entry_of(.param .u32 i)
{
    .reg .b32 %i;
    .reg .b64 %at;
    ld.param.u32 %i, [i];
    and.b32 %i, %i, 3;
    mul.wide.u32 %at, %i, 4;
    { .reg .b64 %table; mov.u64 %table, table; add.u64 %at, %at, %table; }
    ld.const.u32 %i, [%at];
    st.param.u32 [r], %i;
    ret;
}

.visible .entry add(.param .u64 to, .param .u8 by) .maxntid 64, 1, 1
{
    .reg .b32 %v, %i, %by;
    .reg .b64 %p, %at;
    .shared .b32 guard0_tile[64];
    ld.param.u64 %p, [to];
    ld.param.u8 %by, [by];
    mov.u32 %i, %tid.x;
    mul.wide.u32 %at, %i, 4;
    add.u64 %p, %p, %at;
    { .param .b32 a, r; st.param.b32 [a], %i; call (r), entry_of, (a); ld.param.b32 %i, [r]; }
    bar.sync 0;
    ld.global.u32 %v, [%p];
    add.u32 %v, %v, %by;
    add.u32 %v, %v, %i;
    st.global.u32 [%p], %v;
    ret;
}

.visible .entry count() { .reg .b32 %r; atom.global.add.u32 %r, [calls], 1; ret; }
";

const CLUSTERED: &str = "
.version 7.8
.target sm_90
.address_size 64

.visible .entry clustered() .explicitcluster { ret; }
";

fn module() -> Module {
    Module::load(&context(), PTX).expect("it loads")
}

fn variant(kernel: &Kernel, guard: bool, wait: bool) -> Kernel {
    let made = testing::variant(kernel, &context(), guard, wait);
    made.expect("the driver does").expect("it may be")
}

fn refusal(kernel: &Kernel) -> String {
    let made = testing::variant(kernel, &context(), true, false);
    made.expect("the driver does").expect_err("it may not be")
}

fn four() -> LaunchConfig {
    LaunchConfig {
        grid_dim: (1, 1, 1),
        block_dim: (4, 1, 1),
        shared_mem_bytes: 0,
    }
}

/// What the four words of zero are after a graph of this launch, by a kernel with `add`'s arguments
/// and a flag or none.
fn launched(stream: &Arc<CudaStream>, kernel: &Kernel, flag: Option<u32>) -> Vec<u32> {
    let to = words(stream, &[0; 4]);
    let flag = flag.map(|value| words(stream, &[value]));
    // SAFETY: four threads add to as many words; the flag is one.
    let op = unsafe {
        match &flag {
            Some(flag) => KernelOp::new(kernel, four(), (&to, 5u8, flag)),
            None => KernelOp::new(kernel, four(), (&to, 5u8)),
        }
    };
    let graph = Graph::new(&context()).expect("a graph");
    graph
        .add(op.expect("the arguments fit"), ())
        .expect("a node");
    let mut exec = graph.instantiate().expect("it is sound");
    exec.launch(stream).expect("it launches");
    to.to_host(stream).expect("it can be read")
}

const RUN: [u32; 4] = [5, 15, 25, 35];

#[test]
fn a_module_knows_what_it_is() {
    let module = module();
    assert_eq!(module.ptx(), PTX);
    let mut names = module.names().expect("the driver tells");
    names.sort_unstable();
    assert_eq!(names, ["add", "count"]);
    let add = module.kernel("add").expect("it is there");
    assert_eq!((add.name(), add.parameters().len()), ("add", 2));
    assert_eq!(add, module.clone().kernel("add").expect("it is there"));
    assert_eq!(launched(&stream(), &add, None), RUN);
    for name in ["sub", "entry_of", "add\0", ""] {
        let error = module.kernel(name).expect_err("it is not there");
        match (name, &error) {
            (_, Error::UnknownKernel { kernel }) => assert_eq!(&**kernel, name),
            ("", Error::Call { .. }) => {}
            _ => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn refused_ptx_is_told_with_the_driver_s_words() {
    let wrong = PTX.replace("bar.sync 0", "bar.sync nowhere");
    let error = Module::load(&context(), wrong).expect_err("it is wrong");
    let Error::PtxRefused { code, log } = &error else {
        panic!("{error}");
    };
    assert_eq!(*code, CUresult::CUDA_ERROR_INVALID_PTX);
    assert!(log.contains("nowhere"), "{log}");
    assert_eq!(error.code(), Some(*code));

    let zero = Module::load(&context(), format!("{PTX}\0;")).expect_err("a zero is inside");
    assert!(matches!(zero, Error::Other(_)), "{zero}");
    Module::load(&context(), format!("{PTX}\0")).expect("a zero may be the last");
}

#[test]
fn variants_run_or_do_not() {
    let (stream, module) = (stream(), module());
    let add = module.kernel("add").expect("it is there");
    let guarded = variant(&add, true, false);
    assert_eq!(guarded.name(), "add__guarded");
    let flag = guarded.parameters()[2];
    assert_eq!(
        (guarded.parameters().len(), flag.offset, flag.size),
        (3, 16, 8)
    );
    assert_eq!(&guarded.parameters()[..2], add.parameters());
    let both = variant(&add, true, true);
    for kernel in [&guarded, &both] {
        for up in [1, 2, 1 << 31, u32::MAX] {
            assert_eq!(launched(&stream, kernel, Some(up)), RUN, "{kernel:?} {up}");
        }
        assert_eq!(launched(&stream, kernel, Some(0)), [0; 4], "{kernel:?}");
    }
    let waiting = variant(&add, false, true);
    assert_eq!(
        (waiting.name(), waiting.parameters()),
        ("add__waiting", add.parameters())
    );
    assert_eq!(launched(&stream, &waiting, None), RUN);
    assert_eq!(variant(&add, false, false), add);
}

/// A flag that an earlier node of the same graph sets counts, also where the kernel may start
/// before that node is over.
#[test]
fn a_flag_comes_from_a_node_before() {
    let (stream, module) = (stream(), module());
    let guarded = variant(&module.kernel("add").expect("it is there"), true, true);
    for data in [EdgeData::default(), EdgeData::programmatic()] {
        let (to, flag) = (words(&stream, &[0; 4]), words(&stream, &[0]));
        let graph = Graph::new(&context()).expect("a graph");
        let mut after = None;
        for value in [0, 1, 0, 7] {
            let set = graph
                .add(fixture::store(&flag, value), after)
                .expect("a node");
            // SAFETY: four threads add to as many words; the flag is one.
            let op = unsafe { KernelOp::new(&guarded, four(), (&to, 5u8, &flag)) };
            let add = graph
                .add(op.expect("the arguments fit"), ())
                .expect("a node");
            let edge = Edge {
                from: set.id(),
                to: add.id(),
                data,
            };
            graph.add_edges([edge]).expect("it waits");
            after = Some(add.id());
        }
        let mut exec = graph.instantiate().expect("it is sound");
        exec.launch(&stream).expect("it launches");
        let sum = to.to_host(&stream).expect("it can be read");
        assert_eq!(sum, RUN.map(|once| 2 * once), "{data:?}");
    }
}

#[test]
fn what_has_no_variant_says_why() {
    let module = module();
    let of = |name| refusal(&module.kernel(name).expect("it is there"));
    assert_eq!(
        of("count"),
        "`count` uses the variable `calls`, which has no initial value (line 7)"
    );
    let clustered = Module::load(&context(), CLUSTERED).expect("it loads");
    let clustered = clustered.kernel("clustered").expect("it is there");
    assert!(refusal(&clustered).contains("written for clusters"));
    assert!(refusal(&fixture::kernel("store")).contains("`Module::load`"));
    let guarded = variant(&module.kernel("add").expect("it is there"), true, false);
    assert!(refusal(&guarded).contains("`Module::load`"));
}

/// The driver refuses what was rewritten: the kernel stays as it is, and nothing fails.
#[test]
fn what_the_driver_does_not_take_is_a_refusal() {
    // Raised to `sm_90`, this is too new for a device of 8.0.
    let text = fixture::in_process(
        "optimize::variants::on_an_older_device",
        &[
            ("CUDA_GRAPH_DRIVER", "software"),
            ("SOFTCUDA_COMPUTE_CAPABILITY", "8.0"),
        ],
    );
    assert!(
        text.contains("the driver does not take the variant"),
        "{text}"
    );
}

#[test]
#[ignore = "a case that another test runs in a process of its own"]
fn on_an_older_device() {
    let module = module();
    let add = module.kernel("add").expect("it is there");
    assert_eq!(
        launched(&stream(), &variant(&add, true, false), Some(1)),
        RUN
    );
    for _ in 0..2 {
        let made = testing::variant(&add, &context(), false, true).expect("the driver does");
        println!("{}", made.expect_err("it is too new"));
    }
}

#[test]
fn a_variant_outlives_its_module() {
    let stream = stream();
    let module = module();
    let guarded = variant(&module.kernel("add").expect("it is there"), true, false);
    drop(module);
    assert_eq!(launched(&stream, &guarded, Some(1)), RUN);
    assert_eq!(launched(&stream, &guarded, Some(0)), [0; 4]);

    // In an executable it outlives its handle too.
    let (to, flag) = (words(&stream, &[0; 4]), words(&stream, &[1]));
    // SAFETY: four threads add to as many words; the flag is one.
    let op = unsafe { KernelOp::new(&guarded, four(), (&to, 5u8, &flag)) };
    let graph = Graph::new(&context()).expect("a graph");
    graph
        .add(op.expect("the arguments fit"), ())
        .expect("a node");
    let mut exec = graph.instantiate().expect("it is sound");
    drop((graph, guarded));
    exec.launch(&stream).expect("it launches");
    assert_eq!(to.to_host(&stream).expect("it can be read"), RUN);
}

#[test]
fn a_variant_is_loaded_once() {
    let module = module();
    let kernels: Vec<Kernel> = std::thread::scope(|scope| {
        let ask = || {
            let add = module.kernel("add").expect("it is there");
            [(true, false), (false, true), (true, true)]
                .map(|(guard, wait)| variant(&add, guard, wait))
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().expect("it ends");
        threads.into_iter().flat_map(join).collect()
    });
    for three in kernels.chunks(3) {
        assert_eq!(three, &kernels[..3]);
    }
    let stream = stream();
    assert_eq!(launched(&stream, &kernels[0], Some(0)), [0; 4]);
    assert_eq!(launched(&stream, &kernels[2], Some(1)), RUN);
}

/// Loading fails at each call of the driver: nothing is remembered, and the next time it works.
#[test]
fn a_failure_is_not_remembered() {
    let mut errors = 0;
    for call in 0.. {
        let add = module().kernel("add").expect("it is there");
        let ask = || testing::variant(&add, &context(), true, false);
        let (made, failed) = with_failing_call(call, ask);
        match made {
            // Some calls may fail and nothing is lost.
            Ok(made) => assert!(made.is_ok(), "a failure of the driver is no refusal"),
            Err(error) => {
                errors += 1;
                assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
            }
        }
        let guarded = variant(&add, true, false);
        assert_eq!(launched(&stream(), &guarded, Some(1)), RUN, "call {call}");
        if !failed {
            break;
        }
    }
    assert!(errors > 3, "{errors} calls failed");
}

/// A launch of other code is read back as a function's handle alone, which leads to the module.
#[test]
fn kernels_that_other_code_launches_are_found() {
    let (stream, module) = (stream(), module());
    let raw = module.kernel("add").expect("it is there").raw();
    let read = |to: &Buffer<u32>| {
        let address = to.address();
        let graph = Graph::capture(&stream, |path| {
            // SAFETY: four threads add to as many words, which outlive the graph.
            unsafe {
                path.foreign(|stream| {
                    let (mut address, mut by) = (address, 5u8);
                    let mut arguments = [(&raw mut address).cast(), (&raw mut by).cast()];
                    cuda_graph::cudarc::driver::result::launch_kernel(
                        raw,
                        (1, 1, 1),
                        (4, 1, 1),
                        0,
                        stream.cu_stream(),
                        &mut arguments,
                    )?;
                    Ok(())
                })
            }
        });
        let (graph, ()) = graph.expect("it is recorded");
        let node = graph.nodes().expect("they are there")[0];
        let node = node.typed::<KernelOp>().expect("it is a launch");
        graph.op(node).expect("it can be read").kernel()
    };
    let to = words(&stream, &[0; 4]);
    let found = read(&to);
    assert_eq!(found.raw(), raw);
    let guarded = variant(&found, true, false);
    assert_eq!(
        guarded,
        variant(&module.kernel("add").expect("it is there"), true, false)
    );
    // What was found keeps the module, too.
    drop(module);
    assert_eq!(launched(&stream, &found, None), RUN);

    // A function of a module that was loaded in another way leads nowhere.
    let other = fixture::kernel("store");
    assert!(refusal(&other).contains("not known"));
}
