//! Sends, receives, and exchanges of both.

use cuda_graph::{Buffer, CollectiveOp, Error, Graph, RawElements, RawMemory, Transmission};

use super::{Rank, failure, plain_pair, ranks, run};

fn buffer(rank: &Rank, values: &[u32]) -> Buffer<u32> {
    Buffer::from_host(&rank.stream, values).expect("memory")
}

fn read(rank: &Rank, memory: &Buffer<u32>) -> Vec<u32> {
    memory.to_host(&rank.stream).expect("it can be read")
}

#[test]
fn every_count_arrives() {
    let ranks = ranks(2);
    // Around the bytes of a slot, and several of them.
    for count in [0, 1, 2, 4095, 4096, 4097, 20_001] {
        let values: Vec<u32> = (0..count).map(|i| i * 7 + 1).collect();
        let (from, to) = (
            buffer(&ranks[0], &values),
            buffer(&ranks[1], &vec![0; count as usize]),
        );
        let send = CollectiveOp::send(&ranks[0].communicator, &from, 1).expect("a send");
        let recv = CollectiveOp::recv(&ranks[1].communicator, &to, 0).expect("a receive");
        let mut execs = [ranks[0].exec([send]), ranks[1].exec([recv])];
        for _ in 0..2 {
            to.copy_from_host(&ranks[1].stream, &vec![0; count as usize])
                .expect("it fits");
            run(&ranks, &mut execs);
            assert_eq!(read(&ranks[1], &to), values, "{count} values");
        }
    }
}

/// All ranks send to all, themselves too, sends first: nobody waits for another's order.
#[test]
fn all_send_to_all() {
    for size in [1, 2, 3, 4] {
        let ranks = ranks(size);
        let (count, mut execs, mut memory) = (5000, Vec::new(), Vec::new());
        for rank in &ranks {
            let own = rank.number();
            let from: Vec<_> = (0..size as u32)
                .map(|to| buffer(rank, &vec![100 * own + to; count]))
                .collect();
            let to: Vec<_> = (0..size).map(|_| buffer(rank, &vec![0; count])).collect();
            let sends = (0..).zip(&from).map(|(to, it)| Transmission::send(it, to));
            // The receives in another order.
            let receives = (0..).zip(&to).rev_by(size);
            let receives = receives.map(|(from, it)| Transmission::recv(it, from));
            let op = CollectiveOp::exchange(&rank.communicator, sends.chain(receives));
            execs.push(rank.exec([op.expect("an exchange")]));
            memory.push(to);
        }
        run(&ranks, &mut execs);
        for (rank, memory) in ranks.iter().zip(&memory) {
            for (from, memory) in memory.iter().enumerate() {
                let wanted = vec![100 * from as u32 + rank.number(); count];
                assert_eq!(
                    read(rank, memory),
                    wanted,
                    "from {from} to {}",
                    rank.number()
                );
            }
        }
    }
}

/// The first `count` items in reverse.
trait ReversedBy: Iterator + Sized {
    fn rev_by(self, count: usize) -> std::iter::Rev<std::vec::IntoIter<Self::Item>> {
        self.take(count).collect::<Vec<_>>().into_iter().rev()
    }
}

impl<I: Iterator> ReversedBy for I {}

#[test]
fn messages_between_two_ranks_keep_their_order() {
    let ranks = ranks(2);
    let from: Vec<_> = (0..20).map(|i| buffer(&ranks[0], &[i; 3])).collect();
    let to: Vec<_> = (0..20).map(|_| buffer(&ranks[1], &[99; 3])).collect();
    // Some in one operation, others in several.
    let send = |part: &[Buffer<u32>]| {
        let messages = part.iter().map(|it| Transmission::send(it, 1));
        CollectiveOp::exchange(&ranks[0].communicator, messages).expect("an exchange")
    };
    let receive = |part: &[Buffer<u32>]| {
        let messages = part.iter().map(|it| Transmission::recv(it, 0));
        CollectiveOp::exchange(&ranks[1].communicator, messages).expect("an exchange")
    };
    let mut execs = [
        ranks[0].exec([send(&from[..7]), send(&from[7..])]),
        ranks[1].exec([receive(&to[..1]), receive(&to[1..15]), receive(&to[15..])]),
    ];
    run(&ranks, &mut execs);
    for (i, to) in (0..).zip(&to) {
        assert_eq!(read(&ranks[1], to), [i; 3]);
    }
}

