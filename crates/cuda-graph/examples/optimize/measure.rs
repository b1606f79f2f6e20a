//! One graph as the driver gets it plain, and with passes: what launches cost, in turns, and
//! whether both leave the same bytes.

use std::time::Instant;

use cuda_graph::{Exec, Graph, InstantiateOptions, Optimize, Report, Result};

use crate::case::{Case, Setting};

/// How often a graph is launched before its bytes are compared.
const LAUNCHES: usize = 3;

/// An executable, and what its launches cost in µs.
struct Contender {
    exec: Exec,
    submit: Vec<f64>,
    total: Vec<f64>,
    /// The driver allows one executable of a graph with loops, so each has its own definition.
    _graph: Graph,
}

impl Contender {
    fn new(case: &Case, optimize: Optimize) -> Result<Contender> {
        let options = InstantiateOptions {
            optimize,
            ..InstantiateOptions::default()
        };
        let graph = (case.define)()?;
        Ok(Contender {
            exec: graph.instantiate_with(&options)?,
            submit: Vec::new(),
            total: Vec::new(),
            _graph: graph,
        })
    }

    /// What is in memory after launches from the start.
    fn bytes(&mut self, setting: &Setting, case: &Case) -> Result<Vec<u8>> {
        case.memory.reset()?;
        for _ in 0..LAUNCHES {
            self.exec.launch(&setting.stream)?;
        }
        case.memory.bytes()
    }

    fn time(&mut self, setting: &Setting) -> Result<()> {
        setting.stream.synchronize()?;
        let start = Instant::now();
        self.exec.launch(&setting.stream)?;
        let submit = start.elapsed();
        setting.stream.synchronize()?;
        let total = start.elapsed();
        self.submit.push(submit.as_secs_f64() * 1e6);
        self.total.push(total.as_secs_f64() * 1e6);
        Ok(())
    }
}

/// The median, and 0 of no values.
pub fn median(of: &[f64]) -> f64 {
    let mut of = of.to_vec();
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(0.0)
}

/// What was measured, plain and with passes.
pub struct Measured {
    submit: (f64, f64),
    total: (f64, f64),
    /// What the passes did, if any ran.
    report: Option<Report>,
    /// Why the bytes are not right, if so.
    pub fault: Option<&'static str>,
}

/// Compares what both leave, and that they do something.
fn fault(
    setting: &Setting,
    case: &Case,
    [plain, optimized]: &mut [Contender; 2],
) -> Result<Option<&'static str>> {
    case.memory.reset()?;
    let before = case.memory.bytes()?;
    let expected = plain.bytes(setting, case)?;
    if expected == before {
        return Ok(Some("the plain graph changed no bytes"));
    }
    let is_same = optimized.bytes(setting, case)? == expected;
    Ok((!is_same).then_some("the bytes differ"))
}

pub fn measure(
    setting: &Setting,
    case: &Case,
    optimize: Optimize,
    repeats: usize,
) -> Result<Measured> {
    let mut both = [
        Contender::new(case, Optimize::NONE)?,
        Contender::new(case, optimize)?,
    ];
    let mut found = fault(setting, case, &mut both)?;
    for repeat in 0..repeats {
        // Whoever is first after another pays for cold caches, so each is first in turn.
        for turn in 0..2 {
            both[(repeat + turn) % 2].time(setting)?;
        }
    }
    if found.is_none() {
        found = fault(setting, case, &mut both)?;
    }
    let [plain, optimized] = &both;
    Ok(Measured {
        submit: (median(&plain.submit), median(&optimized.submit)),
        total: (median(&plain.total), median(&optimized.total)),
        report: optimized.exec.report().cloned(),
        fault: found,
    })
}

pub fn print_header() {
    let columns = ["submit", "passes", "ratio", "in all", "passes", "ratio"];
    print!("{:16}", "");
    columns.iter().for_each(|column| print!("{column:>11}"));
    println!();
}

fn cells((plain, passes): (f64, f64)) -> String {
    format!("{plain:>11.3}{passes:>11.3}{:>11.3}", passes / plain)
}

impl Measured {
    pub fn print(&self, name: &str, case: &Case) {
        println!("\n{}", case.title);
        print!("{name:16}{}{}", cells(self.submit), cells(self.total));
        println!("  {}", self.fault.unwrap_or("same bytes"));
        if let Some(turns) = case.turns {
            let each = |total| total / f64::from(turns);
            let per_turn = (each(self.total.0), each(self.total.1));
            println!("{:16}{:33}{}", "  each turn", "", cells(per_turn));
        }
        let report = match &self.report {
            Some(report) => line(report),
            None => "no pass ran".into(),
        };
        println!("  {report}");
    }
}

/// A report in a line: what passes did, and what they left.
fn line(report: &Report) -> String {
    if let Some(left) = &report.left {
        return format!("left as it is: {left}");
    }
    let (nodes, edges) = (report.nodes, report.edges);
    let mut line = format!(
        "nodes {} to {}, edges {} to {}",
        nodes.0, nodes.1, edges.0, edges.1
    );
    for pass in &report.passes {
        for (what, count) in &pass.did {
            line += &format!("; {count} {what}");
        }
        for left in &pass.left {
            line += &format!("; left by {:?}: {left}", pass.pass);
        }
    }
    match report.has_changed() {
        true => line + &format!("; {:.1} µs expected", report.gain()),
        false => line + "; nothing changed",
    }
}
