//! Random kernels with a guard or a wait in front, beside what they were, on the driver that runs
//! the tests: with the flag up they do the same to every byte, with the flag down nothing.
//!
//! The kernels are those that softcuda's compiler is tried with. One that faults takes its context
//! with it, on a GPU one may hang, and a GPU's compiler may crash. So other processes make and run
//! the cases: where one ends, the next goes on with the case behind.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use cuda_graph::cudarc::driver::{CudaStream, result};
use cuda_graph::{Buffer, Driver, Error, Kernel, Module, testing};
use ptx::ast::{
    AddressBase, Ident, Immediate, Instruction, Item, Operand, Pos, Space, Statement, Type,
    Variable,
};

use super::random::seeds;
use crate::fixture::{context, stream, words};

/// What makes the kernels. Those whose it is use more of it.
#[allow(dead_code)]
#[path = "../../../../softcuda/src/jit/tests/fuzz/modules/mod.rs"]
mod modules;

use modules::{Random, Seeds, loadable, loads_results, straighten, tree};

/// Where a process writes its cases, which is the first to run, and the first not to.
const FOLDER: &str = "CUDA_GRAPH_REWRITTEN";
const FIRST: &str = "CUDA_GRAPH_REWRITTEN_FIRST";
const END: &str = "CUDA_GRAPH_REWRITTEN_END";

/// So many bytes a kernel works on. It is given the address of the middle.
const BYTES: usize = 1 << 15;

/// So many modules are tried for a case.
const TRIES: usize = 4;

/// A process that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What begins a line in which a process says what it does, with the number of the case.
const MARK: &str = "@case ";

/// Random numbers of a case's own.
fn random(case: u64) -> Random {
    Random(0x9E37_79B9_7F4A_7C15_u64.wrapping_add(case << 20))
}