/// Memory that is aligned to its elements alone.
#[test]
fn memory_of_any_alignment() {
    let ranks = ranks(2);
    let values: Vec<u8> = (0..=255).cycle().take(40_000).collect();
    let from = Buffer::from_host(&ranks[0].stream, &values).expect("memory");
    let to = Buffer::<u8>::zeroed(&ranks[1].stream, values.len()).expect("memory");
    ranks[1].stream.synchronize().expect("it is there");
    // SAFETY: all of it lies in the buffers, which live until the launches are over.
    let part = |memory: &Buffer<u8>, start: u64| unsafe {
        RawMemory::device(memory.address() + start, 39_001)
    };
    let raw = |memory: &Buffer<u8>, start| RawElements::<u8>::new(&part(memory, start));
    let from_part = raw(&from, 3).expect("elements");
    let to_part = raw(&to, 5).expect("elements");
    let send = CollectiveOp::send(&ranks[0].communicator, &from_part, 1).expect("a send");
    let recv = CollectiveOp::recv(&ranks[1].communicator, &to_part, 0).expect("a receive");
    run(&ranks, &mut [ranks[0].exec([send]), ranks[1].exec([recv])]);
    let got = to.to_host(&ranks[1].stream).expect("it can be read");
    assert_eq!(got[5..39_006], values[3..39_004]);
    assert_eq!(
        (&got[..5], got[39_006]),
        (&[0; 5][..], 0),
        "nothing else is written"
    );
    let odd = RawElements::<u32>::new(&part(&from, 3));
    assert!(matches!(odd, Err(Error::NotWhole { .. })));
}

#[test]
fn other_counts_than_were_sent_are_reported() {
    let ranks = plain_pair();
    let (from, to) = (buffer(&ranks[0], &[1; 5]), buffer(&ranks[1], &[0; 4]));
    let send = CollectiveOp::send(&ranks[0].communicator, &from, 1).expect("a send");
    let recv = CollectiveOp::recv(&ranks[1].communicator, &to, 0).expect("a receive");
    let mut execs = [ranks[0].exec([send]), ranks[1].exec([recv])];
    for (rank, exec) in ranks.iter().zip(&mut execs) {
        exec.launch(&rank.stream).expect("it can be launched");
    }
    let text = failure(ranks[1].communicator.wait(&ranks[1].stream));
    assert!(
        text.contains("rank 1 came with a message of 4 u32, and rank 0 with a message of 5 u32"),
        "{text}"
    );
    assert_eq!(
        failure(ranks[0].communicator.check()),
        text.replace("rank 1 of 2", "rank 0 of 2")
    );
}

#[test]
fn misuse_is_told() {
    let ranks = plain_pair();
    let memory = buffer(&ranks[0], &[0; 8]);
    let communicator = &ranks[0].communicator;
    let part = |range| memory.slice(range).expect("a part");
    let messages = [
        Transmission::send(&part(0..4), 1),
        Transmission::recv(&part(3..8), 1),
    ];
    let overlap = CollectiveOp::exchange(communicator, messages);
    assert!(matches!(overlap, Err(Error::Overlap { .. })));
    let both_read = [
        Transmission::send(&memory, 1),
        Transmission::send(&memory, 1),
    ];
    CollectiveOp::exchange(communicator, both_read).expect("both read");
    let many = vec![Transmission::send(&memory, 1); 65];
    let many = CollectiveOp::exchange(communicator, many);
    assert!(matches!(
        many,
        Err(Error::OutOfRange {
            end: 65,
            len: 64,
            ..
        })
    ));
    let none = CollectiveOp::exchange(communicator, []).expect("nothing to do");
    let graph = Graph::new(ranks[0].context()).expect("a graph");
    graph.add(none, ()).expect("a node");
    graph
        .instantiate()
        .expect("it can be")
        .launch(&ranks[0].stream)
        .expect("launched");
    ranks[0]
        .communicator
        .wait(&ranks[0].stream)
        .expect("nothing is waited for");
}
