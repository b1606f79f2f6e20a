//! Warps whose lanes do something in tiles, as cooperative groups part them: all tiles together,
//! some of them, or each as often as it wants.

use super::forms::same;
use super::fuzz::Sample;

const BLOCKS: [[u32; 3]; 7] = [
    [32, 1, 1],
    [64, 1, 1],
    [16, 4, 1],
    [8, 8, 1],
    [40, 1, 1],
    [20, 2, 1],
    [33, 1, 1],
];

/// The masks of tiles of so many lanes in `%r25`, by the lane's number in `%r20`.
fn masks(width: u32) -> String {
    masks_by("mov.u32 %r20, %laneid;", width)
}

fn masks_by(lane: &str, width: u32) -> String {
    format!(
        "{lane} and.b32 %r21, %r20, -{width}; mov.u32 %r22, {};
        shl.b32 %r25, %r22, %r21; mov.u32 %r26, 2;",
        (1u64 << width) - 1
    )
}

fn check(body: &str) {
    for block in BLOCKS {
        same(body, block, 5).expect("nothing faults");
    }
}

#[test]
fn each_lane_takes_from_its_own() {
    for width in [2, 4, 8, 16] {
        // No lane takes from one that a block does not have.
        let clamp = (32 - width) << 8;
        for shuffle in [
            format!("shfl.sync.up.b32 %r5|%p2, %r4, 1, {clamp}, %r25;"),
            format!("shfl.sync.idx.b32 %r5|%p2, %r4, 0, {}, %r25;", clamp | 31),
            format!("shfl.sync.up.b32 %r5|%p2, %r4, %r26, {clamp}, %r25;"),
        ] {
            check(&format!(
                "{} mad.lo.u32 %r4, %r2, 77, 5; {shuffle} selp.u32 %r6, 3, 4, %p2;
                mad.lo.u32 %r9, %r5, 31, %r6;",
                masks(width)
            ));
        }
    }
}

/// Votes and reductions; also by masks that follow from a thread's number in its row, where rows
/// are whole warps and where they are not.
#[test]
fn lanes_ask_their_own() {
    let mut sample = Sample::one_in(3);
    let by_row = "and.b32 %r20, %r1, 31;";
    for (lane, blocks) in [
        ("mov.u32 %r20, %laneid;", &BLOCKS[..]),
        (by_row, &BLOCKS[..2]),
    ] {
        for width in [1, 2, 4, 8, 16] {
            let begin = format!(
                "{} mad.lo.u32 %r4, %r2, 77, 5; and.b32 %r7, %r2, %r3; setp.eq.u32 %p1, %r7, 0;
                mad.lo.u32 %r8, %r2, %r2, 3; xor.b32 %r8, %r8, -7;",
                masks_by(lane, width)
            );
            for what in [
                "vote.sync.ballot.b32 %r9, %p1, %r25;",
                "vote.sync.any.pred %p2, %p1, %r25; selp.u32 %r9, 3, 4, %p2;",
                "vote.sync.all.pred %p2, %p1, %r25; vote.sync.all.pred %p3, !%p1, %r25;
                selp.u32 %r9, 3, 4, %p2; @%p3 add.u32 %r9, %r9, 10;",
                "vote.sync.uni.pred %p2, %p1, %r25; selp.u32 %r9, 3, 4, %p2;",
                "redux.sync.add.s32 %r9, %r8, %r25; redux.sync.xor.b32 %r5, %r8, %r25;
                mad.lo.u32 %r9, %r9, 31, %r5;",
                "redux.sync.min.s32 %r9, %r8, %r25; redux.sync.max.u32 %r5, %r8, %r25;
                mad.lo.u32 %r9, %r9, 31, %r5; redux.sync.or.b32 %r5, %r9, %r25;
                redux.sync.and.b32 %r6, %r8, %r25; add.u32 %r9, %r5, %r6;",
                "match.any.sync.b32 %r9, %r7, %r25; shfl.sync.idx.b32 %r5, %r9, %r20, 31, %r25;",
                "redux.sync.add.s32 %r5, %r8, -1; vote.sync.ballot.b32 %r6, %p1, %r25;
                add.u32 %r9, %r5, %r6; redux.sync.add.u32 %r9, %r9, %r25;",
            ] {
                if !sample.takes() {
                    continue;
                }
                for block in blocks {
                    for n in [1, 2, 5, 12, 24] {
                        same(&format!("{begin} {what}"), *block, n).expect("nothing faults");
                    }
                }
            }
        }
    }
    // Half a warp's rows, and masks of the first half: the second waits for nobody of its own.
    let body = format!(
        "{} mad.lo.u32 %r4, %r2, 77, 5; shfl.sync.up.b32 %r5, %r4, 1, 0x1000, %r25;
        mad.lo.u32 %r9, %r4, 31, %r5;",
        masks_by(by_row, 16)
    );
    let _ = same(&body, [16, 2, 1], 0);
}

