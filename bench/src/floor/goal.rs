//! Goals: what a figure must be, by itself or beside that of the floor.

use std::fmt;

/// A demand on the median of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// So much at most.
    Most(f64),
    /// So many times that of the floor at most.
    MostTimes(f64),
    /// So many times that of the floor at least.
    LeastTimes(f64),
}

impl Goal {
    /// Returns whether it is met by a median, and the median of the ratios to the floor.
    pub(crate) fn is_met(self, figure: f64, ratio: f64) -> bool {
        match self {
            Self::Most(most) => figure <= most,
            Self::MostTimes(most) => ratio <= most,
            Self::LeastTimes(least) => ratio >= least,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Most(most) => write!(f, "<= {most}"),
            Self::MostTimes(most) => write!(f, "<= {most} x"),
            Self::LeastTimes(least) => write!(f, ">= {least} x"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Goal;

    #[test]
    fn a_goal_is_met_at_its_edge_by_its_own_figure() {
        assert!(Goal::Most(40.0).is_met(40.0, 70.0));
        assert!(!Goal::Most(40.0).is_met(40.1, 0.5));
        assert!(Goal::MostTimes(1.05).is_met(900.0, 1.05));
        assert!(!Goal::MostTimes(1.05).is_met(0.1, 1.06));
        assert!(Goal::LeastTimes(0.95).is_met(0.1, 0.95));
        assert!(!Goal::LeastTimes(0.95).is_met(900.0, 0.94));
    }

    #[test]
    fn what_is_no_number_meets_no_goal() {
        for goal in [Goal::Most(1.0), Goal::MostTimes(1.0), Goal::LeastTimes(1.0)] {
            assert!(!goal.is_met(f64::NAN, f64::NAN), "{goal}");
        }
    }
}
