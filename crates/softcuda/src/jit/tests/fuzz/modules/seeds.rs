//! What the damage starts from: the PTX crate's corpus and the project's kernels, function by
//! function, and modules that are written here.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use ptx::ast::{
    Function, Ident, Instruction, Item, Linkage, Module, Operand, Pos, Statement, Type, Variable,
};

use super::{Random, Refusal, forms};

/// Texts up to this length are damaged often, longer ones now and then.
const SHORT: usize = 5000;
/// Longer texts take too long to compile.
const LONGEST: usize = 60_000;

/// Instructions and modules to damage, and to damage with.
pub struct Seeds {
    modules: Vec<Module>,
    texts: Vec<String>,
    short: Vec<usize>,
    /// Instructions to insert, with the types of their registers.
    pub instructions: Vec<(Instruction, HashMap<Ident, Type>)>,
    /// The modifiers that each opcode was seen with.
    pub modifiers: BTreeMap<Ident, Vec<Ident>>,
}

impl Seeds {
    /// Reads them, without the instructions that are refused.
    pub fn new(refusal: &Refusal<'_>) -> Seeds {
        let mut seeds = Seeds {
            modules: vec![],
            texts: vec![],
            short: vec![],
            instructions: vec![],
            modifiers: BTreeMap::new(),
        };
        for source in sources() {
            let Ok(module) = ptx::parse(&source) else {
                panic!("a seed does not parse:\n{source}");
            };
            for slice in slices(&module) {
                seeds.add(loadable(slice, 40, refusal));
            }
        }
        let types: HashMap<Ident, Type> = HashMap::new();
        for instruction in forms::instructions() {
            seeds.instructions.push((instruction, types.clone()));
        }
        for (instruction, _) in &seeds.instructions {
            let known = seeds
                .modifiers
                .entry(instruction.opcode.clone())
                .or_default();
            for modifier in &instruction.modifiers {
                if !known.contains(modifier) {
                    known.push(modifier.clone());
                }
            }
        }
        seeds
    }

    fn add(&mut self, module: Module) {
        let text = module.to_string();
        if text.len() > LONGEST || self.texts.contains(&text) {
            return;
        }
        if text.len() <= SHORT {
            self.short.push(self.modules.len());
        }
        for item in &module.items {
            let Item::Function(function) = item else {
                continue;
            };
            let Some(body) = &function.body else {
                continue;
            };
            let mut types = HashMap::new();
            registers(body, &mut types);
            let mut found = vec![];
            instructions(body, &mut found);
            for instruction in found {
                self.instructions.push((instruction.clone(), types.clone()));
            }
        }
        self.modules.push(module);
        self.texts.push(text);
    }

    fn pick(&self, random: &mut Random) -> usize {
        match random.below(50) {
            0 => random.below(self.modules.len()),
            _ => self.short[random.below(self.short.len())],
        }
    }

    /// Some module.
    pub fn module(&self, random: &mut Random) -> &Module {
        &self.modules[self.pick(random)]
    }

    /// Some module's text.
    pub fn text(&self, random: &mut Random) -> &str {
        &self.texts[self.pick(random)]
    }

    /// All modules.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }
}

/// The files of a folder that are PTX, in the order of their names.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
        .collect();
    files.sort();
    files
}

fn sources() -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this crate lies in a folder");
    let mut paths = files(&crates.join("ptx/tests/corpus"));
    assert!(!paths.is_empty(), "the PTX crate has a corpus");
    paths.extend(files(&crates.join("../kernels/ptx")));
    let mut sources = vec![include_str!("written.ptx").to_owned()];
    for path in paths {
        sources.push(std::fs::read_to_string(&path).expect("PTX is text"));
    }
    sources
}

/// A module for each function that has a body, with all that it names, and that names, without
/// debug data.
fn slices(module: &Module) -> Vec<Module> {
    let name = |item: &Item| match item {
        Item::Variable(variable) => Some(variable.name.clone()),
        Item::Function(function) => Some(function.name.clone()),
        Item::Alias { name, .. } => Some(name.clone()),
        _ => None,
    };
    let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, item) in module.items.iter().enumerate() {
        if let Some(name) = name(item) {
            by_name.entry(name).or_default().push(at);
        }
    }
    let words: Vec<Vec<usize>> = module
        .items
        .iter()
        .map(|item| {
            let text = item.to_string();
            let mut named: Vec<usize> = text
                .split(|c: char| !(c.is_alphanumeric() || "_$%".contains(c)))
                .filter_map(|word| by_name.get(word))
                .flatten()
                .copied()
                .collect();
            named.sort_unstable();
            named.dedup();
            named
        })
        .collect();
    let mut slices = vec![];
    for (at, item) in module.items.iter().enumerate() {
        if !matches!(item, Item::Function(function) if function.body.is_some()) {
            continue;
        }
        let mut wanted = HashSet::from([at]);
        let mut work = vec![at];
        while let Some(at) = work.pop() {
            for named in &words[at] {
                if wanted.insert(*named) {
                    work.push(*named);
                }
            }
        }
        let mut items: Vec<Item> = module
            .items
            .iter()
            .enumerate()
            .filter(|(at, _)| wanted.contains(at))
            .map(|(_, item)| item.clone())
            .collect();
        if let Item::Function(function) = item
            && !function.kernel
        {
            items.push(Item::Function(caller(function)));
        }
        slices.push(Module {
            version: module.version,
            target: vec!["sm_90a".into()],
            address_size: 64,
            items,
        });
    }
    slices
}

