//! Forms of instructions, well formed by construction: what the tree's damage inserts, beside what
//! the corpus has.
//!
//! A line is an opcode with its modifiers, where `[a b]` stands for each of its words (`-` for
//! none), then operands: `$` a register of the type that the modifiers end with, `^` of the one
//! before it, `w` of twice its width, `p` a predicate, `h` 16 bits, `r` 32 bits, `q` 64 bits, `i` a
//! small number, `a` an address; brackets, braces and bars as in PTX.

use ptx::ast::{Instruction, Item, Statement};

const FORMS: &str = "
[add sub].[u16 u32 u64 s16 s32 s64 u16x2 s16x2] $,$,$
[add sub].sat.s32 $,$,$
[add sub addc subc].[cc -].[u32 s32 u64 s64] $,$,$
mul.[lo hi].[u16 u32 u64 s16 s32 s64] $,$,$
mul.wide.[u16 u32 s16 s32] w,$,$
mad.[lo hi].[u16 u32 u64 s16 s32 s64] $,$,$,$
mad.wide.[u16 u32 s16 s32] w,$,$,w
mad.hi.sat.s32 $,$,$,$
[mad madc].[lo hi].[cc -].[u32 s32 u64 s64] $,$,$,$
mul24.[lo hi].[u32 s32] $,$,$
mad24.[lo hi].[u32 s32] $,$,$,$
mad24.hi.sat.s32 $,$,$,$
sad.[u16 u32 u64 s16 s32 s64] $,$,$,$
[div rem min max].[u16 u32 u64 s16 s32 s64] $,$,$
[abs neg].[s16 s32 s64] $,$
[min max].[u16x2 s16x2] $,$,$
[min max].relu.[s32 s16x2] $,$,$
[and or xor].[b16 b32 b64 pred] $,$,$
[not cnot].[b16 b32 b64] $,$
not.pred p,p
[shl shr].[b16 b32 b64] $,$,r
shr.[u16 u32 u64 s16 s32 s64] $,$,r
shf.[l r].[wrap clamp].b32 r,r,r,r
lop3.b32 r,r,r,r,i
lop3.[and or].b32 r|p,r,r,r,i,p
[popc clz].[b32 b64] r,$
bfind.[shiftamt -].[u32 u64 s32 s64] r,$
brev.[b32 b64] $,$
fns.b32 r,r,r,r
bfe.[u32 u64 s32 s64] $,$,r,r
bfi.[b32 b64] $,$,$,r,r
szext.[wrap clamp].[u32 s32] $,$,r
bmsk.[wrap clamp].b32 r,r,r
prmt.b32.[f4e b4e rc8 ecl ecr rc16 -] r,r,r,r
dp4a.[u32 s32].[u32 s32] r,r,r,r
dp2a.[lo hi].[u32 s32].[u32 s32] r,r,r,r
setp.[eq ne lt le gt ge].[u16 u32 u64 s16 s32 s64] p,$,$
setp.[eq ne].[b16 b32 b64] p|p,$,$
setp.[lo ls hi hs].[and or xor].[u16 u32 u64] p|p,$,$,!p
setp.[eq ne lt le gt ge equ neu ltu leu gtu geu num nan].[ftz -].f32 p|p,$,$
setp.[eq ne lt le gt ge equ neu ltu leu gtu geu num nan].[and or xor].[f64 f16 bf16 f32] p,$,$,p
setp.[eq ltu nan].[f16x2 bf16x2] p|p,$,$
set.[eq lt ge].[u32 s32 f32].[u16 u32 u64 s16 s32 s64 f32 f64] r,$,$
set.[eq gt].[and or xor].[u32 f32].[u32 f64] r,$,$,p
set.[eq ltu].[f16 u16].f16 h,$,$
set.[eq ltu].[f16x2].f16x2 $,$,$
selp.[b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64] $,$,$,p
slct.[b16 b32 b64 f32 f64 s32].s32 ^,^,^,$
slct.[ftz -].[b32 f64].f32 ^,^,^,$
[add sub mul].[rn rz rm rp].[ftz -].[sat -].f32 $,$,$
[add sub mul].[rn rz rm rp -].f64 $,$,$
[fma mad].[rn rz rm rp].[ftz -].[sat -].f32 $,$,$,$
[fma mad].[rn rz rm rp].f64 $,$,$,$
div.[approx full rn rz].[ftz -].f32 $,$,$
div.[rn rz rm rp].f64 $,$,$
[rcp sqrt].[approx rn rz rm rp].[ftz -].f32 $,$
[rcp sqrt].[rn rz rm rp].f64 $,$
[rcp rsqrt].approx.ftz.f64 $,$
rsqrt.approx.[ftz -].f32 $,$
rsqrt.approx.f64 $,$
[sin cos lg2 ex2].approx.[ftz -].f32 $,$
tanh.approx.f32 $,$
ex2.approx.[ftz.bf16 ftz.bf16x2 f16 f16x2] $,$
tanh.approx.[f16 f16x2 bf16 bf16x2] $,$
[min max].[ftz -].[NaN -].[xorsign.abs -].f32 $,$,$
[min max].f64 $,$,$
[abs neg].[ftz -].f32 $,$
[abs neg].[f64 f16 f16x2 bf16 bf16x2] $,$
copysign.[f32 f64] $,$,$
testp.[finite infinite number notanumber normal subnormal].[f32 f64] p,$
[add sub mul].[rn -].[ftz -].[sat -].[f16 f16x2] $,$,$
[add sub mul].[rn -].[bf16 bf16x2] $,$,$
fma.rn.[ftz -].[sat relu -].[f16 f16x2] $,$,$,$
fma.rn.[relu -].[bf16 bf16x2] $,$,$,$
[min max].[NaN -].[f16 f16x2 bf16 bf16x2] $,$,$
cvt.[u8 u16 u32 u64 s8 s16 s32 s64].[u8 u16 u32 u64 s8 s16 s32 s64] ^,$
cvt.sat.[u8 u16 u32 u64 s8 s16 s32 s64].[u8 u16 u32 u64 s8 s16 s32 s64] ^,$
cvt.[rni rzi rmi rpi].[ftz -].[sat -].[u8 u16 u32 u64 s8 s16 s32 s64].f32 ^,$
cvt.[rni rzi rmi rpi].[u8 u16 u32 u64 s8 s16 s32 s64].[f16 f64 bf16] ^,$
cvt.[rn rz rm rp].[f16 f32 f64].[u8 u16 u32 u64 s8 s16 s32 s64] ^,$
cvt.[rn rz rm rp].[ftz -].[sat -].f32.f64 ^,$
cvt.[rn rz rm rp].f16.f64 ^,$
cvt.[rn rz].[f16 bf16].f32 ^,$
cvt.[f64.f32 f64.f16 f32.f16 f32.bf16] ^,$
cvt.[rn rz].[relu -].[satfinite -].[f16x2 bf16x2].f32 ^,$,$
cvt.[rni rzi rmi rpi].[f32.f32 f64.f64 f16.f16] ^,$
cvt.rna.[satfinite -].tf32.f32 r,$
cvt.rn.satfinite.[e4m3x2 e5m2x2].f32 h,$,$
cvt.rn.[f16x2].[e4m3x2 e5m2x2] r,h
cvt.pack.sat.[u16 s16].s32 r,r,r
cvt.pack.sat.[u8 s8 u4 s4 u2 s2].s32.b32 r,r,r,r
ld.[global shared local const -].[b8 u8 s8 b16 b32 b64 f32 f64 b128] $,[a]
ld.[global shared local].[v2 v4].[b8 u16 b32 f32 b64] {$,$,$,$},[a]
ld.[volatile relaxed.gpu acquire.sys].[global shared -].[b8 u32 b64 f32] $,[a]
ld.global.[ca cg cs lu cv nc].[b32 f64] $,[a]
st.[global shared local -].[b8 u16 b32 b64 f32 f64 b128] [a],$
st.[global shared local].[v2 v4].[b8 b32 f32 b64] [a],{$,$,$,$}
st.[volatile relaxed.cta release.gpu].[global shared -].[u8 u32 b64] [a],$
mov.[b16 b32 b64 u32 s64 f32 f64 b128 pred] $,$
mov.b32 r,{h,h}
mov.b32 {h,h},r
mov.b64 {r,r},q
mov.b64 q,{r,r}
mov.b64 q,{h,h,h,h}
mov.b64 {h,_,h,h},q
mov.b128 {q,q},z
mov.b128 z,{q,q}
cvta.[to -].[global shared local const param].u64 q,q
isspacep.[global shared local const param] p,q
istypep.[texref samplerref surfref] p,q
prefetch.global.[L1 L2] [q]
atom.[global shared -].[add min max inc dec exch and or xor].[u32 b32 s32] r,[a],r
atom.[global shared -].[add min max exch and or xor].[u64 b64 s64] q,[a],q
atom.[relaxed acquire release acq_rel].[cta gpu sys].[global shared -].add.[u32 u64 f32 f64] $,[a],$
atom.[global shared -].add.noftz.[f16 f16x2 bf16 bf16x2] $,[a],$
atom.[global shared -].cas.[b16 b32 b64 b128] $,[a],$,$
red.[global shared -].[add min max and or xor].[u32 b32 s64 u64] [a],$
red.[global shared -].add.[f32 f64] [a],$
[membar fence].[cta gl sys]
fence.[acq_rel sc acquire release].[cta gpu sys cluster]
membar.[cta gl sys]
bar.sync i
bar.sync i,r
[bar barrier].[sync arrive].[aligned -] i,r
barrier.sync i
bar.red.[and or].pred p,i,p
bar.red.popc.u32 r,i,p
bar.warp.sync r
barrier.cluster.[arrive wait]
shfl.sync.[up down bfly idx].b32 r|p,r,r,r,r
shfl.sync.[up down bfly idx].b32 r,r,i,i,-1
vote.sync.[all any uni].pred p,p,r
vote.sync.ballot.b32 r,p,-1
match.any.sync.[b32 b64] r,$,-1
match.all.sync.[b32 b64] r|p,$,r
activemask.b32 r
redux.sync.[add min max].[u32 s32] $,$,-1
redux.sync.[and or xor].b32 $,$,r
elect.sync r|p,-1
mma.sync.aligned.m16n8k16.row.col.[f32.f16.f16.f32 f32.bf16.bf16.f32] {r,r,r,r},{r,r,r,r},{r,r},{r,r,r,r}
mma.sync.aligned.m16n8k8.row.col.[f32.f16.f16.f32 f32.bf16.bf16.f32] {r,r,r,r},{r,r},{r},{r,r,r,r}
mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {r,r},{r,r,r,r},{r,r},{r,r}
mma.sync.aligned.m16n8k32.row.col.[satfinite -].s32.[s8.s8 u8.u8 s8.u8].s32 {r,r,r,r},{r,r,r,r},{r,r},{r,r,r,r}
mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {r,r,r,r},{r,r,r,r},{r,r},{r,r,r,r}
mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.[xor and].popc {r,r},r,r,{r,r}
mma.sync.aligned.m8n8k4.[row col].[row col].f32.f16.f16.f32 {r,r,r,r,r,r,r,r},{r,r},{r,r},{r,r,r,r,r,r,r,r}
mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {q,q},{q},{q},{q,q}
mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {r,r,r,r},{r,r,r,r},{r,r,r,r},{r,r,r,r},r,0
movmatrix.sync.aligned.m8n8.trans.b16 r,r
ldmatrix.sync.aligned.m8n8.x4.[trans -].[shared shared::cta -].b16 {r,r,r,r},[a]
stmatrix.sync.aligned.m8n8.x2.[trans -].shared.b16 [a],{r,r}
wmma.load.[a b].sync.aligned.[row col].m16n16k16.[global shared -].f16 {r,r,r,r,r,r,r,r},[a],r
wmma.load.c.sync.aligned.[row col].m16n16k16.f32 {r,r,r,r,r,r,r,r},[a]
wmma.store.d.sync.aligned.[row col].m8n32k16.[global shared -].f32 [a],{r,r,r,r,r,r,r,r},r
wmma.mma.sync.aligned.[row col].row.m32n8k16.f32.f32 {r,r,r,r,r,r,r,r},{r,r,r,r,r,r,r,r},{r,r,r,r,r,r,r,r},{r,r,r,r,r,r,r,r}
wgmma.fence.sync.aligned
wgmma.commit_group.sync.aligned
wgmma.wait_group.sync.aligned i
wgmma.mma_async.sync.aligned.m64n8k16.f32.[f16.f16 bf16.bf16] {r,r,r,r},q,q,p,1,-1,0,1
wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {r,r},{r,r,r,r},q,p,1,1,1
wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8.satfinite {r,r,r,r},q,q,p
wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.[f16.f16 bf16.bf16] {r,r,r,r},q,q,r,1,p,1,-1,0,1
wgmma.mma_async.sp.sync.aligned.m64n8k64.s32.s8.u8 {r,r,r,r},{r,r,r,r},q,r,0,p
cp.async.ca.shared.global [a],[a],8
cp.async.cg.shared.global [a],[a],16
cp.async.ca.shared.global [a],[a],8,r
cp.async.ca.shared.global [a],[a],4,p
cp.async.[commit_group wait_all]
cp.async.wait_group i
cp.async.mbarrier.arrive.[noinc -].[shared -].b64 [a]
mbarrier.[init expect_tx complete_tx].[shared shared::cta -].b64 [a],r
mbarrier.inval.[shared -].b64 [a]
mbarrier.[arrive arrive_drop].[shared -].b64 q,[a],r
mbarrier.[arrive arrive_drop].expect_tx.[release.cluster relaxed.cta -].[shared::cta shared -].b64 q,[a],r
mbarrier.arrive.[release.cluster -].shared::cluster.b64 _,[a]
mbarrier.[test_wait try_wait].[acquire.cta -].[shared -].b64 p,[a],q
mbarrier.[test_wait try_wait].parity.[shared -].b64 p,[a],r
mbarrier.pending_count.b64 r,q
cp.async.bulk.[shared::cluster shared::cta].global.mbarrier::complete_tx::bytes [a],[a],r,[a]
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [a],[a],r,[a],h
cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [a],[a],r,[a]
cp.async.bulk.global.shared::cta.bulk_group [a],[a],r
cp.async.bulk.commit_group
cp.async.bulk.wait_group.[read -] i
cp.reduce.async.bulk.global.shared::cta.bulk_group.[add min].[u32 s32 u64] [a],[a],r
cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.[and.b32 add.u64] [a],[a],r,[a]
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [a],[a,{r,r}],[a]
cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [a],[a,{r,r,r}],[a],{h}
cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [a,{r}],[a]
cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [a,{r,r}],[a]
tensormap.replace.tile.global_address.[global shared::cta -].b1024.b64 [a],q
tensormap.replace.tile.[box_dim global_dim element_stride].[global -].b1024.b32 [a],i,r
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.[cta gpu sys].sync.aligned [a],[a],128
st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [a],r,[a]
red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.[add.u32 add.u64 xor.b32 inc.u32] [a],$,[a]
mapa.[shared::cluster -].u64 q,q,r
getctarank.[shared::cluster -].u64 r,q
setmaxnreg.inc.sync.aligned.u32 96
nanosleep.u32 r
exit
ret
trap
brkpt
mov.u32 r,%tid.x
mov.u32 r,%laneid
mov.u64 q,%clock64
mov.v4.u32 {r,r,r,r},%tid
mov.u32 r,%lanemask_lt
mov.u32 r,%dynamic_smem_size
alloca.u64 q,q,16
stacksave.u64 q
stackrestore.u64 q
";

