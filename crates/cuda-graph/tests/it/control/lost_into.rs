//! A body that fails while its graph is captured into.

use cuda_graph::{Error, Graph, Path};

use super::{read, word};
use crate::fixture::{alone, context, store, stream};

#[test]
fn the_rest_of_the_capture_goes_on() {
    let _alone = alone();
    let stream = stream();
    let (flag, a) = (word(&stream, 1), word(&stream, 0));
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(store(&a, 1), ()).unwrap();
    let second = graph
        .capture_into(&stream, first, |c| {
            let second = c.record(store(&a, 2))?;
            let lost = c.while_nonzero(&flag, |r| {
                // Forbidden while the stream is captured; nobody looks at the answer.
                let _ = r.stream().expect("it is captured").synchronize();
                Ok(())
            });
            assert!(
                matches!(lost, Err(Error::CaptureInvalidated(_))),
                "{lost:?}"
            );
            Ok(second)
        })
        .unwrap();
    assert_eq!(graph.nodes().unwrap(), [first.id(), second.id()]);
    // Of the loop its condition is left over, which serves the next.
    graph.instantiate().unwrap_err();
    Path::after(&graph, second)
        .if_nonzero(&flag, |r| r.record(store(&a, 3)).map(drop))
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(read(&stream, &a), 3);
}
