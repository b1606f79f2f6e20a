//! Matrix Market files: what is read, and what each wrong one is told.

use proptest::prelude::*;

use super::matrix::{Flaw, Matrix};
use super::matrix_market::{ReadError, read};
use super::reference;

const REAL: &str = "%%MatrixMarket matrix coordinate real general\n";
const SYMMETRIC: &str = "%%MatrixMarket matrix coordinate real symmetric\n";

fn parse(text: &str) -> Result<Matrix, ReadError> {
    read(text.as_bytes())
}

/// `[2, -1; -1, 2]`.
fn pair() -> Matrix {
    reference::tridiagonal(2, 2.0, -1.0)
}

#[test]
fn general_and_symmetric_files_give_the_same() {
    for text in [
        format!("{REAL}2 2 4\n1 1 2.0\n1 2 -1\n2 1 -1e0\n2 2 +2\n"),
        // In any order, without an end of the last line.
        format!("{REAL}2 2 4\n2 2 2\n2 1 -1\n1 2 -1\n1 1 2"),
        format!("{SYMMETRIC}2 2 3\n1 1 2\n2 1 -1\n2 2 2\n"),
        // Comments, blank lines, other blanks, line ends of another system.
        format!(
            "{SYMMETRIC}% of two\n%\n\n  2\t2 3\r\n\r\n% here, too\n1 1 2\n  2 1   -1  \n2 2 2\n\n%\n"
        ),
        // Entries of one place are added up.
        format!("{SYMMETRIC}2 2 5\n1 1 1.5\n2 1 -1\n2 2 2\n1 1 0.25\n1 1 0.25\n"),
        "%%matrixmarket MATRIX Coordinate Integer Symmetric\n2 2 3\n1 1 2\n2 1 -1\n2 2 2\n".into(),
    ] {
        assert_eq!(parse(&text).unwrap(), pair(), "{text}");
    }
}

#[test]
fn entries_of_a_pattern_are_one() {
    let text = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 4\n1 1\n2 2\n3 3\n3 1\n";
    let expected = reference::symmetric(3, [(0, 0, 1.0), (1, 1, 1.0), (2, 2, 1.0), (2, 0, 1.0)]);
    assert_eq!(parse(text).unwrap(), expected);
}

#[test]
fn comments_need_not_be_text() {
    let mut bytes = SYMMETRIC.as_bytes().to_vec();
    bytes.extend(b"% M\xfcller\n1 1 1\n1 1 3\n");
    assert_eq!(
        read(bytes.as_slice()).unwrap(),
        reference::diagonal(1, |_| 3.0)
    );
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let error = parse(text).expect_err(text).to_string();
    assert_eq!(error, expected, "of:\n{text}");
}

#[test]
fn headers_that_mean_nothing() {
    let expected = "`%%MatrixMarket matrix coordinate` with `real`, `integer` or `pattern` and `general` or `symmetric`";
    for (text, found) in [
        ("", "the end of the file"),
        ("\n", "``"),
        ("2 2 4\n", "`2 2 4`"),
        (
            "%MatrixMarket matrix coordinate real general\n",
            "`%MatrixMarket matrix coordinate real general`",
        ),
        (
            "%%MatrixMarket matrix coordinate real\n",
            "`%%MatrixMarket matrix coordinate real`",
        ),
        (
            "%%MatrixMarket vector coordinate real general\n",
            "`%%MatrixMarket vector coordinate real general`",
        ),
        (
            "%%MatrixMarket matrix sparse real general\n",
            "`%%MatrixMarket matrix sparse real general`",
        ),
        (
            "%%MatrixMarket matrix coordinate float general\n",
            "`%%MatrixMarket matrix coordinate float general`",
        ),
        (
            "%%MatrixMarket matrix coordinate real general x\n",
            "`%%MatrixMarket matrix coordinate real general x`",
        ),
        (
            "%%MatrixMarket matrix coordinate real banded\n",
            "`%%MatrixMarket matrix coordinate real banded`",
        ),
    ] {
        refused(text, &format!("line 1: found {found}, expected {expected}"));
    }
}

