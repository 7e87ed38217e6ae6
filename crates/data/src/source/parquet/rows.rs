//! The values of a column, row by row.

use super::budget::Allowance;
use super::footer::RowGroup;
use super::pages::Pages;
use super::runs::Runs;
use super::schema::Leaf;
use super::thrift::damage;
use super::values::{Values, number};
use std::io::{self, Read, Seek};

/// Calls `visit` with the number of every row, none for a null.
pub(super) fn numbers(
    file: impl Read + Seek,
    group: &RowGroup,
    column: (usize, &Leaf),
    unpacked: &mut Allowance,
    mut visit: impl FnMut(Option<i64>) -> io::Result<()>,
) -> io::Result<()> {
    bytes(file, group, column, unpacked, |value| visit(value.map(number).transpose()?))
}

/// Calls `visit` with the bytes of every row of a column that has no more than one value in each, none for a null. All
/// columns share what their pages may unpack to.
pub(super) fn bytes(
    file: impl Read + Seek,
    group: &RowGroup,
    (column, leaf): (usize, &Leaf),
    unpacked: &mut Allowance,
    mut visit: impl FnMut(Option<&[u8]>) -> io::Result<()>,
) -> io::Result<()> {
    let Some(Some(chunk)) = group.chunks.get(column) else {
        return Err(damage(format!("column {} is encrypted or kept in another file", leaf.name)));
    };
    if chunk.values != group.rows {
        return Err(damage(format!("column {} has {} values for {} rows", leaf.name, chunk.values, group.rows)));
    }
    // The level of a value says how many of the groups it is in, itself included, are not null. At the deepest, it is
    // there.
    let deepest = leaf.definition as u32;
    let mut pages = Pages::new(file, chunk, leaf, unpacked)?;
    let mut rows = 0;
    while let Some(page) = pages.next_page()? {
        let mut levels = (deepest > 0).then(|| Runs::new(page.levels(), deepest.ilog2() + 1));
        let mut values = Values::new(page.encoding, page.stored(), leaf.stored, pages.dictionary())?;
        for _ in 0..page.values {
            let level = levels.as_mut().map_or(Ok(deepest), Runs::next)?;
            if level > deepest {
                return Err(damage(format!("column {} has a level of {level} where {deepest} is most", leaf.name)));
            }
            visit(if level == deepest { Some(values.next()?) } else { None })?;
        }
        rows += u64::from(page.values);
    }
    if rows != group.rows {
        return Err(damage(format!("column {} ends after {rows} of {} rows", leaf.name, group.rows)));
    }
    Ok(())
}
