//! Reads sparse symmetric matrices in the Matrix Market exchange format.
//!
//! What is read: `matrix coordinate`, `real`, `integer` or `pattern` (every entry is 1), `general`
//! or `symmetric` (the part on and below the diagonal alone). Rows and columns are counted from 1.
//! Entries of one place are added up. Comments begin with `%`.
//!
//! No input makes it panic, and memory is taken for what is in the file, not for what its second
//! line promises. An error names the line, what stands there, and what should.

use std::io::{self, BufRead};

use super::matrix::{Entry, Flaw, MOST, Matrix};

/// Why a file gives no matrix to solve with.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("line {line}: found {found}, expected {expected}")]
    Malformed {
        line: usize,
        found: String,
        expected: String,
    },
    #[error(
        "line {line}: the matrix is {what}; what can be solved is `coordinate`, `real`, `integer` or `pattern`, `general` or `symmetric`"
    )]
    Unsupported { line: usize, what: String },
    #[error("line {line}: the matrix has {rows} rows and {columns} columns, and must be square")]
    NotSquare {
        line: usize,
        rows: u64,
        columns: u64,
    },
    #[error("line {line}: the matrix has {what}, and at most {MOST} can be counted")]
    TooLarge { line: usize, what: String },
    #[error(
        "the matrix is not positive definite: of {rows} entries on the diagonal, which must all be positive, at most {entries} are there"
    )]
    DiagonalMissing { rows: usize, entries: usize },
    #[error("the matrix cannot be solved with: {0}")]
    Flawed(#[from] Flaw),
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
}

#[derive(Clone, Copy, PartialEq)]
enum Field {
    Real,
    Integer,
    Pattern,
}

#[derive(Clone, Copy)]
struct Header {
    field: Field,
    symmetric: bool,
}

/// The lines of a file, with the number of the last one read.
struct Lines<R> {
    from: R,
    bytes: Vec<u8>,
    number: usize,
}

impl<R: BufRead> Lines<R> {
    /// Whether there is another line; it is in `bytes` then.
    fn advance(&mut self) -> io::Result<bool> {
        self.bytes.clear();
        self.number += 1;
        Ok(self.from.read_until(b'\n', &mut self.bytes)? > 0)
    }

    /// Goes to the next line that is neither blank nor a comment.
    fn advance_to_content(&mut self) -> io::Result<bool> {
        while self.advance()? {
            match self.bytes.trim_ascii().first() {
                None | Some(b'%') => {}
                Some(_) => return Ok(true),
            }
        }
        Ok(false)
    }

    fn malformed(&self, found: impl Into<String>, expected: impl Into<String>) -> ReadError {
        ReadError::Malformed {
            line: self.number,
            found: found.into(),
            expected: expected.into(),
        }
    }

    /// The words of the line.
    fn words(&self) -> impl Iterator<Item = &[u8]> {
        let words = self.bytes.split(u8::is_ascii_whitespace);
        words.filter(|word| !word.is_empty())
    }

    /// The line in exactly `N` words.
    fn split<const N: usize>(&self, expected: &str) -> Result<[&[u8]; N], ReadError> {
        let mut words = self.words();
        let mut split = [&b""[..]; N];
        for place in &mut split {
            *place = words.next().unwrap_or_default();
        }
        let whole = split.iter().all(|word| !word.is_empty()) && words.next().is_none();
        match whole {
            true => Ok(split),
            false => Err(self.malformed(quoted(&self.bytes), expected)),
        }
    }

    /// A word as a number.
    fn number<T: std::str::FromStr>(&self, word: &[u8], expected: &str) -> Result<T, ReadError> {
        let text = std::str::from_utf8(word).ok();
        text.and_then(|text| text.parse().ok())
            .ok_or_else(|| self.malformed(quoted(word), expected))
    }
}

/// A piece of the file for a message: its start, if it is long, and no control characters.
fn quoted(bytes: &[u8]) -> String {
    const SHOWN: usize = 60;
    let text = String::from_utf8_lossy(bytes.trim_ascii());
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("`{}`", shown.escape_debug())
}

/// Reads a matrix, and checks as far as its entries show that it is symmetric positive definite.
pub fn read(from: impl BufRead) -> Result<Matrix, ReadError> {
    let mut lines = Lines {
        from,
        bytes: Vec::new(),
        number: 0,
    };
    let header = header(&mut lines)?;
    let (rows, count) = size(&mut lines)?;
    let entries = entries(&mut lines, header, rows, count)?;
    // Checked before memory is taken for the rows.
    if entries.len() < rows {
        return Err(ReadError::DiagonalMissing {
            rows,
            entries: entries.len(),
        });
    }
    let matrix = Matrix::from_entries(rows, entries);
    matrix.check()?;
    Ok(matrix)
}