#[test]
fn kinds_that_are_not_read() {
    for (rest, what) in [
        ("array real general", "array"),
        ("coordinate complex general", "complex"),
        ("coordinate real skew-symmetric", "skew-symmetric"),
        ("coordinate complex hermitian", "complex"),
        ("coordinate real hermitian", "hermitian"),
    ] {
        refused(
            &format!("%%MatrixMarket matrix {rest}\n1 1 1\n1 1 1\n"),
            &format!(
                "line 1: the matrix is `{what}`; what can be solved is `coordinate`, `real`, `integer` or `pattern`, \
                 `general` or `symmetric`"
            ),
        );
    }
}

#[test]
fn sizes_that_mean_nothing() {
    let expected = "the numbers of rows, columns and entries";
    for (line, found) in [
        ("2 2", "`2 2`"),
        ("2 2 4 4", "`2 2 4 4`"),
        ("two 2 4", "`two`"),
        ("2 2 -4", "`-4`"),
        ("2 2 4.0", "`4.0`"),
    ] {
        refused(
            &format!("{REAL}% sizes\n{line}\n"),
            &format!("line 3: found {found}, expected {expected}"),
        );
    }
    refused(
        REAL,
        &format!("line 2: found the end of the file, expected {expected}"),
    );
    refused(
        &format!("{REAL}0 0 0\n"),
        "line 2: found no rows, expected one at least",
    );
    refused(
        &format!("{REAL}3 4 1\n1 1 1\n"),
        "line 2: the matrix has 3 rows and 4 columns, and must be square",
    );
    refused(
        &format!("{REAL}3000000000 3000000000 1\n1 1 1\n"),
        "line 2: the matrix has 3000000000 rows, and at most 2147483647 can be counted",
    );
    refused(
        &format!("{REAL}1 1 9000000000000000000\n1 1 1\n"),
        "line 2: the matrix has 9000000000000000000 entries, and at most 2147483647 can be counted",
    );
    // Nothing is allocated for rows that cannot all have a diagonal entry.
    refused(
        &format!("{REAL}2000000000 2000000000 1\n1 1 1\n"),
        "the matrix is not positive definite: of 2000000000 entries on the diagonal, which must all be positive, at most 1 are there",
    );
}

#[test]
fn entries_that_mean_nothing() {
    for (lines, message) in [
        (
            "1 1",
            "line 3: found `1 1`, expected a row, a column and a value",
        ),
        (
            "1 1 2 3",
            "line 3: found `1 1 2 3`, expected a row, a column and a value",
        ),
        ("% one\n\n1 1 two", "line 5: found `two`, expected a number"),
        ("1 x 2", "line 3: found `x`, expected a column from 1 to 2"),
        ("0 1 2", "line 3: found row 0, expected a row from 1 to 2"),
        (
            "1 1 2\n1 3 2",
            "line 4: found column 3, expected a column from 1 to 2",
        ),
        ("-1 1 2", "line 3: found `-1`, expected a row from 1 to 2"),
        (
            "18446744073709551615 1 2",
            "line 3: found row 18446744073709551615, expected a row from 1 to 2",
        ),
        ("1 1 nan", "line 3: found `nan`, expected a finite number"),
        ("1 1 -inf", "line 3: found `-inf`, expected a finite number"),
        (
            "1 1 1e999",
            "line 3: found `1e999`, expected a finite number",
        ),
        (
            "1 1 2\n2 2 2\n",
            "line 5: found the end of the file after 2 entries, expected 3 of them",
        ),
        (
            "1 1 2\n2 2 2\n2 1 1\n1 1 1\n",
            "line 6: found `1 1 1`, expected the end of the file after 3 entries",
        ),
    ] {
        refused(&format!("{REAL}2 2 3\n{lines}"), message);
    }
    let long = "x".repeat(1000);
    let shown = "x".repeat(60);
    refused(
        &format!("{REAL}2 2 3\n1 1 {long}"),
        &format!("line 3: found `{shown}…`, expected a number"),
    );
    refused(
        "%%MatrixMarket matrix coordinate integer general\n1 1 1\n1 1 1.5\n",
        "line 3: found `1.5`, expected an integer",
    );
    refused(
        "%%MatrixMarket matrix coordinate pattern general\n1 1 1\n1 1 1\n",
        "line 3: found `1 1 1`, expected a row and a column",
    );
    refused(
        &format!("{SYMMETRIC}2 2 3\n1 2 1\n"),
        "line 3: found entry (1, 2), expected one on or below the diagonal, as the file is `symmetric`",
    );
}

