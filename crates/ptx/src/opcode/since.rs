//! Which targets and versions of PTX brought an instruction, a special register or a directive.
//!
//! A row is an opcode, or `*` for all of them, the words that it is about, and the oldest target
//! and version; `-` where any will do. An instruction needs what all rows say whose words it has.
//! Its words are its modifiers, `_` where its result is not wanted, and `/3` where it has three
//! operands. In a row, `!word` is a word that the instruction has not, and `a.b` stands for two
//! words one after the other. Special registers and directives are rows without words.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use crate::ast::Module;

const TABLE: &str = "
    * L1::evict_first                       sm_70  7.4
    * L1::evict_last                        sm_70  7.4
    * L1::evict_normal                      sm_70  7.4
    * L1::evict_unchanged                   sm_70  7.4
    * L1::no_allocate                       sm_70  7.4
    * L2::64B                               sm_75  7.4
    * L2::128B                              sm_75  7.4
    * L2::256B                              sm_80  7.4
    * L2::cache_hint                        sm_80  7.4
    * NaN                                   sm_80  7.0
    * acq_rel                               sm_70  6.0
    * acquire                               sm_70  6.0
    * bf16                                  sm_80  7.0
    * bf16x2                                sm_80  7.0
    * cluster                               sm_90  7.8
    * e4m3x2                                sm_89  7.8
    * e5m2x2                                sm_89  7.8
    * mbarrier::complete_tx::bytes          sm_90  8.0
    * mmio                                  sm_70  8.2
    * multicast::cluster                    sm_90  8.0
    * noftz                                 sm_60  6.2
    * param::entry                          -      8.3
    * param::func                           -      8.3
    * relaxed                               sm_70  6.0
    * release                               sm_70  6.0
    * relu                                  sm_80  7.0
    * shared::cluster                       sm_90  7.8
    * tf32                                  sm_80  7.0
    * weak                                  sm_70  6.0
    * xorsign                               sm_86  7.2
    %aggr_smem_size                         sm_90  8.1
    %clock_hi                               -      5.0
    %cluster_ctaid                          sm_90  7.8
    %cluster_ctarank                        sm_90  7.8
    %cluster_nctaid                         sm_90  7.8
    %cluster_nctarank                       sm_90  7.8
    %clusterid                              sm_90  7.8
    %current_graph_exec                     sm_50  8.0
    %dynamic_smem_size                      -      4.1
    %is_explicit_cluster                    sm_90  7.8
    %nclusterid                             sm_90  7.8
    %reserved_smem_offset_0                 sm_80  7.6
    %reserved_smem_offset_1                 sm_80  7.6
    %reserved_smem_offset_begin             sm_80  7.6
    %reserved_smem_offset_cap               sm_80  7.6
    %reserved_smem_offset_end               sm_80  7.6
    %total_smem_size                        -      4.1
    .explicitcluster                        sm_90  7.8
    .maxclusterrank                         sm_90  7.8
    .reqnctapercluster                      sm_90  7.8
    abs f16                                 sm_53  6.5
    abs f16x2                               sm_53  6.5
    activemask                              -      6.2
    add f16                                 sm_53  4.2
    add f16x2                               sm_53  4.2
    add bf16                                sm_90  7.8
    add bf16x2                              sm_90  7.8
    add s16x2                               sm_90  8.0
    add u16x2                               sm_90  8.0
    alloca                                  sm_52  7.3
    applypriority                           sm_80  7.4
    atom b16                                sm_70  6.3
    atom bf16                               sm_90  7.8
    atom bf16x2                             sm_90  7.8
    atom cta                                sm_60  5.0
    atom f16                                sm_70  6.3
    atom f64                                sm_60  5.0
    atom gpu                                sm_60  5.0
    atom shared::cta                        -      7.8
    atom b128                               sm_90  8.3
    atom sys                                sm_60  5.0
    atom v2                                 sm_90  8.1
    atom v4                                 sm_90  8.1
    atom v8                                 sm_90  8.1
    bar cta                                 -      7.8
    bar warp                                -      6.0
    barrier                                 -      6.0
    barrier cta                             -      7.8
    barrier acquire                         sm_90  8.0
    barrier relaxed                         sm_90  8.0
    barrier release                         sm_90  8.0
    bmsk                                    sm_70  7.6
    brx                                     -      6.0
    clusterlaunchcontrol                    sm_100 8.6
    cp                                      sm_80  7.0
    cp L2::64B                              sm_80  7.4
    cp L2::128B                             sm_80  7.4
    cp async mbarrier shared::cta           -      7.8
    cp bulk                                 sm_90  8.0
    cp mbarrier::complete_tx::bytes shared::cta global  sm_90  8.6
    cp tile::gather4                        sm_100 8.6
    cp tile::scatter4                       sm_100 8.6
    createpolicy                            sm_80  7.4
    cvt bf16 f16                            sm_90  7.8
    cvt bf16.bf16                           sm_90  7.8
    cvt f32.bf16                            -      7.1
    cvt f32.bf16 ftz                        sm_90  7.8
    cvt bf16 f64                            sm_90  7.8
    cvt bf16 s8                             sm_90  7.8
    cvt bf16 u8                             sm_90  7.8
    cvt bf16 s16                            sm_90  7.8
    cvt bf16 u16                            sm_90  7.8
    cvt bf16 s32                            sm_90  7.8
    cvt bf16 u32                            sm_90  7.8
    cvt bf16 s64                            sm_90  7.8
    cvt bf16 u64                            sm_90  7.8
    cvt bf16 rmi                            sm_90  7.8
    cvt bf16 rni                            sm_90  7.8
    cvt bf16 rpi                            sm_90  7.8
    cvt bf16 rzi                            sm_90  7.8
    cvt bf16 satfinite                      sm_80  8.1
    cvt bf16x2 satfinite                    sm_80  8.1
    cvt f16 satfinite                       sm_70  8.1
    cvt f16x2                               sm_80  7.0
    cvt f16x2 f32 satfinite                 sm_80  8.1
    cvt pack                                sm_72  6.5
    cvt pack s2                             sm_75  6.5
    cvt pack s4                             sm_75  6.5
    cvt pack u2                             sm_75  6.5
    cvt pack u4                             sm_75  6.5
    cvt rn tf32                             sm_90  7.8
    cvt rz tf32                             sm_90  7.8
    cvt satfinite tf32                      sm_80  8.1
    cvt rn satfinite tf32                   sm_100 8.6
    cvt rz satfinite tf32                   sm_100 8.6
    cvta param                              sm_70  7.7
    cvta shared::cta                        -      7.8
    discard                                 sm_80  7.4
    dp2a                                    sm_61  5.0
    dp4a                                    sm_61  5.0
    elect                                   sm_90  8.0
    ex2 bf16                                sm_90  7.8
    ex2 bf16x2                              sm_90  7.8
    ex2 f16                                 sm_75  7.0
    ex2 f16x2                               sm_75  7.0
    fence                                   sm_70  6.0
    fence async                             sm_90  8.0
    fence async::generic                    sm_90  8.6
    fence mbarrier_init                     sm_90  8.0
    fence proxy                             sm_70  7.5
    fence sync_restrict::shared::cluster    sm_90  8.6
    fence sync_restrict::shared::cta        sm_90  8.6
    fence tensormap::generic                sm_90  8.3
    fma f16                                 sm_53  4.2
    fma f16x2                               sm_53  4.2
    fma oob                                 sm_90  8.1
    fns                                     -      6.0
    getctarank                              sm_90  7.8
    griddepcontrol                          sm_90  7.8
    isspacep param                          sm_70  7.7
    isspacep param::entry                   sm_70  8.3
    isspacep shared::cta                    -      7.8
    ld shared::cta                          -      7.8
    ld volatile.local                       -      9.1
    ldmatrix                                sm_75  6.5
    ldmatrix m8n16                          sm_100 8.6
    ldmatrix m16n16                         sm_100 8.6
    ldmatrix shared::cta                    -      7.8
    lop3 and                                sm_70  8.2
    lop3 or                                 sm_70  8.2
    lop3 xor                                sm_70  8.2
    mapa                                    sm_90  7.8
    match                                   sm_70  6.0
    max f16                                 sm_80  7.0
    max f16x2                               sm_80  7.0
    max relu                                sm_90  8.0
    max s16x2                               sm_90  8.0
    max u16x2                               sm_90  8.0
    mbarrier                                sm_80  7.0
    mbarrier arrive _                       sm_80  7.1
    mbarrier arrive /3 !noComplete          sm_90  7.8
    mbarrier arrive_drop /3 !noComplete     sm_90  7.8
    mbarrier acquire                        sm_80  8.0
    mbarrier release                        sm_80  8.0
    mbarrier relaxed                        sm_90  8.0
    mbarrier arrive relaxed                 sm_90  8.6
    mbarrier arrive_drop relaxed            sm_90  8.6
    mbarrier test_wait relaxed              sm_90  8.6
    mbarrier try_wait relaxed               sm_90  8.6
    mbarrier cluster                        sm_90  8.0
    mbarrier complete_tx                    sm_90  8.0
    mbarrier expect_tx                      sm_90  8.0
    mbarrier parity                         sm_80  7.1
    mbarrier shared::cluster                sm_90  8.0
    mbarrier shared::cta                    -      7.8
    mbarrier try_wait                       sm_90  7.8
    membar proxy                            sm_60  7.5
    min f16                                 sm_80  7.0
    min f16x2                               sm_80  7.0
    min relu                                sm_90  8.0
    min s16x2                               sm_90  8.0
    min u16x2                               sm_90  8.0
    mma                                     sm_70  6.4
    mma and                                 sm_80  7.1
    mma b1                                  sm_75  7.0
    mma e4m3                                sm_89  8.4
    mma e5m2                                sm_89  8.4
    mma e4m3 f16                            sm_89  8.7
    mma e5m2 f16                            sm_89  8.7
    mma e4m3 m16n8k16                       sm_89  8.7
    mma e5m2 m16n8k16                       sm_89  8.7
    mma f64                                 sm_80  7.0
    mma f64 m16n8k4                         sm_90  7.8
    mma f64 m16n8k8                         sm_90  7.8
    mma f64 m16n8k16                        sm_90  7.8
    mma m16n8k8                             sm_75  6.5
    mma m16n8k16                            sm_80  7.0
    mma m16n8k32                            sm_80  7.0
    mma m16n8k64                            sm_80  7.0
    mma m16n8k128                           sm_80  7.0
    mma m16n8k256                           sm_80  7.0
    mma s32                                 sm_75  6.5
    mma sp                                  sm_80  7.1
    mma sp::ordered_metadata                sm_80  8.5
    mov b128                                sm_70  8.3
    movmatrix                               sm_75  7.8
    mul bf16                                sm_90  7.8
    mul bf16x2                              sm_90  7.8
    mul f16                                 sm_53  4.2
    mul f16x2                               sm_53  4.2
    multimem                                sm_90  8.1
    nanosleep                               sm_70  6.2
    neg f16                                 sm_53  6.0
    neg f16x2                               sm_53  6.0
    prefetch L2::evict_last                 sm_80  7.4
    prefetch L2::evict_normal               sm_80  7.4
    prefetch tensormap                      sm_90  8.0
    red async                               sm_90  8.1
    red bf16                                sm_90  7.8
    red bf16x2                              sm_90  7.8
    red cta                                 sm_60  5.0
    red f16                                 sm_70  6.3
    red f64                                 sm_60  5.0
    red gpu                                 sm_60  5.0
    red shared::cta                         -      7.8
    red sys                                 sm_60  5.0
    red v2                                  sm_90  8.1
    red v4                                  sm_90  8.1
    red v8                                  sm_90  8.1
    redux                                   sm_80  7.0
    redux f32                               sm_100 8.6
    set bf16                                sm_90  7.8
    set bf16x2                              sm_90  7.8
    set f16                                 sm_53  4.2
    set f16x2                               sm_53  4.2
    setmaxnreg                              sm_90a 8.0
    setp bf16                               sm_90  7.8
    setp bf16x2                             sm_90  7.8
    setp f16                                sm_53  4.2
    setp f16x2                              sm_53  4.2
    shfl sync                               -      6.0
    st async                                sm_90  8.1
    st bulk                                 sm_100 8.6
    st shared::cta                          -      7.8
    st volatile.local                       -      9.1
    stackrestore                            sm_52  7.3
    stacksave                               sm_52  7.3
    stmatrix                                sm_90  7.8
    stmatrix m16n8                          sm_100 8.6
    sub bf16                                sm_90  7.8
    sub bf16x2                              sm_90  7.8
    sub f16                                 sm_53  4.2
    sub f16x2                               sm_53  4.2
    szext                                   sm_70  7.6
    tanh                                    sm_75  7.0
    tanh bf16                               sm_90  7.8
    tanh bf16x2                             sm_90  7.8
    tcgen05                                 sm_100 8.6
    tensormap cp_fenceproxy                 sm_90  8.3
    tensormap replace                       sm_90a 8.3
    vote sync                               -      6.0
    wgmma                                   sm_90a 8.0
    wgmma s8 u8                             sm_90a 8.4
    wgmma sp                                sm_90a 8.2
    wmma                                    sm_70  6.0
    wmma aligned                            sm_70  6.3
    wmma and                                sm_80  7.1
    wmma f64                                sm_80  7.0
    wmma m8n8k32                            sm_75  6.3
    wmma m8n8k128                           sm_75  6.3
    wmma m8n32k16                           sm_70  6.1
    wmma m16n16k8                           sm_80  7.0
    wmma m32n8k16                           sm_70  6.1
    wmma s8                                 sm_72  6.3
    wmma shared::cta                        -      7.8
    wmma s32                                sm_72  6.3
    wmma u8                                 sm_72  6.3
