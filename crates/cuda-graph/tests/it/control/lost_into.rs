//! A body that is lost while its graph is captured into: the graph goes on as what it was, and the capture says that it failed.

use cuda_graph::{Error, Graph};

use super::{read, word};
use crate::fixture::{context, store, stream};

#[test]
fn the_graph_is_what_it_was_and_the_capture_says_so() {
    let stream = stream();
    let (flag, a) = (word(&stream, 1), word(&stream, 0));
    let graph = Graph::new(&context()).unwrap();
    let first = graph.add(store(&a, 1), ()).unwrap();
    let captured = graph.capture_into(&stream, first, |c| {
        c.record(store(&a, 2))?;
        let lost = c.while_nonzero(&flag, |r| {
            // Forbidden while the stream is captured; nobody looks at the answer.
            let _ = r.stream().expect("it is captured").synchronize();
            Ok(())
        });
        assert!(
            matches!(lost, Err(Error::CaptureInvalidated(_))),
            "{lost:?}"
        );
        Ok(())
    });
    assert!(
        matches!(captured, Err(Error::CaptureInvalidated(_))),
        "{captured:?}"
    );
    assert_eq!(graph.nodes().unwrap(), [first.id()]);
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(read(&stream, &a), 1);
    graph
        .capture_into(&stream, first, |c| c.record(store(&a, 3)))
        .unwrap();
    graph.instantiate().unwrap().launch(&stream).unwrap();
    assert_eq!(read(&stream, &a), 3);
}
