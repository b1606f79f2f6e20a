//! Launch attributes: set with the operation, read back, taken back when it is replaced.

use cuda_graph::cudarc::driver::LaunchConfig;
use cuda_graph::cudarc::driver::sys::{CUclusterSchedulingPolicy, CUlaunchAttributeID};
use cuda_graph::cudarc::nvrtc::Ptx;
use cuda_graph::{
    Error, Graph, InstantiateOptions, Kernel, KernelOp, LaunchAttribute, RawAttribute,
    UpdateFailure,
};

use crate::fixture::{context, store, stream, words};

/// `shape(to)`: the first thread of each block writes the number of blocks in its cluster, and its
/// own number there, to `to`.
const SHAPE: &str = "
.version 7.8
.target sm_90
.address_size 64

.visible .entry shape(.param .u64 to)
{
    .reg .b32 %block, %size, %rank;
    .reg .b64 %p, %at;
    ld.param.u64 %p, [to];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %cluster_nctaid.x;
    mov.u32 %rank, %cluster_ctaid.x;
    mul.wide.u32 %at, %block, 8;
    add.u64 %p, %p, %at;
    st.global.u32 [%p], %size;
    st.global.u32 [%p+4], %rank;
    ret;
}
";

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

/// The attributes of a graph's only node, as someone sees them who did not make it.
fn read(graph: &Graph) -> Vec<LaunchAttribute> {
    // SAFETY: the graph outlives the handle, and one thread uses both.
    let seen = unsafe { Graph::from_raw_borrowed(graph.raw().unwrap(), &context()) };
    let node = seen.nodes().unwrap()[0].typed::<KernelOp>().unwrap();
    seen.op(node).unwrap().attributes().to_vec()
}

#[test]
fn attributes_are_set_and_read_back() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let node = graph.add(store(&a, 3).cooperative(), ()).unwrap();
    assert_eq!(read(&graph), [LaunchAttribute::Cooperative(true)]);
    graph.update(node, store(&a, 4)).unwrap();
    assert_eq!(
        read(&graph),
        [],
        "an attribute that the new operation lacks is taken back"
    );
    let options = InstantiateOptions {
        node_priority: true,
        upload: Some(stream.clone()),
        ..InstantiateOptions::default()
    };
    let mut exec = graph.instantiate_with(&options).unwrap();
    assert!(exec.options().unwrap().node_priority);
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [4]);
}

#[test]
fn each_attribute_is_read_back_and_replaced_by_its_like() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let high = LaunchAttribute::Priority(-1);
    let graph = graph();
    let node = graph
        .add(store(&a, 1).priority(-1).cooperative(), ())
        .unwrap();
    assert_eq!(
        read(&graph),
        [LaunchAttribute::Cooperative(true), high.clone()]
    );
    let twice = store(&a, 1).priority(-1).priority(-2);
    assert_eq!(twice.attributes(), [LaunchAttribute::Priority(-2)]);
    graph.update(node, twice).unwrap();
    assert_eq!(read(&graph), [LaunchAttribute::Priority(-2)]);
    graph.update(node, store(&a, 1).cluster(1, 1, 1)).unwrap();
    assert_eq!(read(&graph), [], "a cluster of one block is a plain launch");

    // The library's own nodes say what they were given, whatever the driver tells of it.
    let given = store(&a, 1)
        .attribute(LaunchAttribute::SharedMemoryCarveout(50))
        .attribute(LaunchAttribute::ClusterScheduling(
            CUclusterSchedulingPolicy::CU_CLUSTER_SCHEDULING_POLICY_SPREAD,
        ));
    graph.update(node, given.clone()).unwrap();
    assert_eq!(graph.op(node).unwrap().attributes(), given.attributes());
    assert_eq!(read(&graph), []);
    let clone = graph.try_clone().unwrap();
    let copy = graph.find_in_clone(node, &clone).unwrap();
    assert_eq!(clone.op(copy).unwrap().attributes(), given.attributes());
    let mut exec = graph.instantiate().unwrap();
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [1]);
    // In an executable they stay.
    exec.update(node, given).unwrap();
    assert!(matches!(
        exec.update(node, store(&a, 2)),
        Err(Error::AttributesFixed { .. })
    ));
}

#[test]
fn a_whole_update_changes_attributes_or_says_that_it_cannot() {
    let stream = stream();
    let a = words(&stream, &[0]);
    let graph = graph();
    let node = graph.add(store(&a, 1), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    graph.update(node, store(&a, 2).priority(-1)).unwrap();
    let wanted = match exec.update_in_place(&graph) {
        Ok(()) => 2,
        Err(Error::Update { reason, .. }) => {
            assert_eq!(reason, UpdateFailure::AttributesChanged);
            1
        }
        Err(error) => panic!("{error}"),
    };
    exec.launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [wanted]);
}

#[test]
fn blocks_form_clusters() {
    let stream = stream();
    let a = words(&stream, &[9; 8]);
    let module = context().load_module(Ptx::from_src(SHAPE)).unwrap();
    let shape = Kernel::new(&module.load_function("shape").unwrap()).unwrap();
    let blocks = |count| LaunchConfig {
        grid_dim: (count, 1, 1),
        block_dim: (1, 1, 1),
        shared_mem_bytes: 0,
    };
    // SAFETY: `shape` writes two words for each block.
    let launch = |count| unsafe { KernelOp::new(&shape, blocks(count), (&a,)) }.unwrap();
    let graph = graph();
    let node = graph.add(launch(4).cluster(2, 1, 1), ()).unwrap();
    assert_eq!(read(&graph), [LaunchAttribute::Cluster(2, 1, 1)]);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [2, 0, 2, 1, 2, 0, 2, 1]);
    graph.update(node, launch(4)).unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(a.to_host(&stream).unwrap(), [1, 0, 1, 0, 1, 0, 1, 0]);

    let odd = self::graph();
    let made = odd.add(launch(3).cluster(2, 1, 1).label("odd"), ());
    let said = made.and_then(|_| odd.instantiate()).map(drop);
    let Err(Error::Node { .. } | Error::Instantiate { .. }) = said else {
        panic!("3 blocks are no whole number of clusters of 2");
    };
}

#[test]
fn an_attribute_by_its_number_is_one_by_its_name() {
    let stream = stream();
    let a = words(&stream, &[0]);
    // SAFETY: plain data for which zero is a value.
    let mut value: cuda_graph::cudarc::driver::sys::CUkernelNodeAttrValue =
        unsafe { std::mem::zeroed() };
    value.priority = -1;
    let id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
    // SAFETY: a priority is a number.
    let raw = LaunchAttribute::Raw(unsafe { RawAttribute::new(id, value) });
    assert_eq!(raw, LaunchAttribute::Priority(-1));
    let graph = graph();
    graph.add(store(&a, 1).attribute(raw), ()).unwrap();
    assert_eq!(read(&graph), [LaunchAttribute::Priority(-1)]);
}
