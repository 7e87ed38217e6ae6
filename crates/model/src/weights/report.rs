//! What a weights file holds, for people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use text::{count, excerpt, thousands};

use super::described::HeadsFrom;
use super::file::{TensorInfo, WeightsFile};
use super::names::{KeyLayout, NetworkRole, lead};
use super::values::Element;
use crate::Layout;

/// How the names in a file match those of a backbone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadReport {
    /// Tensors of a backbone that are there.
    pub matched: usize,
    /// Tensors of a backbone that are not; none where it was loaded.
    pub missing: Vec<String>,
    /// All other tensors of the file, by their names in it.
    pub left_over: Vec<String>,
    /// Whose habits the names follow.
    pub layout: KeyLayout,
    /// Which network was taken, where the file tells them apart.
    pub role: Option<NetworkRole>,
    /// Who says how many heads there are; none where the network's shape was not looked at.
    pub heads_from: Option<HeadsFrom>,
    /// The square grid that positions without one for the class token were taken for, where nothing says which grid they
    /// have: with one more in front they could be those of an oblong one.
    pub grid_taken: Option<(usize, usize)>,
}

impl LoadReport {
    /// Of a network that comes from no file.
    pub fn of_own(layout: &Layout) -> Self {
        let matched = layout.specs().len();
        let (missing, left_over) = (Vec::new(), Vec::new());
        Self { matched, missing, left_over, layout: KeyLayout::Dino, role: None, heads_from: None, grid_taken: None }
    }

    /// `DINO layout`, or `dino-vmf checkpoint, teacher`.
    pub fn source(&self) -> String {
        match self.role {
            Some(role) => format!("{}, {role}", self.layout),
            None => self.layout.to_string(),
        }
    }
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let needed = self.matched + self.missing.len();
        write!(f, "matched {} of {needed} backbone tensors ({})", self.matched, self.source())?;
        write!(f, "; missing: {}", examples(&self.missing))?;
        write!(f, "; left over: {}", examples(&self.left_over))
    }
}

/// `8 (head.mlp.0.weight, head.mlp.0.bias, ...)`.
fn examples(names: &[String]) -> String {
    const SHOWN: usize = 3;
    if names.is_empty() {
        return "0".to_owned();
    }
    let mut shown: Vec<String> = names.iter().take(SHOWN).map(|name| excerpt(name).into_owned()).collect();
    if names.len() > SHOWN {
        shown.push("...".to_owned());
    }
    format!("{} ({})", names.len(), shown.join(", "))
}

/// Tensors of a file that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorGroup {
    /// What their names begin with: `teacher/backbone.blocks`.
    pub name: String,
    /// How many tensors.
    pub tensors: usize,
    /// How many values in all of them.
    pub values: u64,
    /// Types of their elements.
    pub elements: BTreeSet<Element>,
    /// The shape, where the group is one tensor.
    pub shape: Option<Vec<usize>>,
}

/// The content of a file in brief. Its `Display` is what `inspect` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Size of the file.
    pub file_bytes: u64,
    /// Its tensors, grouped, in order of name.
    pub groups: Vec<TensorGroup>,
    /// What the writer has noted beside them.
    pub metadata: BTreeMap<String, String>,
}

impl WeightsFile {
    /// The content of the file in brief.
    pub fn summary(&self) -> Summary {
        let mut groups: BTreeMap<&str, TensorGroup> = BTreeMap::new();
        for tensor in self.tensors() {
            let name = group_of(tensor);
            let group = groups.entry(name).or_insert_with(|| TensorGroup {
                name: name.to_owned(),
                tensors: 0,
                values: 0,
                elements: BTreeSet::new(),
                shape: Some(tensor.shape.clone()),
            });
            group.tensors += 1;
            group.values = group.values.saturating_add(tensor.values() as u64);
            group.elements.insert(tensor.element.clone());
            if group.tensors > 1 {
                group.shape = None;
            }
        }
        let groups = groups.into_values().collect();
        Summary { file_bytes: self.file_bytes(), groups, metadata: self.metadata().clone() }
    }
}

/// What leads the name and the first part of the rest: `teacher/backbone.blocks` of `teacher/backbone.blocks.3.norm1.bias`.
fn group_of(tensor: &TensorInfo) -> &str {
    let name = &tensor.name;
    let lead = lead(name).len();
    let part = name[lead..].find('.').unwrap_or(name.len() - lead);
    &name[..lead + part]
}

impl Summary {
    /// Number of tensors.
    pub fn tensors(&self) -> usize {
        self.groups.iter().map(|group| group.tensors).sum()
    }

    /// Number of values in all tensors.
    pub fn values(&self) -> u64 {
        self.groups.iter().fold(0, |sum, group| sum.saturating_add(group.values))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tensors, values) = (count(self.tensors(), "tensor"), thousands(self.values()));
        writeln!(f, "{tensors}, {values} values, {} bytes", thousands(self.file_bytes))?;
        let name_width = self.groups.iter().map(|group| excerpt(&group.name).chars().count()).max().unwrap_or(0);
        let values_width = self.groups.iter().map(|group| thousands(group.values).len()).max().unwrap_or(0);
        for group in &self.groups {
            let TensorGroup { tensors, values, .. } = group;
            let (name, values) = (excerpt(&group.name), thousands(*values));
            let plural = if *tensors == 1 { " " } else { "s" };
            let elements: Vec<String> = group.elements.iter().map(Element::to_string).collect();
            write!(f, "  {name:name_width$}  {tensors:5} tensor{plural}  {values:>values_width$} values  ")?;
            write!(f, "{}", elements.join(", "))?;
            match &group.shape {
                Some(shape) => writeln!(f, "  {shape:?}")?,
                None => writeln!(f)?,
            }
        }
        for (key, value) in &self.metadata {
            writeln!(f, "  {}: {}", excerpt(key), excerpt(value))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_counts_all_and_names_a_few() {
        let left_over = (0..5).map(|i| format!("head.mlp.{i}.weight")).collect();
        let report = LoadReport {
            matched: 150,
            missing: vec![],
            left_over,
            layout: KeyLayout::Dino,
            role: Some(NetworkRole::Teacher),
            heads_from: None,
            grid_taken: None,
        };
        assert_eq!(
            report.to_string(),
            "matched 150 of 150 backbone tensors (DINO layout, teacher); missing: 0; \
             left over: 5 (head.mlp.0.weight, head.mlp.1.weight, head.mlp.2.weight, ...)"
        );
    }
}
