//! What became of a run.

use super::lock::Activity;
use super::result::RunResult;

/// What became of a run, as far as its folder tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// A process trains it.
    Running {
        /// As it calls itself: `process 123`.
        holder: String,
    },
    /// It came to its last step.
    Finished,
    /// A collapse that lasted has ended it.
    Collapsed,
    /// It ended in order before its last step.
    Stopped,
    /// The process that trained it was gone from one moment to the next.
    Killed,
    /// Nobody has left a word.
    Unfinished,
}

impl RunState {
    /// Of who trains it, or did last, and what it has to show. A lock that is held says more than a result.
    pub fn of(activity: Option<Activity>, result: Option<&RunResult>) -> Self {
        match (activity, result) {
            (Some(Activity::Training { holder }), _) => RunState::Running { holder },
            (_, Some(result)) if result.collapsed.is_some() => RunState::Collapsed,
            (_, Some(_)) => RunState::Finished,
            (Some(Activity::Ended), _) => RunState::Stopped,
            (Some(Activity::Killed), _) => RunState::Killed,
            (None, _) => RunState::Unfinished,
        }
    }

    /// One word, which scripts rely on.
    pub fn word(&self) -> &'static str {
        match self {
            RunState::Running { .. } => "running",
            RunState::Finished => "finished",
            RunState::Collapsed => "collapsed",
            RunState::Stopped => "stopped",
            RunState::Killed => "killed",
            RunState::Unfinished => "unfinished",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::CollapsedAt;

    #[test]
    fn a_lock_that_is_held_says_more_than_a_result() {
        let training = || Some(Activity::Training { holder: "process 7".into() });
        let json = serde_json::json!({ "steps": 9, "loss": 1.0, "knn_top1": null });
        let result = RunResult::from_json(&json).unwrap();
        assert_eq!(RunState::of(training(), None).word(), "running");
        assert_eq!(RunState::of(training(), Some(&result)).word(), "running", "it makes something again");
        assert_eq!(RunState::of(Some(Activity::Killed), Some(&result)), RunState::Finished);
        let collapsed = RunResult { collapsed: Some(CollapsedAt { since: 5, healthy: None }), ..result };
        assert_eq!(RunState::of(Some(Activity::Killed), Some(&collapsed)).word(), "collapsed");
        let words = [Some(Activity::Ended), Some(Activity::Killed), None].map(|a| RunState::of(a, None).word());
        assert_eq!(words, ["stopped", "killed", "unfinished"]);
    }
}