#[test]
fn matrices_that_show_that_they_are_not_positive_definite() {
    let flaw = |text: &str| match parse(text) {
        Err(ReadError::Flawed(flaw)) => flaw,
        other => panic!("{other:?} of {text}"),
    };
    assert_eq!(
        flaw(&format!("{REAL}2 2 4\n1 1 2\n1 2 -1\n2 1 -1.5\n2 2 2\n")),
        Flaw::NotSymmetric {
            row: 1,
            column: 2,
            value: -1.0,
            mirrored: -1.5
        }
    );
    assert_eq!(
        flaw(&format!("{REAL}2 2 3\n1 1 2\n2 1 -1.5\n2 2 2\n")),
        Flaw::NotSymmetric {
            row: 2,
            column: 1,
            value: -1.5,
            mirrored: 0.0
        }
    );
    assert_eq!(
        flaw(&format!("{SYMMETRIC}2 2 2\n1 1 2\n2 2 -2\n")),
        Flaw::NotPositive {
            row: 2,
            value: -2.0
        }
    );
    assert_eq!(
        flaw(&format!("{SYMMETRIC}3 3 3\n1 1 2\n2 1 1\n3 3 1\n")),
        Flaw::NotPositive { row: 2, value: 0.0 }
    );
    assert_eq!(
        flaw(&format!("{SYMMETRIC}1 1 2\n1 1 1e308\n1 1 1e308\n")),
        Flaw::Overflow { row: 1, column: 1 }
    );
    // What rounding explains is let pass.
    parse(&format!(
        "{REAL}2 2 4\n1 1 2\n1 2 0.3\n2 1 0.30000000000000004\n2 2 2\n"
    ))
    .unwrap();
}

/// A file of the matrix.
fn written(matrix: &Matrix, symmetric: bool) -> String {
    let rows = (0..matrix.n()).flat_map(|row| {
        matrix
            .row(row)
            .map(move |(column, value)| (row, column, value))
    });
    let entries: Vec<_> = rows
        .filter(|&(row, column, _)| !symmetric || column <= row)
        .collect();
    let header = if symmetric { SYMMETRIC } else { REAL };
    let mut text = format!("{header}{0} {0} {1}\n", matrix.n(), entries.len());
    for (row, column, value) in entries {
        text += &format!("{} {} {value:e}\n", row + 1, column + 1);
    }
    text
}

#[test]
fn what_is_written_is_read_back() {
    for matrix in [
        Matrix::poisson(5),
        reference::scattered(60, 4),
        reference::arrow(9),
    ] {
        for symmetric in [false, true] {
            assert_eq!(parse(&written(&matrix, symmetric)).unwrap(), matrix);
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), header in any::<bool>()) {
        let mut file = if header { REAL.as_bytes().to_vec() } else { Vec::new() };
        file.extend(bytes);
        let _ = read(file.as_slice());
    }

    /// Words that occur in files, in any order.
    #[test]
    fn no_words_make_it_panic(
        symmetric in any::<bool>(),
        words in prop::collection::vec("[0-9]{1,2}|-1|1e300|1e-320|nan|%|\n|\n|\n|18446744073709551616|real", 0..60),
    ) {
        let header = if symmetric { SYMMETRIC } else { REAL };
        let text = format!("{header}{}", words.join(" "));
        if let Ok(matrix) = parse(&text) {
            prop_assert_eq!(matrix.check(), Ok(()));
        }
    }

    /// A file with some bytes changed, cut out or put in.
    #[test]
    fn no_damage_makes_it_panic(
        symmetric in any::<bool>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..3, any::<u8>()), 1..8),
    ) {
        let mut file = written(&Matrix::poisson(3), symmetric).into_bytes();
        for (at, edit, byte) in edits {
            let at = at.index(file.len());
            match edit {
                0 => file[at] = byte,
                1 => drop(file.remove(at)),
                _ => file.insert(at, byte),
            }
        }
        if let Ok(matrix) = read(file.as_slice()) {
            prop_assert_eq!(matrix.check(), Ok(()));
        }
    }
}
