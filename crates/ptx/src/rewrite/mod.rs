//! Kernels that a module has, with a guard, a wait or a trigger in front, as a module of their own.
//!
//! A *guard* is one more parameter, the last, `.param .u64`: the address of a `u32` in device
//! memory. The kernel reads it first, and returns at once where it is 0. A *wait* is
//! `griddepcontrol.wait` before anything else: a launch that may begin before the one ahead of it
//! is over waits there for its end. In a kernel that has both, the wait comes before the flag is
//! read. A *trigger* is `griddepcontrol.launch_dependents` before that: it lets the launch behind
//! begin as soon as all blocks of this one have begun, or are over.
//!
//! The text is edited, not printed anew: what a kernel is made of stays as it was, byte for byte.
//! Edits are a new name, a last parameter, and instructions in front of the first statement that is
//! no declaration. They use names that occur nowhere in the source.
//!
//! A rewritten module has copies of what its kernels use. So a kernel is refused that uses what a
//! second module may not have, such as a variable that is written, or what is not understood: see
//! [`Refusal`].
//!
//! # The flag
//!
//! All threads of the grid read the same word by `ld.volatile.global`. Other code may have written
//! it shortly before, also while the kernel's first threads were already there, so no copy in a
//! cache that is not coherent will do, and the compiler may not move the load. `ld.relaxed.gpu`
//! says the same, but only for targets from `sm_70` on. On those, a volatile load is a relaxed one
//! at least, and on older ones it is all there is. The flag must not change while the kernel
//! starts: threads of a block that read different values would not meet at barriers.

mod refusal;
mod tables;
mod uses;
mod written;

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::sync::Arc;

pub use refusal::{NotCopied, Refusal};
use uses::Uses;

use crate::Errors;
use crate::ast::{Ident, Item};
use crate::parser::{FunctionPlaces, Places, parse_with_places};

/// The most bytes that the parameters of a rewritten kernel take. Some targets allow more.
pub const MOST_PARAMETERS: u64 = 4096;

/// The ISA version that has `griddepcontrol`, and the first architecture that has it.
const WAIT_VERSION: (u32, u32) = (7, 8);
const WAIT_ARCHITECTURE: u32 = 90;

/// Threads of a warp run in step where the target is older, which code may rely on. With a newer
/// target they would not.
const INDEPENDENT_THREADS: u32 = 70;

/// What a rewritten kernel is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rewrite<'a> {
    /// The kernel's name in the source.
    pub kernel: &'a str,
    /// Gives it one more parameter, the address of a `u32`, and returns at once where that is 0.
    pub guard: bool,
    /// Has it wait for the end of launches ahead before it does anything.
    pub wait: bool,
    /// Lets the launch behind begin at once. What that reads of this one's it is to wait for.
    pub trigger: bool,
    /// Its name in the rewritten module: its own, or one that occurs nowhere in the source.
    pub name: &'a str,
}

/// A module whose kernels can be rewritten.
///
/// ```
/// use ptx::rewrite::{Rewrite, Rewriter};
///
/// let rewriter = Rewriter::new(
///     "
///     .version 7.0
///     .target sm_70
///     .address_size 64
///     .visible .entry store(.param .u64 to) {
///         .reg .b64 %p;
///         ld.param.u64 %p, [to];
///         st.global.u32 [%p], 7;
///         ret;
///     }",
/// )?;
/// let guarded = Rewrite {
///     kernel: "store",
///     guard: true,
///     wait: false,
///     trigger: false,
///     name: "store_if",
/// };
/// let text = rewriter.rewrite(&[guarded])?;
/// assert!(text.contains(".entry store_if(.param .u64 to,"));
///
/// let nowhere = Rewrite { kernel: "load", ..guarded };
/// let refusal = rewriter.rewrite(&[nowhere]).unwrap_err();
/// assert_eq!(refusal.to_string(), "the module does not define one kernel `load`");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Rewriter {
    source: Arc<str>,
    version: (u32, u32),
    target: Vec<Ident>,
    address_size: u32,
    items: Vec<Known>,
    by_name: HashMap<Ident, Vec<usize>>,
}

/// What is known of an item.
struct Known {
    places: Places,
    kind: Kind,
    uses: Uses,
}

enum Kind {
    /// A kernel that is defined, the bytes of its parameters, and whether it has any.
    Kernel { bytes: u64, takes_any: bool },
    /// A kernel that is declared.
    KernelDeclaration,
    /// What is kept where it is used.
    Used,
    /// What every module keeps.
    Kept,
    /// What no rewritten module needs.
    Dropped,
}

impl Rewriter {
    /// Reads a module.
    ///
    /// # Errors
    ///
    /// When the source is no PTX.
    pub fn new(source: impl Into<Arc<str>>) -> Result<Rewriter, Errors> {
        let source = source.into();
        let (module, places) = parse_with_places(&source)?;
        let mut by_name: HashMap<Ident, Vec<usize>> = HashMap::new();
        for (index, item) in module.items.iter().enumerate() {
            if let Item::Function(crate::ast::Function { name, .. })
            | Item::Variable(crate::ast::Variable { name, .. })
            | Item::Alias { name, .. } = item
            {
                by_name.entry(name.clone()).or_default().push(index);
            }
        }
        let uses = uses::uses(&module, &by_name);
        let items = module.items.iter().zip(places).zip(uses);
        let items = items.map(|((item, places), uses)| Known {
            places,
            kind: Kind::of(item),
            uses,
        });
        Ok(Rewriter {
            items: items.collect(),
            source,
            version: module.version,
            target: module.target,
            address_size: module.address_size,
            by_name,
        })
    }