/// Sums of tiles, which take from lanes that there are.
#[test]
fn sums() {
    for width in [2, 4, 8, 16] {
        let clamp = (32 - width) << 8;
        let mut body = format!("{} mad.lo.u32 %r4, %r2, %r2, 5;", masks(width));
        let mut by = 1;
        while by < width {
            body += &format!(
                "shfl.sync.up.b32 %r5|%p2, %r4, {by}, {clamp}, %r25; @!%p2 mov.u32 %r5, 0;
                add.u32 %r4, %r4, %r5;"
            );
            by *= 2;
        }
        check(&format!("{body} mov.u32 %r9, %r4;"));
        // The whole warp afterwards.
        check(&format!(
            "{body} shfl.sync.idx.b32 %r6, %r4, 0, 31, -1; mad.lo.u32 %r9, %r6, 3, %r4;"
        ));
        for kind in ["down", "bfly"] {
            let mut body = format!("{} mad.lo.u32 %r4, %r2, %r2, 5;", masks(width));
            let mut by = width / 2;
            while by > 0 {
                body += &format!(
                    "shfl.sync.{kind}.b32 %r5, %r4, {by}, {}, %r25; add.u32 %r4, %r4, %r5;",
                    clamp | 31
                );
                by /= 2;
            }
            for block in &BLOCKS[..4] {
                same(&format!("{body} mov.u32 %r9, %r4;"), *block, 5).expect("nothing faults");
            }
        }
    }
}

/// Some tiles do it and others go on, wait elsewhere, do it more often, or are gone.
#[test]
fn tiles_part() {
    for width in [4, 8, 16] {
        let take = format!(
            "shfl.sync.up.b32 %r5, %r4, 1, {}, %r25; mad.lo.u32 %r4, %r4, 3, %r5;",
            (32 - width) << 8
        );
        let begin = format!(
            "{} mad.lo.u32 %r4, %r2, 77, 5; div.u32 %r7, %r20, {width}; mov.u32 %r8, 0;",
            masks(width)
        );
        let odd = "and.b32 %r10, %r7, 1; setp.eq.u32 %p1, %r10, 1;";
        for body in [
            format!("{odd} @%p1 bra on; {take} on: mov.u32 %r9, %r4;"),
            format!("{odd} @%p1 bra on; {take} on: bar.sync 0; {take} mov.u32 %r9, %r4;"),
            format!(
                "{odd} @%p1 bra other; {take} bra on; other: {take} {take} on: mov.u32 %r9, %r4;"
            ),
            format!("{odd} @%p1 ret; {take} {take} mov.u32 %r9, %r4;"),
            format!(
                "more: {take} add.u32 %r8, %r8, 1; setp.le.u32 %p1, %r8, %r7; @%p1 bra more;
                mov.u32 %r9, %r4;"
            ),
            format!(
                "more: {take} bar.warp.sync %r25; add.u32 %r8, %r8, 1;
                setp.le.u32 %p1, %r8, %r7; @%p1 bra more; bar.sync 0; {take} mov.u32 %r9, %r4;"
            ),
        ] {
            check(&format!("{begin} {body}"));
        }
    }
}

/// What is not a tile of each lane is what the lanes say: here all lanes of some are gone.
#[test]
fn masks_that_are_no_tiles() {
    // Of three lanes, and of one each.
    for (first, mask) in [
        ("rem.u32 %r21, %r20, 32;", 1),
        ("and.b32 %r21, %r20, 0;", -1),
    ] {
        let body = format!(
            "mov.u32 %r20, %laneid; {first} mov.u32 %r22, {mask}; shl.b32 %r25, %r22, %r21;
            mad.lo.u32 %r4, %r2, 77, 5; shfl.sync.idx.b32 %r5, %r4, %r20, 31, %r25;
            bar.warp.sync %r25; mad.lo.u32 %r9, %r4, 3, %r5;"
        );
        check(&body);
    }
}

/// Between operations of tiles lanes tell each other something in shared memory.
#[test]
fn shared_memory_of_tiles() {
    for width in [2, 8, 16] {
        let body = format!(
            "{} shl.b32 %r5, %r35, 2; mov.u32 %r6, s; add.u32 %r5, %r5, %r6;
            mad.lo.u32 %r4, %r2, 77, 5; st.shared.u32 [%r5], %r4; bar.warp.sync %r25;
            xor.b32 %r7, %r20, 1; setp.ge.u32 %p1, %r35, 32; selp.u32 %r8, 32, 0, %p1;
            add.u32 %r7, %r7, %r8; shl.b32 %r7, %r7, 2; add.u32 %r7, %r7, %r6;
            ld.shared.u32 %r10, [%r7]; bar.warp.sync %r25; st.shared.u32 [%r5], %r10;
            bar.warp.sync %r25; ld.shared.u32 %r11, [%r7]; mad.lo.u32 %r9, %r10, 31, %r11;",
            masks(width)
        );
        // Of the last, one has no neighbour.
        for block in &BLOCKS[..6] {
            same(&body, *block, 5).expect("nothing faults");
        }
    }
}

