//! Updates in place of launches with arguments of all kinds.

use cuda_graph::{Arguments, Graph, Kernel, KernelArgument, KernelOp, RawMemory, Recorder, Replay};

use super::fills_model::Random;
use crate::fixture::{Watch, context, stream, words};

fn graph() -> Graph {
    Graph::new(&context()).unwrap()
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Eight(u32, u32);
// SAFETY: plain data.
unsafe impl cuda_graph::cudarc::driver::DeviceRepr for Eight {}

#[test]
fn updates_give_back_arguments_of_every_kind() {
    let mut text = String::from(".version 7.0\n.target sm_70\n.address_size 64\n");
    for count in 1..=7 {
        let more: String = (1..count).map(|n| format!(", .param .u64 a{n}")).collect();
        text += &format!(".visible .entry of_{count}(.param .u64 to{more})\n{{\n");
        text += ".reg .b64 %p, %v, %w;\nld.param.u64 %p, [to];\nmov.u64 %v, 0;\n";
        for n in 1..count {
            text += &format!("ld.param.u64 %w, [a{n}];\nadd.u64 %v, %v, %w;\n");
        }
        text += "st.global.u64 [%p], %v;\nret;\n}\n";
    }
    let module = context()
        .load_module(cuda_graph::cudarc::nvrtc::Ptx::from_src(text))
        .unwrap();
    let s = stream();
    let buffers: Vec<_> = (0..3).map(|_| words(&s, &[0; 4])).collect();
    let mut random = Random(77);
    for _ in 0..300 {
        let count = 1 + random.next(7);
        let kernels = [0, 1]
            .map(|_| Kernel::new(&module.load_function(&format!("of_{count}")).unwrap()).unwrap());
        let op = |random: &mut Random| {
            let mut all = Arguments::default();
            let mut sum = 0u64;
            let add = |all: &mut Arguments, kind: usize, random: &mut Random| {
                let value = random.next(1 << 30) as u64;
                let buffer = &buffers[random.next(3)];
                match kind {
                    0 => KernelArgument::add_to(buffer, all),
                    1 => all.value(&buffer.address()),
                    2 => all.value(&value),
                    3 => all.value(&(value as f64)),
                    4 => all.value(&Eight(value as u32, 7)),
                    5 => all.value(&(value as i64)),
                    _ => {
                        KernelArgument::add_to(buffer, all);
                    }
                }
                let bytes = all.get(all.len() - 1).unwrap();
                u64::from_le_bytes(bytes.try_into().unwrap())
            };
            let to = add(&mut all, random.next(2), random);
            for _ in 1..count {
                let kind = random.next(7);
                sum = sum.wrapping_add(add(&mut all, kind, random));
            }
            for _ in 0..random.next(3) {
                all.keep(std::sync::Arc::new(buffers[random.next(3)].clone()));
            }
            let kernel = &kernels[random.next(2)];
            let mut config = crate::fixture::one();
            config.block_dim.0 = 1 + random.next(3) as u32;
            // SAFETY: it writes eight bytes of a buffer.
            let op = unsafe { KernelOp::new(kernel, config, all) }.unwrap();
            let op = if random.next(8) == 0 {
                op.label("it")
            } else {
                op
            };
            (op, to, sum)
        };
        let graph = graph();
        let node = graph.add(op(&mut random).0, ()).unwrap();
        let mut exec = graph.instantiate().unwrap();
        for _ in 0..8 {
            let (op, to, sum) = op(&mut random);
            exec.update(node, &op).unwrap();
            let now = exec.op(node).unwrap();
            assert_eq!(format!("{now:?}"), format!("{op:?}"));
            assert_eq!(now.label_text(), op.label_text());
            assert_eq!(now.location(), op.location());
            for index in 0..count {
                assert_eq!(now.arguments().get(index), op.arguments().get(index));
            }
            for buffer in &buffers {
                buffer.copy_from_host(&s, &[0; 4]).unwrap();
            }
            exec.launch(&s).unwrap();
            let buffer = buffers.iter().find(|it| it.address() == to).unwrap();
            let is = buffer.to_host(&s).unwrap();
            assert_eq!(u64::from(is[0]) | u64::from(is[1]) << 32, sum);
        }
    }
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Four(u16, u16);
// SAFETY: plain data.
unsafe impl cuda_graph::cudarc::driver::DeviceRepr for Four {}

#[test]
fn a_short_update_behind_a_long_one() {
    let a = words(&stream(), &[0]);
    let kernel = crate::fixture::kernel("store");
    let number = |value: u32| {
        // SAFETY: `store` writes one word.
        unsafe { KernelOp::new(&kernel, crate::fixture::one(), (&a, value)) }.unwrap()
    };
    // SAFETY: as above.
    let plain = unsafe { KernelOp::new(&kernel, crate::fixture::one(), (&a, Four(1, 2))) };
    let graph = graph();
    let node = graph.add(number(1), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.update(node, number(2)).unwrap();
    exec.update(node, plain.unwrap()).unwrap();
    exec.update(node, number(3)).unwrap();
    assert_eq!(
        format!("{:?}", exec.op(node).unwrap().arguments()),
        format!("{:?}", number(3).arguments())
    );
}

#[test]
fn a_replay_tells_operations_apart_after_updates() {
    let s = stream();
    let (a, b) = (words(&s, &[0]), words(&s, &[0]));
    let kernel = crate::fixture::kernel("add");
    let (one, c) = (crate::fixture::one(), a.address());
    // SAFETY: `add` takes two words, which live.
    let first = |from: u64| unsafe { KernelOp::new(&kernel, one, (&a, from)) }.unwrap();
    // SAFETY: as above.
    let second = || unsafe { KernelOp::new(&kernel, one, (c, &a)) }.unwrap();
    let graph = graph();
    let node = graph.add(first(c), ()).unwrap();
    let mut exec = graph.instantiate().unwrap();
    exec.update(node, first(c)).unwrap();
    exec.update(node, second()).unwrap();
    exec.update(node, first(b.address())).unwrap();
    let mut told = Vec::new();
    for op in [first(b.address()), exec.op(node).unwrap()] {
        let (watch, watched) = Watch::new();
        // SAFETY: `b` lives.
        let raw =
            unsafe { RawMemory::device(b.address(), 4) }.owned_by(std::sync::Arc::new(watched));
        // SAFETY: as above.
        let other = unsafe { KernelOp::new(&kernel, one, (c, &raw)) }.unwrap();
        drop(raw);
        let mut replay = Replay::new(&context()).unwrap();
        let mut next = vec![op.clone(), op.clone(), op.clone(), other];
        next.reverse();
        while let Some(op) = next.pop() {
            let step =
                |r: &mut dyn Recorder| -> cuda_graph::Result<()> { r.record(op.clone()).map(drop) };
            replay.call(&s, step).unwrap();
        }
        s.synchronize().unwrap();
        cuda_graph::testing::settle();
        told.push((watch.is_dropped(), format!("{:?}", replay.counters())));
    }
    assert!(!told[0].0, "the control");
    assert!(
        !told[1].0,
        "Replay does not hold what the last operation uses"
    );
}