";

/// A version of PTX.
pub type Version = (u32, u32);

/// The architecture that a module is for, ordered by what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// 90 of `sm_90`.
    number: u32,
    /// It has a letter: what this one architecture has is there too.
    specific: bool,
}

impl Target {
    /// The target that a module's `.target` begins with.
    pub fn of(module: &Module) -> Option<Target> {
        Target::from_name(module.target.first()?)
    }

    /// The target of this name: `sm_90`, `compute_90`, `sm_90a`.
    pub fn from_name(name: &str) -> Option<Target> {
        let text = name
            .strip_prefix("sm_")
            .or_else(|| name.strip_prefix("compute_"))?;
        let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
        Some(Target {
            number: digits.parse().ok()?,
            specific: digits.len() < text.len(),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = if self.specific { "a" } else { "" };
        write!(f, "sm_{}{letter}", self.number)
    }
}

/// The oldest target and version that have something; `None` where all have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Since {
    /// `.target`
    pub target: Option<Target>,
    /// `.version`
    pub version: Option<Version>,
}

struct Row {
    words: Vec<&'static str>,
    since: Since,
}

impl Row {
    /// A line of the table: the opcode, and the rest.
    fn read(line: &'static str) -> Option<(&'static str, Row)> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let (major, minor) = words.pop()?.split_once('.')?;
        let target = match words.pop()? {
            "-" => None,
            name => Some(Target::from_name(name)?),
        };
        let since = Since {
            target,
            version: Some((major.parse().ok()?, minor.parse().ok()?)),
        };
        let opcode = *words.first()?;
        words.remove(0);
        Some((opcode, Row { words, since }))
    }
}