/// A kernel that calls a function: only what a kernel reaches is compiled.
fn caller(function: &Function) -> Function {
    let mut body = vec![];
    let mut list = |variables: &[Variable], prefix: &str| {
        let mut names = vec![];
        for (n, variable) in variables.iter().enumerate() {
            let name = format!("{prefix}{n}");
            body.push(Statement::Variable(Variable {
                name: name.clone(),
                ptr: None,
                ..variable.clone()
            }));
            names.push(Operand::Name(name));
        }
        Operand::List(names)
    };
    let returns = list(&function.returns, "returned_");
    let params = list(&function.params, "passed_");
    let callee = Operand::Name(function.name.clone());
    let operands = match function.returns.is_empty() {
        true => vec![callee, params],
        false => vec![returns, callee, params],
    };
    body.push(Statement::Instruction(Instruction {
        pos: Pos::default(),
        guard: None,
        opcode: "call".into(),
        modifiers: vec!["uni".into()],
        operands,
    }));
    Function {
        pos: Pos::default(),
        linkage: Linkage::Visible,
        kernel: true,
        attributes: vec![],
        name: "caller".into(),
        returns: vec![],
        params: vec![],
        directives: vec![],
        body: Some(body),
    }
}

/// The module without the instructions that are refused, as far as so many rounds tell: one of them
/// would hide all others.
pub fn loadable(module: Module, rounds: u32, refusal: &Refusal<'_>) -> Module {
    let mut module = module;
    for _ in 0..rounds {
        let text = module.to_string();
        let Some(log) = refusal(&text) else {
            break;
        };
        let lines: HashSet<u32> = log
            .split("line ")
            .skip(1)
            .filter_map(|rest| {
                rest.split(|c: char| !c.is_ascii_digit())
                    .next()?
                    .parse()
                    .ok()
            })
            .collect();
        let Ok(parsed) = ptx::parse(&text) else {
            break;
        };
        module = parsed;
        let mut removed = false;
        for item in &mut module.items {
            if let Item::Function(function) = item
                && let Some(body) = &mut function.body
            {
                remove(body, &lines, &mut removed);
            }
        }
        if !removed {
            break;
        }
    }
    module
}

fn remove(body: &mut Vec<Statement>, lines: &HashSet<u32>, removed: &mut bool) {
    body.retain_mut(|statement| match statement {
        Statement::Instruction(instruction) => {
            let bad = lines.contains(&instruction.pos.line);
            *removed |= bad;
            !bad
        }
        Statement::Block(inner) => {
            remove(inner, lines, removed);
            true
        }
        _ => true,
    });
}

/// The declared registers of a body and their types; a range by its prefix and by its first
/// elements.
pub fn registers(body: &[Statement], found: &mut HashMap<Ident, Type>) {
    for statement in body {
        match statement {
            Statement::Variable(variable) if variable.space == ptx::ast::Space::Reg => {
                match variable.range {
                    Some(count) => {
                        for n in 0..count.min(64) {
                            found.insert(format!("{}{n}", variable.name), variable.ty);
                        }
                    }
                    None => drop(found.insert(variable.name.clone(), variable.ty)),
                }
            }
            Statement::Block(inner) => registers(inner, found),
            _ => {}
        }
    }
}

fn instructions<'a>(body: &'a [Statement], found: &mut Vec<&'a Instruction>) {
    for statement in body {
        match statement {
            Statement::Instruction(instruction) => found.push(instruction),
            Statement::Block(inner) => instructions(inner, found),
            _ => {}
        }
    }
}

/// Calls `each` with every operand of an operand, itself last.
pub fn walk(operand: &mut Operand, each: &mut impl FnMut(&mut Operand)) {
    match operand {
        Operand::Vector(list) | Operand::List(list) => {
            for operand in list {
                walk(operand, each);
            }
        }
        Operand::Pair(a, b) => {
            walk(a, each);
            walk(b, each);
        }
        Operand::Not(inner) | Operand::Negate(inner) => walk(inner, each),
        Operand::Address(address) => {
            for operand in &mut address.rest {
                walk(operand, each);
            }
        }
        _ => {}
    }
    each(operand);
}