/// A volatile tail of a sum, and the same in a loop; lanes that have nothing to add do nothing.
#[test]
fn volatile_sums() {
    let begin = "shl.b32 %r5, %r35, 2; mov.u32 %r6, s; add.u32 %r5, %r5, %r6;
        mad.lo.u32 %r4, %r2, 77, 5; st.shared.u32 [%r5], %r4;
        bar.sync 0; setp.ge.u32 %p1, %r35, 32;";
    let mut steps = String::new();
    for by in [16, 8, 4, 2, 1] {
        steps += &format!(
            "ld.volatile.shared.u32 %r7, [%r5+{}]; ld.volatile.shared.u32 %r8, [%r5];
            bar.warp.sync -1; add.u32 %r8, %r8, %r7; st.volatile.shared.u32 [%r5], %r8;
            bar.warp.sync -1;",
            4 * by
        );
    }
    let least = "ld.volatile.shared.u32 %r7, [%r5+64]; ld.volatile.shared.u32 %r8, [%r5];
        bar.warp.sync -1; setp.ge.u32 %p2, %r7, %r8; @%p2 bra less;
        st.volatile.shared.u32 [%r5], %r7; less: bar.warp.sync -1;";
    let vectors = "ld.volatile.shared.v2.u32 {%r7, %r8}, [%r6]; add.u32 %r8, %r7, %r8;
        bar.warp.sync -1; @!%p1 st.volatile.shared.u32 [%r5], %r8; bar.warp.sync -1;";
    for tail in [
        format!("@%p1 bra on; {steps} on:"),
        format!("@%p1 bra on; {least} on:"),
        vectors.to_owned(),
        format!(
            "mov.u32 %r20, 0; more: bar.sync 0; @%p1 bra next; {steps}
            next: add.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, 3; @%p3 bra more;"
        ),
        format!(
            "@%p1 bra on; mov.u32 %r20, 0; more: {steps} add.u32 %r20, %r20, 1;
            setp.lt.u32 %p3, %r20, 3; @%p3 bra more; on:"
        ),
    ] {
        let body = format!("{begin} {tail} bar.sync 0; ld.shared.u32 %r9, [%r5];");
        for block in [[64, 1, 1], [16, 4, 1], [8, 8, 1]] {
            same(&body, block, 5).expect("nothing faults");
        }
    }
}

/// Lanes that wait for what others write see it, before a loop and in it.
#[test]
fn volatile_flags() {
    for loads in ["ld.volatile.shared.u32", "ld.volatile.shared::cta.u32"] {
        let body = format!(
            "mov.u32 %r6, s; setp.ne.u32 %p1, %r35, 0; @%p1 bra fill; st.shared.u32 [%r6], 0;
            fill: bar.sync 0; setp.ne.u32 %p1, %r35, 40; @%p1 bra waits;
            st.volatile.shared.u32 [%r6], 7; waits: {loads} %r7, [%r6]; again: {loads} %r8, [%r6];
            setp.eq.u32 %p2, %r8, 0; @%p2 bra again; mov.u32 %r9, %r8;"
        );
        same(&body, [64, 1, 1], 5).expect("nothing faults");
    }
    // Warps that meet in a loop, or some of them, and look for what another writes.
    for wait in [
        "bar.sync 1, 32;",
        "setp.eq.u32 %p3, %r10, 3; @!%p3 bra past; bar.sync 1, 32; past:",
        "setp.eq.u32 %p3, %r10, 3; @%p3 bar.sync 1, 32;",
        "",
    ] {
        let body = format!(
            "mov.u32 %r6, s; mov.u32 %r10, 0; setp.ne.u32 %p1, %r35, 0; @%p1 bra fill;
            st.shared.u32 [%r6], 0; fill: bar.sync 0; setp.lt.u32 %p1, %r35, 32; @%p1 bra again;
            st.volatile.shared.u32 [%r6], 7; bra over;
            again: add.u32 %r10, %r10, 1; {wait} ld.volatile.shared.u32 %r8, [%r6];
            setp.eq.u32 %p2, %r8, 0; @%p2 bra again; mov.u32 %r9, %r8; over:"
        );
        same(&body, [64, 1, 1], 5).expect("nothing faults");
    }
}