/// The registers of the forms, and the declarations that they need.
pub const DECLARATIONS: &str = "
.reg .pred %zp<4>; .reg .b16 %zh<4>; .reg .b32 %zr<6>; .reg .b64 %zq<6>; .reg .b128 %zz<2>;
.reg .f32 %zf<4>; .reg .f64 %zd<4>; .reg .u8 %zb<3>; .reg .s32 %zi<3>; .reg .s64 %zl<3>;
";

/// Every form, with registers of [`DECLARATIONS`].
pub fn instructions() -> Vec<Instruction> {
    let mut texts = vec![];
    for line in FORMS.lines().filter(|line| !line.is_empty()) {
        // Brackets hold blanks, so the opcode ends at the first blank outside of them.
        let (opcode, operands) = match line.match_indices(' ').find(|(at, _)| {
            let before = &line[..*at];
            before.matches('[').count() == before.matches(']').count()
        }) {
            Some((at, _)) => line.split_at(at),
            None => (line, ""),
        };
        for opcode in expand(opcode) {
            texts.push(format!(
                "{opcode} {};",
                fill(&opcode, operands.trim(), texts.len())
            ));
        }
    }
    let source = format!(
        ".version 8.8\n.target sm_90a\n.address_size 64\n.entry forms() {{ {DECLARATIONS}\n{}\n}}",
        texts.join("\n")
    );
    let module = ptx::parse(&source).unwrap_or_else(|errors| panic!("{errors}"));
    let Some(Item::Function(function)) = module.items.into_iter().next() else {
        unreachable!("the source has a function")
    };
    function
        .body
        .unwrap_or_default()
        .into_iter()
        .filter_map(|statement| match statement {
            Statement::Instruction(instruction) => Some(instruction),
            _ => None,
        })
        .collect()
}

