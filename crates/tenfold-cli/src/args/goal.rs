//! Goals as options: those of `Goal::NAMES`, and two settings of video encoders.

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches, value_parser};
use tenfold::Goal;
use tenfold::engine::GoalNumber;

const HEADING: &str = "Goal (exactly one)";
const OPTIONAL: &str = "Goal of lossy deltas (at most one)";
const QP: &str = "qp";
const LOSSLESS_SAMPLES: &str = "lossless_samples";

/// The goal: at most one is set.
#[derive(Debug, Default)]
pub struct GoalArgs {
    /// A goal of the codec.
    pub goal: Option<Goal>,
    /// A fixed quantiser of the video encoder, whatever rate and error that gives.
    pub qp: Option<u32>,
    /// The video encoder keeps every sample; only rounding to samples loses something.
    pub lossless_samples: bool,
}

impl GoalArgs {
    /// Whether a video encoder's setting replaces a goal.
    pub fn is_fixed(&self) -> bool {
        self.qp.is_some() || self.lossless_samples
    }
}

/// The command-line option for a goal.
pub fn option(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

impl Args for GoalArgs {
    fn augment_args(command: Command) -> Command {
        let pictures = [
            Arg::new(QP)
                .value_name("N")
                .value_parser(value_parser!(u32))
                .help("Fix the quantiser of the video encoder, whatever rate and error that gives"),
            Arg::new(LOSSLESS_SAMPLES)
                .action(ArgAction::SetTrue)
                .help("Let the video encoder keep every sample; only rounding to samples loses something"),
        ];
        add_goals(command, HEADING, pictures)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for GoalArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<GoalArgs, clap::Error> {
        Ok(GoalArgs {
            goal: find_goal(matches),
            qp: matches.get_one(QP).copied(),
            lossless_samples: matches.get_flag(LOSSLESS_SAMPLES),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A goal that may be left out, without those of video encoders.
#[derive(Debug, Default)]
pub struct OptionalGoal(pub Option<Goal>);

impl Args for OptionalGoal {
    fn augment_args(command: Command) -> Command {
        add_goals(command, OPTIONAL, [])
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OptionalGoal {
    fn from_arg_matches(matches: &ArgMatches) -> Result<OptionalGoal, clap::Error> {
        Ok(OptionalGoal(find_goal(matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A goal that a server is to encode at, or none.
#[cfg(feature = "net")]
#[derive(Debug, Default)]
pub struct WireGoal(pub Option<Goal>);

#[cfg(feature = "net")]
impl Args for WireGoal {
    fn augment_args(command: Command) -> Command {
        add_goals(command, "Goal that the server encodes plain models at (at most one)", [])
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(feature = "net")]
impl FromArgMatches for WireGoal {
    fn from_arg_matches(matches: &ArgMatches) -> Result<WireGoal, clap::Error> {
        Ok(WireGoal(find_goal(matches)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Options for all goals, of which at most one may be stated.
fn add_goals(command: Command, heading: &'static str, more: impl IntoIterator<Item = Arg>) -> Command {
    let goals = Goal::NAMES.map(|goal| {
        let arg = Arg::new(goal.name).help(goal.help);
        let parse = move |text: &str| -> Result<Goal, String> {
            let number = text.parse().map_err(|_| "must be a number".to_owned())?;
            Goal::from_name(goal.name, Some(number)).map_err(|error| error.to_string())
        };
        match goal.number {
            GoalNumber::Nothing => arg.action(ArgAction::SetTrue),
            GoalNumber::Whole(..) => arg.value_name("N").value_parser(parse),
            _ => arg.value_name("X").value_parser(parse),
        }
    });
    let mut group = ArgGroup::new("goal").multiple(false);
    let mut command = command;
    for arg in goals.into_iter().chain(more) {
        let long = arg.get_id().as_str().replace('_', "-");
        group = group.arg(arg.get_id());
        command = command.arg(arg.long(long).help_heading(heading));
    }
    command.group(group)
}

fn find_goal(matches: &ArgMatches) -> Option<Goal> {
    let stated = |goal: tenfold::engine::GoalName| match goal.number {
        GoalNumber::Nothing => matches.get_flag(goal.name).then_some(Goal::Lossless),
        _ => matches.get_one::<Goal>(goal.name).copied(),
    };
    Goal::NAMES.into_iter().find_map(stated)
}