    /// The source.
    pub fn source(&self) -> &Arc<str> {
        &self.source
    }

    /// A name that occurs nowhere in the source and begins with `wanted`.
    pub fn unused_name(&self, wanted: &str) -> Ident {
        let mut name = wanted.to_owned();
        while occurs(&self.source, &name) {
            name.push('_');
        }
        name
    }

    /// The text of a module that has these kernels rewritten and all that they use, and nothing
    /// else.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] when one of the kernels cannot be rewritten: the first that is found.
    pub fn rewrite(&self, rewrites: &[Rewrite<'_>]) -> Result<String, Refusal> {
        if self.address_size != 64 {
            let bits = self.address_size;
            return Err(Refusal::AddressSize { bits });
        }
        if self.target.iter().skip(1).any(|option| option == "debug") {
            return Err(Refusal::Debug);
        }
        let mut needed = BTreeSet::new();
        let mut kernels: Vec<(usize, &Rewrite<'_>)> = Vec::new();
        for rewrite in rewrites {
            let kernel = self.kernel(rewrite)?;
            let is_taken = rewrite.name != rewrite.kernel && occurs(&self.source, rewrite.name);
            if is_taken
                || !is_name(rewrite.name)
                || kernels.iter().any(|(_, other)| other.name == rewrite.name)
            {
                let name = rewrite.name.to_owned();
                return Err(Refusal::Name { name });
            }
            self.add_uses(kernel, &mut needed)?;
            kernels.push((kernel, rewrite));
        }
        let mut text = self.header(rewrites.iter().any(|it| it.wait || it.trigger))?;
        let names = self.free_prefix(rewrites);
        // Variables of one declaration are written together, once.
        let mut written = 0;
        for (index, item) in self.items.iter().enumerate() {
            let is_kept = match item.kind {
                Kind::Kept => true,
                Kind::Used => needed.contains(&index),
                Kind::Kernel { .. } | Kind::KernelDeclaration | Kind::Dropped => false,
            };
            let place = &item.places.item;
            if is_kept && written < place.end {
                text.push_str(&self.source[place.clone()]);
                text.push_str("\n\n");
                written = place.end;
            }
            for (_, rewrite) in kernels.iter().filter(|(kernel, _)| *kernel == index) {
                self.write_kernel(&mut text, item, rewrite, &names);
                text.push_str("\n\n");
            }
        }
        Ok(text)
    }

    /// The item that defines the kernel, which can take the parameter of a guard.
    fn kernel(&self, rewrite: &Rewrite<'_>) -> Result<usize, Refusal> {
        let kernel = || rewrite.kernel.to_owned();
        let named = self.by_name.get(rewrite.kernel);
        let mut defined = named
            .into_iter()
            .flatten()
            .filter(|&&index| !matches!(self.items[index].kind, Kind::KernelDeclaration));
        let (Some(&index), None) = (defined.next(), defined.next()) else {
            return Err(Refusal::NoKernel { kernel: kernel() });
        };
        let Kind::Kernel { bytes, .. } = self.items[index].kind else {
            return Err(Refusal::NoKernel { kernel: kernel() });
        };
        let bytes = (bytes.saturating_add(7) / 8 * 8).saturating_add(8);
        if rewrite.guard && bytes > MOST_PARAMETERS {
            return Err(Refusal::Parameters {
                kernel: kernel(),
                bytes,
                most: MOST_PARAMETERS,
            });
        }
        Ok(index)
    }

    /// Adds what item `from` uses, and what that uses in turn.
    fn add_uses(&self, from: usize, needed: &mut BTreeSet<usize>) -> Result<(), Refusal> {
        let mut left = vec![from];
        let mut seen = BTreeSet::new();
        while let Some(index) = left.pop() {
            if !seen.insert(index) {
                continue;
            }
            let uses = &self.items[index].uses;
            if let Some(refusal) = &uses.refusal {
                return Err(refusal.clone());
            }
            for &used in &uses.items {
                if let Some(refusal) = &self.items[used].uses.refusal {
                    return Err(refusal.clone().used_by(|| self.name_of(index)));
                }
                left.push(used);
            }
        }
        needed.extend(seen);
        Ok(())
    }

    /// The name of a function.
    fn name_of(&self, item: usize) -> Ident {
        let function = self.items[item].places.function.as_ref();
        function.map_or_else(Ident::new, |places| {
            self.source[places.name.clone()].to_owned()
        })
    }

    fn header(&self, depends: bool) -> Result<String, Refusal> {
        let (mut version, mut target) = (self.version, self.target.clone());
        if depends {
            match architecture(&target[0]) {
                Some(WAIT_ARCHITECTURE..) => {}
                Some(INDEPENDENT_THREADS..) => target[0] = format!("sm_{WAIT_ARCHITECTURE}"),
                _ => {
                    return Err(Refusal::Target {
                        target: self.target[0].clone(),
                        needs: "one from `sm_70` on",
                    });
                }
            }
            version = version.max(WAIT_VERSION);
        }
        let (major, minor) = version;
        let target = target.join(", ");
        Ok(format!(
            ".version {major}.{minor}\n.target {target}\n.address_size {}\n\n",
            self.address_size
        ))
    }

    /// What the names begin with that the edits bring.
    fn free_prefix(&self, rewrites: &[Rewrite<'_>]) -> Ident {
        let is_free = |prefix: &String| {
            !self.source.contains(prefix.as_str())
                && !rewrites
                    .iter()
                    .any(|rewrite| rewrite.name.contains(prefix.as_str()))
        };
        let mut prefixes = (0u64..).map(|number| format!("guard{number}_"));
        prefixes.find(is_free).expect("the source is finite")
    }

    fn write_kernel(&self, text: &mut String, item: &Known, rewrite: &Rewrite<'_>, names: &str) {
        let Places {
            item: whole,
            function:
                Some(FunctionPlaces {
                    name,
                    params,
                    first_statement: Some(first),
                }),
        } = &item.places
        else {
            unreachable!("a kernel that is defined has a body");
        };
        let source = &*self.source;
        text.push_str(&source[whole.start..name.start]);
        text.push_str(rewrite.name);
        let mut copied = name.end;
        if rewrite.guard {
            let param = format!(".param .u64 {names}flag");
            match (params, &item.kind) {
                (None, _) => _ = write!(text, "({param})"),
                (
                    Some(list),
                    Kind::Kernel {
                        takes_any: true, ..
                    },
                ) => {
                    _ = write!(text, "{},\n\t{param}", &source[copied..list.end]);
                    copied = list.end;
                }
                (Some(list), _) => {
                    _ = write!(text, "{}{param}", &source[copied..list.start]);
                    copied = list.start;
                }
            }
        }
        text.push_str(&source[copied..*first]);
        if rewrite.trigger {
            text.push_str("griddepcontrol.launch_dependents;\n\t");
        }
        if rewrite.wait {
            text.push_str("griddepcontrol.wait;\n\t");
        }
        if rewrite.guard {
            _ = write!(
                text,
                "{{\n\
                 \t.reg .pred %{names}down;\n\
                 \t.reg .b32 %{names}word;\n\
                 \t.reg .b64 %{names}at;\n\
                 \tld.param.u64 %{names}at, [{names}flag];\n\
                 \tcvta.to.global.u64 %{names}at, %{names}at;\n\
                 \tld.volatile.global.u32 %{names}word, [%{names}at];\n\
                 \tsetp.eq.u32 %{names}down, %{names}word, 0;\n\
                 \t@%{names}down ret;\n\
                 \t}}\n\t"
            );
        }
        text.push_str(&source[*first..whole.end]);
    }
}

impl Kind {
    fn of(item: &Item) -> Kind {
        match item {
            Item::Function(function) if function.kernel => match &function.body {
                Some(_) => Kind::Kernel {
                    bytes: function.signature().size,
                    takes_any: !function.params.is_empty(),
                },
                None => Kind::KernelDeclaration,
            },
            Item::Function(_) | Item::Variable(_) | Item::Alias { .. } => Kind::Used,
            // `.loc` in a body names files by number, and strings of this section.
            Item::Pragma(_) | Item::File { .. } => Kind::Kept,
            Item::Section { name, .. } if name == ".debug_str" => Kind::Kept,
            Item::Section { .. } | Item::Loc(_) => Kind::Dropped,
        }
    }
}

impl Refusal {
    /// The same, of what is used by a function, where it does not say yet by which.
    fn used_by(mut self, by: impl FnOnce() -> Ident) -> Refusal {
        if let Refusal::Variable { function, .. } | Refusal::Reference { function, .. } = &mut self
            && function.is_empty()
        {
            *function = by();
        }
        self
    }
}

/// The number in `sm_90`, `sm_90a`, `sm_100f`.
fn architecture(target: &str) -> Option<u32> {
    let number = target.strip_prefix("sm_")?;
    let number = number.trim_end_matches(|c: char| c.is_ascii_lowercase());
    number.parse().ok()
}

fn is_name(text: &str) -> bool {
    let follows = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'$';
    match text.as_bytes() {
        [b'a'..=b'z' | b'A'..=b'Z', rest @ ..] => rest.iter().all(|&c| follows(c)),
        [b'_' | b'$', rest @ ..] => !rest.is_empty() && rest.iter().all(|&c| follows(c)),
        _ => false,
    }
}

/// Whether `name` is a word of the source, in a comment too.
fn occurs(source: &str, name: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || "_$%".contains(c));
    !name.is_empty()
        && source.match_indices(name).any(|(at, _)| {
            let (before, after) = (&source[..at], &source[at + name.len()..]);
            !is_word(before.chars().next_back()) && !is_word(after.chars().next())
        })
}