static ROWS: LazyLock<HashMap<&str, Vec<Row>>> = LazyLock::new(|| {
    let mut rows: HashMap<&str, Vec<Row>> = HashMap::new();
    for (opcode, row) in TABLE.lines().filter_map(Row::read) {
        rows.entry(opcode).or_default().push(row);
    }
    rows
});

impl Row {
    /// Whether it is about an instruction of these words.
    fn fits(&self, words: &[&str]) -> bool {
        self.words.iter().all(|word| match word.strip_prefix('!') {
            Some(word) => !words.contains(&word),
            None => match word.split_once('.') {
                Some((a, b)) => words.windows(2).any(|pair| pair == [a, b]),
                None => words.contains(word),
            },
        })
    }
}

/// What an instruction of this opcode and these words needs, a special register of this name, or a
/// directive of this name, with its dot.
pub fn since(name: &str, words: &[&str]) -> Since {
    let mut needs = Since::default();
    for row in ["*", name].iter().filter_map(|key| ROWS.get(key)).flatten() {
        if row.fits(words) {
            needs.target = needs.target.max(row.since.target);
            needs.version = needs.version.max(row.since.version);
        }
    }
    needs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opcode::Opcode;

    fn needs(instruction: &str) -> String {
        let mut words = instruction.split('.');
        let opcode = words.next().unwrap();
        let found = since(opcode, &words.collect::<Vec<_>>());
        let target = found.target.map_or("-".into(), |target| target.to_string());
        let version = found
            .version
            .map_or("-".into(), |(a, b)| format!("{a}.{b}"));
        format!("{target} {version}")
    }

    #[test]
    fn every_row_is_read_and_of_an_opcode() {
        let lines = TABLE.lines().filter(|line| !line.trim().is_empty());
        for line in lines {
            let (opcode, _) = Row::read(line).unwrap_or_else(|| panic!("{line}"));
            let is_name = opcode.starts_with(['*', '%', '.']);
            assert!(is_name || Opcode::of(opcode).is_some(), "{line}");
        }
    }

    #[test]
    fn all_rows_that_fit_count() {
        for (instruction, expected) in [
            ("add.u32", "- -"),
            ("bar.sync", "- -"),
            ("bar.warp.sync", "- 6.0"),
            ("mbarrier.init.b64", "sm_80 7.0"),
            ("mbarrier.init.shared::cta.b64", "sm_80 7.8"),
            ("mbarrier.try_wait.b64", "sm_90 7.8"),
            ("mbarrier.arrive.b64./3", "sm_90 7.8"),
            ("mbarrier.arrive.noComplete.b64./3", "sm_80 7.0"),
            ("%clusterid", "sm_90 7.8"),
            ("cp.async.wait_all", "sm_80 7.0"),
            ("cp.async.bulk.commit_group", "sm_90 8.0"),
            ("wgmma.fence.sync.aligned", "sm_90a 8.0"),
            ("cvt.rn.bf16.f32", "sm_80 7.0"),
            ("cvt.rn.bf16.s32", "sm_90 7.8"),
        ] {
            assert_eq!(needs(instruction), expected, "{instruction}");
        }
    }

    #[test]
    fn targets_are_ordered() {
        let targets = [
            "sm_50",
            "sm_75",
            "compute_90",
            "sm_90a",
            "sm_100",
            "sm_120f",
        ];
        let targets = targets.map(|name| Target::from_name(name).unwrap());
        assert!(targets.is_sorted());
        assert_eq!(Target::from_name("sm_"), None);
        assert_eq!(Target::from_name("90"), None);
    }
}
