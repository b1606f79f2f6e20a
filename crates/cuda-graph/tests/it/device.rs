//! Opening a device: which driver is taken, and what is said when there is none.
//!
//! The choice is made once for a process, so each case runs this test binary again with its own
//! environment.

use cuda_graph::{Driver, Error};

use crate::fixture;

/// Runs `case` of this file in a process of its own and gives what it printed.
fn in_process(case: &str, environment: &[(&str, &str)]) -> String {
    fixture::in_process(&format!("device::{case}"), environment)
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn open_and_report() {
    match cuda_graph::device(0) {
        Ok(device) => {
            let stream = device.context().default_stream();
            let there = stream.clone_htod(&[1u32, 2, 3]).expect("three words fit");
            assert_eq!(
                stream.clone_dtoh(&there).expect("they are there"),
                [1, 2, 3]
            );
            println!("opened on {}", device.driver());
        }
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn open_far_ordinal() {
    let first = cuda_graph::device(0).expect("there is a device");
    match cuda_graph::device(1000) {
        Err(Error::NoDevice {
            ordinal: 1000,
            count,
            driver,
        }) => {
            assert!(count >= 1);
            assert_eq!(driver, first.driver().to_string());
        }
        other => panic!("device 1000 gives {other:?}"),
    }
}

#[test]
#[ignore = "run by the other tests, in a process of its own"]
fn open_from_many_threads() {
    let drivers: Vec<Driver> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| cuda_graph::device(0).expect("there is a device").driver()))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"))
            .collect()
    });
    assert!(drivers.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn auto_opens_a_device_wherever_it_runs() {
    let text = in_process("open_and_report", &[]);
    assert!(
        text.contains("opened on gpu") || text.contains("opened on software"),
        "{text}"
    );
}

#[test]
fn software_is_taken_when_asked_for() {
    let text = in_process("open_and_report", &[("CUDA_GRAPH_DRIVER", "software")]);
    assert!(text.contains("opened on software"), "{text}");
}

#[test]
fn gpu_is_taken_or_missed_when_asked_for() {
    let text = in_process("open_and_report", &[("CUDA_GRAPH_DRIVER", "gpu")]);
    let missed = text.contains("refused: no CUDA driver to run on: libcuda.so is not installed, libcuda.so.1 is not installed")
        && text.contains("CUDA_GRAPH_DRIVER asks for a GPU");
    assert!(text.contains("opened on gpu") || missed, "{text}");
}

#[test]
fn a_setting_that_means_nothing_is_named() {
    let text = in_process("open_and_report", &[("CUDA_GRAPH_DRIVER", "cpu")]);
    assert!(
        text.contains("refused: CUDA_GRAPH_DRIVER is `cpu`: it takes `auto`, `gpu` or `software`"),
        "{text}"
    );
}

#[test]
fn an_ordinal_beyond_the_last_says_how_many_there_are() {
    in_process("open_far_ordinal", &[]);
}

#[test]
fn many_threads_may_open_at_once() {
    in_process("open_from_many_threads", &[]);
}
