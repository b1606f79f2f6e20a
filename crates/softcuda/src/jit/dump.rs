//! What the compiler makes of a function, on request: `SOFTCUDA_DUMP=dir` writes, for each function
//! compiled, its checked PTX, how groups of threads run it, Cranelift's IR as lowered and as
//! optimized, and the machine code.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use cranelift_codegen::CompiledCode;
use cranelift_codegen::ir;

use super::program::{Program, Step};
use super::spmd::Plan;

/// Whether functions that are compiled are dumped.
pub(super) fn on() -> bool {
    folder().is_some()
}

/// Where dumps go, if anywhere.
fn folder() -> Option<&'static PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = PathBuf::from(std::env::var_os("SOFTCUDA_DUMP")?);
            match std::fs::create_dir_all(&folder) {
                Ok(()) => Some(folder),
                Err(error) => {
                    tracing::warn!("SOFTCUDA_DUMP={}: {error}", folder.display());
                    None
                }
            }
        })
        .as_ref()
}

/// The dump of one function.
pub(super) struct Dump {
    stem: Option<PathBuf>,
}

impl Dump {
    /// Of what nobody wants to see.
    pub const NONE: Dump = Dump { stem: None };

    /// The dump of a function, begun with its checked PTX.
    pub fn of(program: &Program, function: u32) -> Dump {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let Some(folder) = folder() else {
            return Dump::NONE;
        };
        let function = &program.functions[function as usize];
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name: String = function
            .name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .take(80)
            .collect();
        let dump = Dump {
            stem: Some(folder.join(format!("{number:04}-{name}"))),
        };
        let mut text = format!("{} ({:?})\n", function.name, function.signature);
        if let Some(body) = &function.body {
            let _ = writeln!(text, "registers: {:?}", body.tables.registers);
            for step in &body.steps {
                let _ = match step {
                    Step::Label(label) => writeln!(text, "label {label}:"),
                    Step::Instruction(instruction) => writeln!(
                        text,
                        "{:5}: {:?} {:?}",
                        instruction.pos.line, instruction.guard, instruction.operation
                    ),
                };
            }
        }
        dump.write("ptx", &text);
        dump
    }

    /// Whether there is one.
    pub fn wanted(&self) -> bool {
        self.stem.is_some()
    }

    /// How groups of threads run it.
    pub fn planned(&self, plan: &Plan) {
        self.write("plan", plan.to_string());
    }

    /// The IR before optimization.
    pub fn lowered(&self, function: &ir::Function) {
        if self.wanted() {
            self.write("lowered.clif", function.display().to_string());
        }
    }

    /// The IR after it, and the machine code.
    pub fn compiled(&self, function: &ir::Function, code: &CompiledCode) {
        if self.wanted() {
            self.write("optimized.clif", function.display().to_string());
            let code_bytes = code.code_buffer();
            let code = format!(
                "{} bytes\n{}",
                code_bytes.len(),
                code.vcode.as_deref().unwrap_or("")
            );
            self.write("code", &code);
            self.write("bin", code_bytes);
        }
    }

    fn write(&self, kind: &str, text: impl AsRef<[u8]>) {
        let Some(stem) = &self.stem else {
            return;
        };
        let path = stem.with_extension(kind);
        if let Err(error) = std::fs::write(&path, text) {
            tracing::warn!("{}: {error}", path.display());
        }
    }
}