/// Every choice of the alternatives.
fn expand(form: &str) -> Vec<String> {
    let Some((before, rest)) = form.split_once('[') else {
        return vec![form.to_owned()];
    };
    let (choices, after) = rest.split_once(']').expect("a bracket is closed");
    choices
        .split(' ')
        .flat_map(|choice| {
            let joined = match choice {
                // Without the modifier, its dot goes too.
                "-" => format!("{}{after}", before.trim_end_matches('.')),
                choice => format!("{before}{choice}{after}"),
            };
            expand(&joined)
        })
        .collect()
}

/// The operands of a form, with registers that differ from form to form.
fn fill(opcode: &str, operands: &str, salt: usize) -> String {
    let types: Vec<&str> = opcode
        .split('.')
        .filter(|word| ptx::ast::Type::from_name(word).is_some())
        .collect();
    let last = types.last().copied().unwrap_or("b32");
    let before = types.iter().rev().nth(1).copied().unwrap_or(last);
    let vector = if opcode.contains(".v2.") { 2 } else { 4 };
    let mut out = String::new();
    let mut n = salt;
    let mut special = false;
    for c in operands.chars() {
        n += 1;
        special = (special || c == '%') && c != ',' && c != '}';
        match c {
            c if special => out.push(c),
            '$' => out += &register(last, n),
            '^' => out += &register(before, n),
            'w' => out += &register(if last.ends_with("16") { "b32" } else { "b64" }, n),
            'p' => out += &register("pred", n),
            'h' => out += &register("b16", n),
            'r' => out += &register("b32", n),
            'q' => out += &register("b64", n),
            'z' => out += &register("b128", n),
            'a' => out += &format!("%zq{}+{}", n % 6, n % 3 * 16),
            'i' => out += &(n * 7 % 256 % 16).to_string(),
            c => out.push(c),
        }
    }
    if opcode.contains(".v2.") || opcode.contains(".v4.") {
        let list: Vec<String> = (0..vector).map(|k| register(last, n + k)).collect();
        if let (Some(open), Some(close)) = (out.find('{'), out.find('}'))
            && !operands.contains('%')
        {
            out.replace_range(open + 1..close, &list.join(","));
        }
    }
    out
}

/// A register that a type can be in.
fn register(ty: &str, n: usize) -> String {
    match ty {
        "pred" => format!("%zp{}", n % 4),
        "b8" | "u8" | "s8" => format!("%zh{}", n % 4),
        "b16" | "u16" | "s16" | "f16" | "bf16" | "e4m3x2" | "e5m2x2" => format!("%zh{}", n % 4),
        "f32" => format!("%zf{}", n % 4),
        "f64" => format!("%zd{}", n % 4),
        "b64" | "u64" | "s64" => format!("%zq{}", n % 6),
        "b128" => format!("%zz{}", n % 2),
        _ => format!("%zr{}", n % 6),
    }
}
