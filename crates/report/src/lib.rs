//! Runs as pages and drawings that people look at.
//!
//! - [`scale`]: from numbers to places on an axis, with ticks that people count in.
//! - [`chart`]: lines over steps or epochs, as SVG that reads on light and dark pages, on paper and by the colour-blind.
//! - [`history`]: the numbers of a log, however long, as a bounded number of points.
//! - [`account`]: what there is to tell of a run besides.
//! - [`settings`]: the settings of a run with their reasons.
//! - [`curves`]: which numbers of a run are drawn together, and beside what.
//! - [`dots`]: what a study has found, a dot for each run.
//! - [`figure`]: the paper's figures, as drawings with their numbers beside them.
//! - [`page`]: one self-contained HTML file for a run, or for several side by side.
//! - [`pictures`]: sections of a page with pictures of the data, as a network sees it.
//! - [`results`]: what the evaluations of a network gave, as one page.
//! - [`listing`]: all runs below a folder, a row each.
//! - [`watch`]: the same pages served live, while runs train.
//!
//! Whatever a run holds (names of files, settings, numbers that are not finite) is shown as text and never read as markup.

pub mod account;
pub mod chart;
pub mod curves;
pub mod dots;
pub mod figure;
pub mod history;
pub mod listing;
mod machine;
mod markup;
pub mod page;
pub mod pictures;
pub mod results;
pub mod scale;
pub mod settings;
pub mod watch;

pub use account::{Account, ReportError};
pub use chart::{Chart, Reference, Series};
pub use history::{Column, History};
