//! Two graphs in one picture.

use super::Picture;
use super::svg::drawn;
use crate::{Graph, Result};

impl Graph {
    /// A picture of `new` as SVG, as [`svg`](Graph::svg) draws it, that shows what is different
    /// from this graph as [`diff`](Graph::diff) tells: nodes that were added are green, changed
    /// ones yellow, and those that were removed are drawn red beside their neighbours.
    ///
    /// # Errors
    ///
    /// As [`diff`](Graph::diff).
    pub fn diff_svg(&self, new: &Graph) -> Result<String> {
        let found = self.compare(new)?;
        Ok(drawn(&Picture::marked(new, Some(&found))?))
    }
}
