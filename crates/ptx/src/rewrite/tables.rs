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

/// Whether drivers define the function.
pub(super) fn is_system(function: &str) -> bool {
    SYSTEM.binary_search(&function).is_ok()
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
    fn functions_are_sorted() {
        assert!(SYSTEM.is_sorted());
        assert!(READING.iter().all(|function| is_system(function)));
    }
}