fn header(lines: &mut Lines<impl BufRead>) -> Result<Header, ReadError> {
    let expected = "`%%MatrixMarket matrix coordinate` with `real`, `integer` or `pattern` and `general` or `symmetric`";
    if !lines.advance()? {
        return Err(lines.malformed("the end of the file", expected));
    }
    let line = lines.bytes.to_ascii_lowercase();
    let words: Vec<&[u8]> = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .collect();
    let malformed = || lines.malformed(quoted(&lines.bytes), expected);
    let [b"%%matrixmarket", b"matrix", format, field, symmetry] = words[..] else {
        return Err(malformed());
    };
    let unsupported = |word: &[u8]| ReadError::Unsupported {
        line: 1,
        what: quoted(word),
    };
    match format {
        b"coordinate" => {}
        b"array" => return Err(unsupported(format)),
        _ => return Err(malformed()),
    }
    let field = match field {
        b"real" => Field::Real,
        b"integer" => Field::Integer,
        b"pattern" => Field::Pattern,
        b"complex" => return Err(unsupported(field)),
        _ => return Err(malformed()),
    };
    let symmetric = match symmetry {
        b"general" => false,
        b"symmetric" => true,
        b"skew-symmetric" | b"hermitian" => return Err(unsupported(symmetry)),
        _ => return Err(malformed()),
    };
    Ok(Header { field, symmetric })
}

/// How many rows there are, and how many entries the file promises.
fn size(lines: &mut Lines<impl BufRead>) -> Result<(usize, u64), ReadError> {
    let expected = "the numbers of rows, columns and entries";
    if !lines.advance_to_content()? {
        return Err(lines.malformed("the end of the file", expected));
    }
    let line = lines.number;
    let [rows, columns, count] = lines.split(expected)?;
    let number = |word| lines.number::<u64>(word, expected);
    let (rows, columns, count) = (number(rows)?, number(columns)?, number(count)?);
    if rows != columns {
        return Err(ReadError::NotSquare {
            line,
            rows,
            columns,
        });
    }
    if rows == 0 {
        return Err(lines.malformed("no rows", "one at least"));
    }
    for (what, number) in [("rows", rows), ("entries", count)] {
        if number > MOST as u64 {
            let what = format!("{number} {what}");
            return Err(ReadError::TooLarge { line, what });
        }
    }
    Ok((rows as usize, count))
}

fn entries(
    lines: &mut Lines<impl BufRead>,
    header: Header,
    rows: usize,
    count: u64,
) -> Result<Vec<Entry>, ReadError> {
    let mut entries = Vec::new();
    for read in 0..count {
        if !lines.advance_to_content()? {
            let found = format!("the end of the file after {read} entries");
            return Err(lines.malformed(found, format!("{count} of them")));
        }
        let entry = entry(lines, header, rows)?;
        entries.push(entry);
        if header.symmetric && entry.row != entry.column {
            entries.push(Entry {
                row: entry.column,
                column: entry.row,
                value: entry.value,
            });
        }
        if entries.len() > MOST {
            return Err(ReadError::TooLarge {
                line: lines.number,
                what: "too many entries".into(),
            });
        }
    }
    if lines.advance_to_content()? {
        let expected = format!("the end of the file after {count} entries");
        return Err(lines.malformed(quoted(&lines.bytes), expected));
    }
    Ok(entries)
}

fn entry(lines: &Lines<impl BufRead>, header: Header, rows: usize) -> Result<Entry, ReadError> {
    let (row, column, value) = match header.field {
        Field::Pattern => {
            let [row, column] = lines.split("a row and a column")?;
            (row, column, None)
        }
        _ => {
            let [row, column, value] = lines.split("a row, a column and a value")?;
            (row, column, Some(value))
        }
    };
    let index = |word, what| {
        let expected = format!("a {what} from 1 to {rows}");
        let index = lines.number::<u64>(word, &expected)?;
        match usize::try_from(index) {
            Ok(index) if (1..=rows).contains(&index) => Ok((index - 1) as u32),
            _ => Err(lines.malformed(format!("{what} {index}"), expected)),
        }
    };
    let (row, column) = (index(row, "row")?, index(column, "column")?);
    if header.symmetric && row < column {
        return Err(lines.malformed(
            format!("entry ({}, {})", row + 1, column + 1),
            "one on or below the diagonal, as the file is `symmetric`",
        ));
    }
    let value = match (value, header.field) {
        (None, _) => 1.0,
        (Some(word), Field::Integer) => lines.number::<i64>(word, "an integer")? as f64,
        (Some(word), _) => {
            let value = lines.number::<f64>(word, "a number")?;
            if !value.is_finite() {
                return Err(lines.malformed(quoted(word), "a finite number"));
            }
            value
        }
    };
    Ok(Entry { row, column, value })
}
