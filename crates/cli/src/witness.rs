//! `pretrain` in a process that is not the first of its run: it trains its share, and leaves words and files to the first.

use data::BadSample;
use ssl::method;
use ssl::pretraining::{Extras, Start};
use train::home::Witness;
use train::reduce::Until;
use train::run::{RunFolder, RunReader};
use train::{Monitor, NoEvaluation, Outcome, Progress};

use crate::error::CliError;
use crate::output;
use crate::pretrain::{Command, word};
use crate::signals::Stop;

/// Takes part in the attempts of a run until the first process says that it is over. The status is the first's to know.
pub fn run(command: &Command<'_>) -> Result<u8, CliError> {
    let stop = Stop::listen_silently()?;
    loop {
        let recipe = command.recipe_after(&RunFolder::attempts_in(&command.out)?)?;
        // The first one opens the folder and whatever it evaluates on, takes a census of the images, looks for copies.
        if command.processes.told(word::END, Until::Done)? == word::END {
            return Ok(0);
        }
        let reduce = command.processes.reduce();
        let mut monitor = Quiet { rank: reduce.rank() };
        let (method, extras) =
            (method::of(&recipe), Extras { beginning: command.beginning.clone(), ..Default::default() });
        let start = Start {
            device: &command.device.device,
            recipe: &recipe,
            method: &*method,
            source: command.train.clone(),
            extras,
            reduce,
        };
        let mut trainer = start.join(Witness::new(RunReader::open(&command.out)?), &mut monitor)?;
        let outcome = trainer.run(&mut monitor, &mut NoEvaluation, &|| stop.requested())?;
        let is_over = !matches!(outcome, Outcome::Collapsed { .. });
        if is_over || command.processes.told(word::END, Until::Done)? == word::END {
            return Ok(0);
        }
    }
}

/// Says only what the first process cannot know.
struct Quiet {
    rank: usize,
}

impl Monitor for Quiet {
    fn step(&mut self, _: &Progress) {}

    fn say(&mut self, _: &str) {}

    fn skipped(&mut self, bad: &BadSample) {
        output::note(&format!(
            "process {}: unreadable, another image takes its place: {}: {}",
            self.rank, bad.name, bad.reason
        ));
    }
}
