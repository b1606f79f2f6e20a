//! Names of PTX and of CUDA that say what a kernel does.

/// Functions that drivers define, or resolve by themselves when they load a module. None of them
/// keeps anything for a module. Sorted.
const SYSTEM: &[&str] = &[
    "__assertfail",
    "cudaGraphSetConditional",
    "free",
    "malloc",
    "vprintf",
];

/// Those of them that do no more to what their arguments point to than to read it.
pub(super) const READING: &[&str] = &["__assertfail", "vprintf"];

/// The instructions that are understood: what each does is the same in any module that has the
/// same variables. Sorted.
const INSTRUCTIONS: &[&str] = &[
    "abs",
    "activemask",
    "add",
    "addc",
    "alloca",
    "and",
    "applypriority",
    "atom",
    "bar",
    "barrier",
    "bfe",
    "bfi",
    "bfind",
    "bmsk",
    "bra",
    "brev",
    "brkpt",
    "brx",
    "call",
    "clz",
    "cnot",
    "copysign",
    "cos",
    "cp",
    "createpolicy",
    "cvt",
    "cvta",
    "discard",
    "div",
    "dp2a",
    "dp4a",
    "elect",
    "ex2",
    "exit",
    "fence",
    "fma",
    "fns",
    "isspacep",
    "istypep",
    "ld",
    "ldmatrix",
    "ldu",
    "lg2",
    "lop3",
    "mad",
    "mad24",
    "madc",
    "match",
    "max",
    "mbarrier",
    "membar",
    "min",
    "mma",
    "mov",
    "movmatrix",
    "mul",
    "mul24",
    "multimem",
    "nanosleep",
    "neg",
    "not",
    "or",
    "pmevent",
    "popc",
    "prefetch",
    "prefetchu",
    "prmt",
    "rcp",
    "red",
    "redux",
    "rem",
    "ret",
    "rsqrt",
    "sad",
    "selp",
    "set",
    "setmaxnreg",
    "setp",
    "shf",
    "shfl",
    "shl",
    "shr",
    "sin",
    "slct",
    "sqrt",
    "st",
    "stackrestore",
    "stacksave",
    "stmatrix",
    "sub",
    "subc",
    "suld",
    "suq",
    "sured",
    "sust",
    "szext",
    "tanh",
    "tcgen05",
    "tensormap",
    "testp",
    "tex",
    "tld4",
    "trap",
    "txq",
    "vabsdiff",
    "vabsdiff2",
    "vabsdiff4",
    "vadd",
    "vadd2",
    "vadd4",
    "vavrg2",
    "vavrg4",
    "vmad",
    "vmax",
    "vmax2",
    "vmax4",
    "vmin",
    "vmin2",
    "vmin4",
    "vote",
    "vset",
    "vset2",
    "vset4",
    "vshl",
    "vshr",
    "vsub",
    "vsub2",
    "vsub4",
    "wgmma",
    "wmma",
    "xor",
];

/// Instructions whose result holds an address only if an operand did. Sorted.
const COMPUTING: &[&str] = &[
    "add", "addc", "and", "bfe", "bfi", "cvt", "cvta", "lop3", "mad", "mad24", "madc", "max",
    "min", "mov", "mul", "mul24", "not", "or", "prmt", "sad", "selp", "shf", "shl", "shr", "slct",
    "sub", "subc", "szext", "xor",
];

/// Whether drivers define the function.
pub(super) fn is_system(function: &str) -> bool {
    SYSTEM.binary_search(&function).is_ok()
}

/// Whether the instruction is understood.
pub(super) fn is_instruction(opcode: &str) -> bool {
    INSTRUCTIONS.binary_search(&opcode).is_ok()
}

/// Whether the instruction makes its first operand of the others, and does nothing else.
pub(super) fn only_computes(opcode: &str) -> bool {
    COMPUTING.binary_search(&opcode).is_ok()
}

/// Whether the directive of a function says that it runs in clusters.
pub(super) fn is_cluster_directive(name: &str) -> bool {
    name.contains("cluster")
}

/// Whether the instruction is about clusters.
pub(super) fn is_cluster_instruction(opcode: &str, modifiers: &[String]) -> bool {
    let is_about = |modifier: &String| modifier.contains("cluster") || modifier == "cta_group::2";
    matches!(opcode, "mapa" | "getctarank" | "clusterlaunchcontrol")
        || modifiers.iter().any(is_about)
}

/// Whether the special register is about clusters.
pub(super) fn is_cluster_register(name: &str) -> bool {
    name.starts_with("%cluster") || name.starts_with("%ncluster") || name == "%is_explicit_cluster"
}

/// Whether the special register is set by the driver for cooperative launches. NVIDIA's compilers
/// find the barrier of the grid there.
pub(super) fn is_grid_register(name: &str) -> bool {
    name.strip_prefix("%envreg")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
}

/// Whether the function is one by which older compilers synchronize the grid.
pub(super) fn is_grid_function(name: &str) -> bool {
    name.starts_with("cudaCG") || name.starts_with("__cudaCG")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted() {
        assert!(
            [SYSTEM, INSTRUCTIONS, COMPUTING]
                .iter()
                .all(|table| table.is_sorted())
        );
    }

    #[test]
    fn what_computes_is_understood() {
        assert!(COMPUTING.iter().all(|opcode| is_instruction(opcode)));
        assert!(READING.iter().all(|function| is_system(function)));
    }
}