/// The mask of those that are there, for all lanes of a warp, for those that took a branch, and
/// after some have ended; and operations of older PTX, which have no mask.
#[test]
fn lanes_that_are_there() {
    let there = "mov.u32 %r20, %laneid; activemask.b32 %r25; mad.lo.u32 %r4, %r2, 77, 5;
        and.b32 %r7, %r2, %r3; setp.eq.u32 %p1, %r7, 0; brev.b32 %r12, %r25; clz.b32 %r12, %r12;";
    let what = "shfl.sync.idx.b32 %r5|%p2, %r4, %r12, 31, %r25; selp.u32 %r6, 3, 4, %p2;
        mad.lo.u32 %r9, %r5, 31, %r6; shfl.sync.idx.b32 %r5, %r4, 7, 31, %r25;
        mad.lo.u32 %r9, %r5, 31, %r6; vote.sync.ballot.b32 %r5, %p1, %r25;
        mad.lo.u32 %r9, %r9, 31, %r5; redux.sync.add.u32 %r5, %r4, %r25;
        mad.lo.u32 %r9, %r9, 31, %r5; vote.sync.all.pred %p3, %p1, %r25;
        @%p3 add.u32 %r9, %r9, 7; mad.lo.u32 %r9, %r9, 31, %r25;";
    let older = "vote.ballot.b32 %r25, %p1; mad.lo.u32 %r9, %r9, 31, %r25;
        vote.any.pred %p2, %p1; @%p2 add.u32 %r9, %r9, 3; shfl.idx.b32 %r5, %r4, %r12, 31;
        mad.lo.u32 %r9, %r9, 31, %r5;";
    for body in [
        format!("{there} {what}"),
        format!(
            "setp.lt.u32 %p4, %r1, 3; @%p4 bra past; {there} {what} past: add.u32 %r9, %r9, 1;"
        ),
        format!("and.b32 %r10, %r1, 9; setp.eq.u32 %p4, %r10, 1; @%p4 ret; {there} {what}"),
        format!("{there} setp.gt.u32 %p4, %r1, 17; @%p4 ret; bar.warp.sync %r25; {what}"),
        format!("{there} {older}"),
        format!(
            "{there} setp.lt.u32 %p4, %r1, 6; @%p4 bra past; {older} past: add.u32 %r9, %r9, 1;"
        ),
    ] {
        check(&body);
    }
}

/// Masks that part the lanes of a warp by what they hold.
#[test]
fn lanes_of_one_key() {
    for keys in [1, 2, 5, 17, 64] {
        for (ty, key) in [("b32", "%r7"), ("b64", "%rd5")] {
            let body = format!(
                "mov.u32 %r20, %laneid; mad.lo.u32 %r4, %r2, 77, 5; mul.lo.u32 %r7, %r2, 2654435;
                shr.u32 %r7, %r7, 7; rem.u32 %r7, %r7, {keys}; cvt.u64.u32 %rd5, %r7;
                shl.b64 %rd5, %rd5, 32; and.b32 %r8, %r20, 1; cvt.u64.u32 %rd6, %r8;
                or.b64 %rd5, %rd5, %rd6; activemask.b32 %r24;
                match.any.sync.{ty} %r25, {key}, %r24;
                redux.sync.add.u32 %r5, %r4, %r25; mad.lo.u32 %r9, %r5, 31, %r25;
                brev.b32 %r6, %r25; clz.b32 %r6, %r6; shfl.sync.idx.b32 %r5|%p2, %r4, %r6, 31, %r25;
                mad.lo.u32 %r9, %r9, 31, %r5; and.b32 %r10, %r4, 4; setp.eq.u32 %p1, %r10, 0;
                vote.sync.ballot.b32 %r5, %p1, %r25; mad.lo.u32 %r9, %r9, 31, %r5;
                setp.eq.u32 %p3, %r6, %r20; @%p3 bra past; bar.warp.sync %r24; add.u32 %r9, %r9, 1;
                bra end; past: bar.warp.sync %r24; add.u32 %r9, %r9, 3; end:"
            );
            check(&body);
        }
    }
    // The first lanes of a warp name themselves alone, and the others wait for each other.
    check(
        "mov.u32 %r20, %laneid; setp.lt.u32 %p1, %r20, 3; mov.u32 %r21, 1; shl.b32 %r21, %r21, %r20;
        selp.b32 %r25, %r21, -8, %p1; mad.lo.u32 %r4, %r2, 77, 5; @%p1 add.u32 %r4, %r4, 1;
        redux.sync.add.u32 %r9, %r4, %r25; bar.warp.sync %r25; add.u32 %r9, %r9, %r25;",
    );
}
