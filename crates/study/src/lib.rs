//! Many runs as one question: a grid of data, recipes and seeds in a file, and the table that answers it.
//!
//! [`StudyFile`] is what the user wrote, [`Plan`] the runs that follow from it, [`pool`] has several of them at work at a
//! time, and [`Summary`] is what they gave: mean and deviation over seeds, collapses and times, as Markdown and CSV.

mod file;
mod plan;
pub mod pool;
mod scores;
mod summary;
mod table;

pub use file::{DataSet, StudyError, StudyFile};
pub use plan::{Cell, Plan, StudyRun};
pub use scores::{Score, knn_of_literature};
pub use summary::{Accuracies, CellSummary, Ended, RunOutcome, Summary, mean_and_deviation};
pub use table::{cells_csv, markdown, runs_csv};
