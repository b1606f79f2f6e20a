//! Pictures: they say what is in the graph.

use cuda_graph::{ChildOp, CopyOp, DriverDot, EdgeData, FillOp, Graph};

use crate::fixture::{context, store, stream, words};

fn example() -> (Graph, u32) {
    let stream = stream();
    let (a, b) = (words(&stream, &[0; 4]), words(&stream, &[0; 4]));
    let inner = Graph::new(&context()).unwrap();
    inner
        .add(
            FillOp::new(&a, 1u32).unwrap().label("the <inner> \"fill\""),
            (),
        )
        .unwrap();
    let graph = Graph::new(&context()).unwrap();
    let line = line!() + 1;
    let first = graph.add(store(&a, 1).label("first"), ()).unwrap();
    let second = graph.add(store(&a, 2), ()).unwrap();
    graph
        .successors(first)
        .add_with(second, EdgeData::programmatic())
        .unwrap();
    let child = graph.add(ChildOp::new(&inner), second).unwrap();
    graph
        .add(CopyOp::new(&b, &a).unwrap(), (first, child))
        .unwrap();
    (graph, line)
}

#[test]
fn dot_says_what_each_node_is() {
    let (graph, line) = example();
    let dot = graph.dot().unwrap();
    for part in [
        "0: store",
        "\\\"first\\\"",
        "grid 1x1x1, block 1x1x1",
        "16 bytes, device to device",
        "16 bytes of 0x1",
        "subgraph cluster_n2",
        "n2_0 [label=\"0: fill",
        "the <inner> \\\"fill\\\"",
        "n0 -> n1 [style=dashed];",
        "n1 -> n2;",
        "n2 -> n3;",
        &format!("pictures.rs:{line}"),
    ] {
        assert!(dot.contains(part), "{part} is missing in\n{dot}");
    }
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
}

#[test]
fn svg_draws_each_node() {
    let (graph, _) = example();
    let svg = graph.svg().unwrap();
    assert!(
        svg.contains("<svg") && svg.trim_end().ends_with("</svg>"),
        "{svg}"
    );
    for part in [
        "0: store",
        "&quot;first&quot;",
        "16 bytes of 0x1",
        "&lt;inner&gt;",
    ] {
        assert!(svg.contains(part), "{part} is missing in\n{svg}");
    }
    let empty = Graph::new(&context()).unwrap();
    assert!(empty.svg().unwrap().contains("<svg"));
    assert!(empty.dot().unwrap().contains("digraph"));
}

#[test]
fn the_drivers_picture_has_its_flags() {
    let (graph, _) = example();
    let plain = graph.driver_dot(DriverDot::default()).unwrap();
    assert!(plain.contains("digraph"), "{plain}");
    let all = graph.driver_dot(DriverDot::all()).unwrap();
    assert!(all.len() > plain.len() && all.contains("store"), "{all}");
}