/// What the driver says of a text that it refuses.
fn refusal(text: &str) -> Option<String> {
    match Module::load(&context(), text) {
        Ok(_) => None,
        Err(Error::PtxRefused { log, .. }) => Some(log.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// The text of a case, unless the driver refuses it. Much damage is refused as a whole, so there
/// are several tries.
fn make(case: u64, seeds: &Seeds) -> Option<String> {
    let mut random = random(case);
    let is_damaged = random.below(4) != 0;
    for _ in 0..TRIES {
        let mut module = seeds.module(&mut random).clone();
        if is_damaged {
            tree::damage(&mut random, &mut module, seeds);
        }
        // The first that has kernels for `sm_90`, for which the seeds are.
        module.version = module.version.max((7, 8));
        for item in &mut module.items {
            if let Item::Function(function) = item
                && let Some(body) = &mut function.body
            {
                let mut named = HashSet::new();
                names(body, &mut named);
                define(body, &named);
            }
        }
        let whole = (!is_damaged).then(|| module.to_string());
        straighten(&mut module);
        let module = loadable(module, 5, &refusal);
        let text = module.to_string();
        let is_changed = whole.is_none_or(|whole| whole != text);
        if !(is_changed && loads_results(&module)) && refusal(&text).is_none() {
            return Some(text);
        }
    }
    None
}

/// All names in the instructions of a body.
fn names(body: &mut [Statement], found: &mut HashSet<Ident>) {
    for statement in body {
        match statement {
            Statement::Block(inner) => names(inner, found),
            Statement::Instruction(instruction) => {
                let guard = instruction.guard.iter();
                found.extend(guard.map(|guard| guard.register.clone()));
                for operand in &mut instruction.operands {
                    modules::seeds::walk(operand, &mut |operand| match operand {
                        Operand::Name(name) | Operand::Member(name, _) => {
                            found.insert(name.clone());
                        }
                        Operand::Address(address) => {
                            if let AddressBase::Name(name) = &address.base {
                                found.insert(name.clone());
                            }
                        }
                        _ => {}
                    });
                }
            }
            _ => {}
        }
    }
}

/// Sets registers to 0 where they are declared: a compiler may take anything for one that nobody
/// writes, and another thing for the same kernel with something in front.
fn define(body: &mut Vec<Statement>, named: &HashSet<Ident>) {
    let mut at = 0;
    while at < body.len() {
        let zeros = match &mut body[at] {
            Statement::Block(inner) => {
                define(inner, named);
                Vec::new()
            }
            Statement::Variable(variable) if variable.space == Space::Reg => zeros(variable, named),
            _ => Vec::new(),
        };
        at += 1 + zeros.len();
        body.splice(at - zeros.len()..at - zeros.len(), zeros);
    }
}

/// What sets the registers of a declaration to 0.
fn zeros(variable: &Variable, named: &HashSet<Ident>) -> Vec<Statement> {
    let zero = |name: Ident| {
        let (opcode, modifiers, zero) = match variable.ty {
            Type::F32 => ("mov", vec!["f32"], Immediate::F32(0)),
            Type::F64 => ("mov", vec!["f64"], Immediate::F64(0)),
            ty => {
                let zero = Immediate::Int {
                    bits: 0,
                    signed: true,
                };
                let modifiers = match ty.size() {
                    _ if ty == Type::Pred => vec!["pred"],
                    1 => vec!["u8", "u16"],
                    2 => vec!["b16"],
                    4 => vec!["b32"],
                    8 => vec!["b64"],
                    _ => return None,
                };
                let opcode = if modifiers.len() > 1 { "cvt" } else { "mov" };
                (opcode, modifiers, zero)
            }
        };
        Some(Statement::Instruction(Instruction {
            pos: Pos::default(),
            guard: None,
            opcode: opcode.into(),
            modifiers: modifiers.into_iter().map(Ident::from).collect(),
            operands: vec![Operand::Name(name), Operand::Immediate(zero)],
        }))
    };
    let names: Vec<Ident> = match variable.range {
        Some(count) => (0..count.min(1 << 12))
            .map(|number| format!("{}{number}", variable.name))
            .collect(),
        None => vec![variable.name.clone()],
    };
    let names = names.into_iter().filter(|name| named.contains(name));
    match variable.vector {
        1 => names.filter_map(zero).collect(),
        _ => Vec::new(),
    }
}

/// What processes said, by what they said.
#[derive(Default)]
struct Tally {
    said: BTreeMap<String, u64>,
    /// The last case that was begun, and what was said of it last.
    last: Option<(u64, String)>,
}

impl Tally {
    fn hear(&mut self, line: &str) {
        let (case, said) = line.split_once(' ').expect("a case has words");
        *self.said.entry(said.to_owned()).or_default() += 1;
        self.last = Some((case.parse().expect("a case is a number"), said.to_owned()));
    }

    fn count(&self, said: &str) -> u64 {
        self.said.get(said).copied().unwrap_or(0)
    }
}

/// Runs cases in a process, which writes them to a folder. Returns where to go on, if it ended
/// before the last.
fn run_process(folder: &Path, cases: Range<u64>, tally: &mut Tally) -> Option<u64> {
    let binary = std::env::current_exe().expect("a test has a binary");
    let test = "optimize::rewritten::in_a_process_of_its_own";
    let mut process = Command::new(binary)
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(FOLDER, folder)
        .env(FIRST, cases.start.to_string())
        .env(END, cases.end.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test binary starts");
    let lines = BufReader::new(process.stderr.take().expect("it is piped")).lines();
    let (sender, receiver) = channel();
    let reader = std::thread::spawn(move || {
        let texts = lines.map_while(|line| line.ok());
        texts
            .take_while(|text| sender.send(text.clone()).is_ok())
            .count()
    });
    let mut others = String::new();
    tally.last = None;
    let hangs = loop {
        match receiver.recv_timeout(PATIENCE) {
            Ok(line) => match line.split_once(MARK) {
                Some((_, said)) => tally.hear(said),
                None => others += &(line + "\n"),
            },
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => {
                process.kill().expect("it can be ended");
                break true;
            }
        }
    };
    let status = process.wait().expect("it is over");
    drop(receiver);
    reader.join().expect("it ends");
    let Some((case, said)) = &tally.last else {
        panic!("nothing was run: {others}");
    };
    match &**said {
        "end" if status.success() => None,
        // Whatever becomes of a process that has lost its context.
        "faults" => Some(case + 1),
        "as it is" if hangs => {
            *tally.said.entry("hangs".to_owned()).or_default() += 1;
            Some(case + 1)
        }
        "is made" | "is compiled" if !hangs => {
            *tally
                .said
                .entry("crashes the compiler".to_owned())
                .or_default() += 1;
            Some(case + 1)
        }
        _ => {
            let text = std::fs::read_to_string(folder.join(format!("{case}.ptx")));
            panic!(
                "case {case}, {said} (it hangs: {hangs}): {status}\n{others}\n{}",
                text.unwrap_or_default()
            );
        }
    }
}

#[test]
fn rewritten_kernels_do_the_same() {
    let probe = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry none() { ret; }";
    if let Some(why) = refusal(probe) {
        println!("the kernels are for other devices: {why}");
        return;
    }
    let folder = tempfile::tempdir().expect("there is a folder");
    let cases = seeds(150);
    let count = cases.end - cases.start;
    let mut tally = Tally::default();
    let mut next = Some(cases.start);
    while let Some(first) = next.filter(|first| *first < cases.end) {
        next = run_process(folder.path(), first..cases.end, &mut tally);
    }
    let (refused, crashes) = (tally.count("refused"), tally.count("crashes the compiler"));
    println!("of {count} modules {refused} are refused; {:?}", tally.said);
    assert!(refused * 10 <= count, "{refused} of {count} are refused");
    // The driver for CUDA 13.0 on an H200: 12 of 150.
    assert!(
        crashes * 10 <= count,
        "{crashes} of {count} crash the compiler"
    );
    let compared = tally.count("compared");
    assert!(compared * 4 >= count, "of {count} {compared} were compared");
}

#[test]
#[ignore = "another test runs it in a process of its own"]
fn in_a_process_of_its_own() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    let number = |name| -> u64 {
        let number = std::env::var(name).expect("cases are given");
        number.parse().expect("it is a number")
    };
    let from = Seeds::new(&|_| None);
    let lab = Lab::new();
    for case in number(FIRST)..number(END) {
        say(case, "is made");
        let Some(text) = make(case, &from) else {
            say(case, "refused");
            continue;
        };
        let path = folder.join(format!("{case}.ptx"));
        std::fs::write(path, &text).expect("it can be written");
        if !lab.run(case, &text) {
            return;
        }
    }
    say(number(END), "end");
}

fn say(case: u64, what: &str) {
    eprintln!("{MARK}{case} {what}");
}

/// What kernels run on.
struct Lab {
    stream: Arc<CudaStream>,
    memory: Buffer<u8>,
    flag: Buffer<u32>,
    blocks: [(u32, u32, u32); 3],
}

/// How a launch ends.
#[derive(Debug, PartialEq)]
enum End {
    /// What the memory is then.
    Well(Vec<u8>),
    /// The driver does not launch it.
    Refused,
    /// The context is lost.
    Fault,
}

impl Lab {
    fn new() -> Lab {
        let stream = stream();
        // On a GPU, what several warps write to one place depends on their speed.
        let blocks = match cuda_graph::device(0).expect("there is one").driver() {
            Driver::Software => [(1, 1, 1), (33, 1, 1), (8, 3, 2)],
            _ => [(1, 1, 1), (32, 1, 1), (4, 3, 2)],
        };
        Lab {
            memory: Buffer::zeroed(&stream, BYTES).expect("there is memory"),
            flag: words(&stream, &[0]),
            blocks,
            stream,
        }
    }

    /// Something to pass as a parameter of so many bytes.
    fn argument(&self, random: &mut Random, size: usize) -> Vec<u8> {
        let middle = self.memory.address() + BYTES as u64 / 2;
        let word = match (size, random.below(10)) {
            (8.., 0..8) => middle,
            (8.., 8) => middle + 8 * random.below(100) as u64,
            _ => random.below(40) as u64,
        };
        word.to_le_bytes().into_iter().cycle().take(size).collect()
    }

    fn launch(
        &self,
        kernel: &Kernel,
        block: (u32, u32, u32),
        filled: &[u8],
        values: &[Vec<u8>],
    ) -> End {
        // Some faults are told late.
        if self.memory.copy_from_host(&self.stream, filled).is_err() {
            return End::Fault;
        }
        let mut values = values.to_vec();
        if kernel.parameters().len() > values.len() {
            values.push(self.flag.address().to_le_bytes().to_vec());
        }
        let values = values.iter_mut();
        let mut values: Vec<_> = values.map(|value| value.as_mut_ptr().cast()).collect();
        // SAFETY: the values are as large as the parameters. The driver checks what the kernel
        // touches, or this process alone is lost.
        let launched = unsafe {
            let stream = self.stream.cu_stream();
            result::launch_kernel(kernel.raw(), (1, 1, 1), block, 64, stream, &mut values)
        };
        if launched.is_err() {
            return match self.stream.synchronize() {
                Ok(()) => End::Refused,
                Err(_) => End::Fault,
            };
        }
        match self.memory.to_host(&self.stream) {
            Ok(bytes) => End::Well(bytes),
            Err(_) => End::Fault,
        }
    }

    fn set(&self, value: u32) {
        let set = self.flag.copy_from_host(&self.stream, &[value]);
        set.expect("it is copied");
    }

    /// Runs a case. Returns whether the context is of use still.
    fn run(&self, case: u64, text: &str) -> bool {
        let mut random = random(case ^ (1 << 40));
        let module = Module::load(&context(), text).expect("it was loaded before");
        for name in module.names().expect("the driver tells") {
            say(case, "as it is");
            let Ok(kernel) = module.kernel(&name) else {
                say(case, "too large");
                continue;
            };
            let block = self.blocks[random.below(3)];
            let sizes = kernel.parameters().iter().map(|parameter| parameter.size);
            let values: Vec<_> = sizes.map(|size| self.argument(&mut random, size)).collect();
            let filled: Vec<u8> = (0..BYTES).map(|_| random.next() as u8).collect();
            let was = || self.launch(&kernel, block, &filled, &values);
            let (expected, again) = match was() {
                End::Fault => (End::Fault, End::Fault),
                expected => (expected, was()),
            };
            match (&expected, &again) {
                (End::Fault, _) | (_, End::Fault) => {
                    say(case, "faults");
                    return false;
                }
                (End::Refused, _) => say(case, "not launched"),
                // Clocks, and memory that nobody wrote, give one thing now and another then.
                _ if again != expected => say(case, "unsteady"),
                _ => {
                    for (guard, wait) in [(true, false), (false, true), (true, true)] {
                        say(case, "is compiled");
                        let made = testing::variant(&kernel, &context(), guard, wait);
                        let variant = match made.expect("the driver does") {
                            Ok(variant) => variant,
                            Err(why) => {
                                let is_taken = !why.contains("the driver does not take");
                                assert!(is_taken, "`{name}`: {why}");
                                say(case, "has no variant");
                                continue;
                            }
                        };
                        say(case, if guard { "with a guard" } else { "with a wait" });
                        let is = || self.launch(&variant, block, &filled, &values);
                        self.set(1 << random.below(32));
                        let first = is();
                        assert!(first != End::Fault, "{variant:?} faults");
                        let differs = first != expected
                            && (0..4).all(|_| was() == expected)
                            && is() != expected;
                        assert!(!differs, "{variant:?} does something else");
                        self.set(0);
                        let down = !guard || is() == End::Well(filled.clone());
                        assert!(down, "{variant:?} runs with its flag down");
                        say(case, "compared");
                    }
                }
            }
        }
        true
    }
}
